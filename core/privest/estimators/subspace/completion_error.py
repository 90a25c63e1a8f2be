"""The error of a completed subspace: what the noise on a moment turns, and what few entries do."""

from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.perturbation import Turn, turn_by_noise
from privest.estimators.subspace.principal_error import open_directions
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.mechanisms import NoisySum

_SEEN = 3.0
"""Deviations of the noise that a column's share has to exceed, to be told from that of an empty column."""

_EXACT = 10.0
"""Times that the least direction has of the variance what the next one has: 2 or 3 on most real tables."""

_NAMED = 10
"""Most columns that a warning names."""


def completion_of(*, bounded: bool, means: bool) -> str:
    """Return what a completion's subspace is, as one phrase.

    Args:
        bounded: whether it is of a table whose columns all have bounds, which are their units.
        means: whether means were taken off.
    """
    units = ", each column divided by half its declared range and" if bounded else ","
    off = "less the released column means and its own mean, and then " if means else ""
    return (
        f"the principal subspace of these records{units} each record {off}divided by the length of its known "
        "part, with the second moment that these parts show"
    )


def completion_uncertainty(
    statistic: GapMoment, released: Array, rank: int, release: NoisySum, of: str
) -> Uncertainty:
    """Return the uncertainty of the leading subspace of a noisy moment of rows with unknown entries.

    Args:
        statistic: the moment.
        released: (size,) its noisy mean.
        rank: r.
        release: how it was released.
        of: the exact moment's subspace in words.
    """
    moment, pairs = statistic.whole(released)
    eigenvalues, vectors = np.linalg.eigh(moment)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    variances = statistic.noise_between(vectors, moment, pairs, release.deviation)
    turn, entry = _turned(eigenvalues, rank, variances)
    by_chance = _chance_between(vectors, moment, pairs, release.n)
    chance, _ = _turned(eigenvalues, rank, by_chance)
    # Whatever the law of rows no longer than 1: so large if all that there is were spread over all entries.
    unlike, _ = _turned(eigenvalues, rank, np.maximum(by_chance, 1 / (statistic.dim**2 * release.n)))
    return Uncertainty(
        of=of,
        standard_deviation=turn.standard_deviation,
        radius_95=turn.radius_95,
        noise=turn.radius_95,
        moved=0.0,
        sampling=chance.standard_deviation,
        unknown=(
            "how far it is turned by the division by the lengths of known parts, and by entries that are "
            "unknown more often in some columns than in others",
        ),
        warnings=(
            *open_directions(turn.lost, rank),
            *_few(unlike.lost, rank),
            *_unseen(np.diag(moment), entry),
            *_exact(eigenvalues, rank, entry),
        ),
    )


def _turned(eigenvalues: Array, rank: int, variances: Array) -> tuple[Turn, float]:
    """How far a subspace is turned, and the deviation on an entry that stands for all of what turns it.

    Args:
        eigenvalues: (dim,) the largest first.
        rank: of the leading subspace.
        variances: (dim, dim) of what turns one eigenvector towards another.
    """
    between = variances[:rank, rank:]
    weights = 1 / ((eigenvalues[:rank, None] - eigenvalues[rank:]) ** 2 + between)
    entry = sqrt(float((weights * between).sum() / weights.sum()))
    return turn_by_noise(eigenvalues, rank, entry), entry


def _chance_between(vectors: Array, moment: Array, pairs: float, n: int) -> Array:
    """(dim, dim) variances of what the choice of n records, and of known entries, has between eigenvectors.

    Of nearly normal records it is the product of what the known parts have along the two, over n. Gaps
    scatter, so that these have more than whole rows; a record that is not there might have been. On 18 real
    tables bootstraps differ by .6 to .9 of what follows, by .4 where directions are lost.
    """
    scattered = (1 - pairs) * np.diag(moment) / max(pairs, 1e-300)
    along = np.diag(vectors.T @ moment @ vectors) + scattered @ vectors**2
    along = np.clip(along, 1 / n, 1.0)
    return np.outer(along, along) / n


def chosen_steps_uncertainty(foretold: float, most: float) -> Uncertainty:
    """What a descent by chosen steps tells of its error: nothing, so that all is possible but the forecast.

    Args:
        foretold: the plan's radius.
        most: the furthest distance that there is.
    """
    return Uncertainty(
        of="the subspace that the same steps find without noise",
        standard_deviation=most,
        radius_95=most,
        noise=min(most, foretold),
        unknown=(
            "how far the noise turns a descent whose steps were chosen: `radius_95` is the furthest that "
            "there is, and `noise` what the plan foretold of rows as it takes them to be",
        ),
    )


def _few(lost: int, rank: int) -> tuple[str, ...]:
    """The warning that a direction may be chance, or none."""
    if not lost:
        return ()
    return (
        f"{lost} of the {rank} directions may be there by chance, as records, or known entries of them, are "
        "few: others like them may show others",
    )


def _unseen(diagonal: Array, entry: float) -> tuple[str, ...]:
    """The warning that columns are as if they had no entry, or none."""
    unseen = np.flatnonzero(diagonal <= _SEEN * sqrt(2.0) * entry)
    if not len(unseen):
        return ()
    named = ", ".join(map(str, unseen[:_NAMED] + 1)) + (", …" if len(unseen) > _NAMED else "")
    return (
        f"{len(unseen)} of the {len(diagonal)} columns (counted from 1: {named}) show no more than noise: "
        "their entries are unknown, zero, or small beside the others of a row. The subspace says nothing of "
        "them",
    )


def _exact(eigenvalues: Array, rank: int, entry: float) -> tuple[str, ...]:
    """The warning that a descent would find the subspace more exactly, or none."""
    if eigenvalues[rank - 1] < _EXACT * (max(eigenvalues[rank], 0.0) + entry):
        return ()
    return (
        "the rows lie in this subspace all but exactly: their division by lengths of known parts may turn it "
        "further than the noise, and a descent (`steps`: 12) finds it more exactly",
    )
