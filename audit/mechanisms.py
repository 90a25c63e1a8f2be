"""Every kind of release on the neighbours that are worst for it: what many answers prove of its cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import log, sqrt

import numpy as np

from audit.distinguisher import Distinguisher
from audit.lines import Section
from privest.arrays import Array, lengths
from privest.data.records import Records
from privest.privacy.clipped_sums import clipped_sum
from privest.privacy.gate import Gate
from privest.privacy.matrix_mechanism import Factorisation, left_row, prefix_sums
from privest.privacy.mechanisms import (
    Noise,
    NoisySum,
    Scheme,
    SubsampledRun,
    SubsampledSum,
    noisy_sum,
    subsampled_sum,
)
from privest.privacy.subsampling import certify, noise_for, runs_of
from testing.noise import ScaledNoise

_CLIP, _NAME = 1.0, "vectors"
_MU = 1.0


@dataclass(frozen=True)
class Vectors:
    """Σ of vectors as they are, but for the clip.

    Attributes:
        size: of a vector.
    """

    size: int

    description = "the mean"

    def diameter(self, clip: float) -> float:
        """Distance between two opposite vectors at the clip."""
        return 2 * clip

    def clipped_sum(self, point: None, rows: Array, clip: float) -> Array:  # noqa: ARG002 - as all have it
        """See `Statistic`."""
        return clipped_sum(rows, clip)


def _worlds(n: int, size: int, every: int = 0) -> tuple[Array, Array]:
    """Zeros, but for the first or one of so many: beyond the clip, and opposite in the two worlds."""
    rows, other = np.zeros((n, size)), np.zeros((n, size))
    places = slice(0, None, every) if every else slice(0, 1)
    rows[places, 0], other[places, 0] = -2 * _CLIP, 2 * _CLIP
    return rows, other


# Sums over all records


def _full(noise: Noise, size: int, loss: float) -> NoisySum:
    return noisy_sum(noise, n=3, size=size, clip=_CLIP, loss=loss, statistic=_NAME)


def full_scores(release: NoisySum, factor: float, runs: int) -> tuple[Array, Array]:
    """Score each noisy sum by how much nearer it is to the true sum of the second world."""
    ends = np.zeros((2, release.size))
    ends[:, 0] = -_CLIP, _CLIP

    def of(rows: Array) -> Array:
        many = [replace(release, count=runs)]
        gate = Gate(
            Records(rows, threads=1),
            {_NAME: Vectors(release.size)},
            many,
            ScaledNoise(factor, order=np.arange),
        )
        sums = np.stack([gate.mean(None, _NAME) for _ in range(runs)]) * release.divisor
        one, other = (lengths(sums - end) for end in ends)
        return one**2 - other**2 if release.noise == "gaussian" else one - other

    one, other = _worlds(3, release.size)
    return of(one), of(other)


# Random batches


_RECORDS, _RATE, _BATCHES, _SLACK = 40, 0.5, 4, 1e-6


def _gaussian_batches(scheme: Scheme) -> SubsampledSum:
    run = noise_for(scheme, _RATE, _BATCHES, ((_MU, _SLACK),))
    return _batches("gaussian", scheme, _BATCHES, run.noise)


def _batches(law: Noise, scheme: Scheme, count: int, noise: float) -> SubsampledSum:
    return subsampled_sum(
        SubsampledRun(scheme, _RATE, noise, count),
        statistic=_NAME,
        n=_RECORDS,
        size=1,
        clip=_CLIP,
        law=law,
    )


def batch_scores(release: SubsampledSum, factor: float, runs: int) -> tuple[Array, Array]:
    """The log likelihood ratio of each run's batches, all of whose other records are zero."""
    scale = release.scale

    def density(sums: Array, end: float) -> Array:
        if release.noise == "gaussian":
            moved, still = (-((sums - at) ** 2) / (2 * scale**2) for at in (end, 0.0))
        else:
            moved, still = (-np.abs(sums - at) / scale for at in (end, 0.0))
        return np.logaddexp(log(release.rate) + moved, log(1 - release.rate) + still)

    def of(rows: Array) -> Array:
        many = [replace(release, count=runs * release.count)]
        gate = Gate(Records(rows, threads=1), {_NAME: Vectors(1)}, many, ScaledNoise(factor, order=np.arange))
        sums = np.array([gate.mean(None, _NAME)[0] for _ in range(runs * release.count)]) * release.divisor
        ratios = density(sums, _CLIP) - density(sums, -_CLIP)
        return ratios.reshape(runs, release.count).sum(axis=1)

    one, other = _worlds(_RECORDS, 1)
    return of(one), of(other)


# Streams: segments one after another, of records that no other segment sees, each with a record of its own
# that differs; what differs in other segments is of other records.

_LEAVES = 8


def stream_scores(factorisation: Factorisation, factor: float, runs: int) -> tuple[Array, Array]:
    """The first leaf's part in all prefixes of a segment, by the inverse of L."""
    n = runs * _LEAVES
    release = prefix_sums(factorisation, statistic=_NAME, n=n, size=1, clip=_CLIP, leaves=_LEAVES, mu=_MU)
    left = np.zeros((_LEAVES, _LEAVES))
    for t in range(_LEAVES):
        left[t, : t + 1] = left_row(factorisation, t + 1)
    right = np.linalg.solve(left, np.tril(np.ones((_LEAVES, _LEAVES))))
    weights = np.linalg.solve(left.T, right[:, 0])

    def of(rows: Array) -> Array:
        found = np.empty((runs, _LEAVES))
        gate = Gate(
            Records(rows, threads=1), {_NAME: Vectors(1)}, [release], ScaledNoise(factor, order=np.arange)
        )
        for run in range(runs):
            for t in range(_LEAVES):
                gate.extend(_NAME, None, 1, anew=t == 0)
                found[run, t] = gate.prefix(_NAME)[0]
        return found @ weights

    one, other = _worlds(n, 1, every=_LEAVES)
    return of(one), of(other)


_FACTORISATIONS: tuple[Factorisation, ...] = ("tree", "square-root")
_SCHEMES: tuple[Scheme, ...] = ("poisson", "fixed")


def _attacks() -> Iterator[Distinguisher]:
    gaussian = _full("gaussian", 3, _MU)
    yield Distinguisher(
        "gaussian-sum",
        "a sum with Gaussian noise over all records, three coordinates",
        partial(full_scores, gaussian),
        (4_000, 100_000),
        mu=sqrt(gaussian.cost.mu_squared),
    )
    for size in (1, 3):
        laplace = _full("laplace", size, 2.0)
        yield Distinguisher(
            f"laplace-sum-{size}",
            f"a sum with Laplace noise over all records, coordinates: {size}",
            partial(full_scores, laplace),
            (3_000, 100_000),
            epsilon=laplace.epsilon,
        )
    for scheme in _SCHEMES:
        batches = _gaussian_batches(scheme)
        yield Distinguisher(
            f"{scheme}-batches",
            f"{_BATCHES} sums with Gaussian noise over random batches of half of the records ({scheme})",
            partial(batch_scores, batches),
            (2_000, 100_000),
            mu=sqrt(certify(runs_of([batches]), _SLACK).mu_squared),
            slack=_SLACK,
        )
    pure = _batches("laplace", "poisson", 1, 1.0)
    yield Distinguisher(
        "laplace-batches",
        "a sum with Laplace noise over a Poisson batch of half of the records",
        partial(batch_scores, pure),
        (4_000, 200_000),
        epsilon=pure.epsilon,
    )
    for factorisation in _FACTORISATIONS:
        yield Distinguisher(
            f"{factorisation}-stream",
            f"all prefixes of a stream, {_LEAVES} leaves a segment, with noise by the {factorisation}",
            partial(stream_scores, factorisation),
            (600, 100_000),
            mu=_MU,
        )


SECTION = Section(
    "What many answers prove",
    """\
Every kind of release, answered by the gate as in a run, in two worlds whose one record is beyond the clip in
opposite directions, the others zero; scored by the exact ratio of likelihoods. For μ the threshold is where
the two are equally likely; for ε it is chosen on one half of the runs and measured on the other. Streams: of
one segment after the other, each with a record of its own that differs.""",
    tuple(attack.line for attack in _attacks()),
)
