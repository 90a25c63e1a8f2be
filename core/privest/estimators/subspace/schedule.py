"""Steps and predicted errors of robust PCA, from public facts and a stated picture of the rows.

The picture: half of the rows lie about the subspace, evenly spread in it and off it by about a tenth of
their length, and the others have no direction. Predictions rest on it; no guarantee does.
"""

from collections.abc import Sequence
from math import hypot, inf, log2, pi, sqrt

import numpy as np

INLIERS = 0.5
"""Share of the rows about the subspace, in the picture."""

_SCATTER = 0.1

_LONGEST = 0.5
"""First step of a descent from a good start (Maunu et al. 2022 take 1, and halve it every 50 steps)."""

_MOST_HALVINGS = 6
"""Most halvings of the step, if the analyst names no other number. Rows that lie on the subspace exactly
pull as hard from near as from far, so that the error follows the step down (the restarts of Maunu et al.
2022, Theorem 5, without their breaks)."""

_SHORTEST_HALF = 3
"""Least number of steps in which the step size halves; with fewer, a descent stops before it arrives."""

_SURE_HALF = 12
"""Steps of two descents for each halving that the analyst asks for. With 6 some runs stop on the way."""

_WORK = 3e8
"""Entries of rows that a descent reads where the analyst gives no number of steps."""

_STEPS = (12, 100)


def right_angles(rank: int) -> float:
    """Square of the distance between orthogonal subspaces: no two are further apart."""
    return rank * (pi / 2) ** 2


_SMALL_GAP = 0.01
"""Share of the variance by which a direction of the subspace exceeds the next one, on many real tables."""


def moment_error(deviation: float, dim: int, rank: int) -> float:
    """Square of the angle by which symmetric noise turns the leading subspace of a second moment.

    Args:
        deviation: of the noise on an orthonormal coordinate of the mean; off the diagonal, √2 less.
        dim: D.
        rank: r.
    """
    gap = INLIERS / rank
    return min(right_angles(rank), rank * (dim - rank) * (deviation / gap) ** 2 / 2)


def small_gap_error(error: float, rank: int) -> float:
    """What `moment_error` would be if no direction of the subspace stood out by more than `_SMALL_GAP`."""
    return error * max(1.0, INLIERS / rank / _SMALL_GAP) ** 2


def sketch_error(deviation: float, dim: int, rank: int, columns: int) -> float:
    """Square of the angle by which noise turns a sketch's subspace; its k columns see √(k/D) of a row."""
    signal = INLIERS / rank * sqrt(columns / dim)
    return min(right_angles(rank), rank * (dim - rank) * (deviation / signal) ** 2)


def descent_count(entries: int, halvings: int | None = None) -> int:
    """Steps of descents over so many entries of rows, or as many as so many halvings of the step take."""
    least, most = _STEPS
    return _SURE_HALF * halvings if halvings else int(min(max(_WORK / entries, least), most))


def descent_steps(
    count: int,
    error: float,
    noise: float,
    rank: int,
    first: float | None,
    most: int | None = None,
    *,
    damping: float = 1.0,
) -> tuple[float, ...]:
    """Lengths of steps that fall geometrically.

    Near an exact subspace its rows pull with a force that does not depend on the distance e, α = inliers/√r
    in root mean square. Against noise of total deviation s the best step is then αe/(α² + s²), and e falls by
    √(1 + α²/s²) with each: the lengths fall no faster.

    Args:
        count: of steps.
        error: square of the distance at the start.
        noise: total standard deviation of a step's noise.
        rank: r.
        first: the first step, if it is given.
        most: halvings of the step at most, if they are given.
        damping: factor on the first step where it is not given.
    """
    pull = INLIERS / sqrt(rank)
    if first is None:
        first = damping * min(_LONGEST, pull * max(sqrt(error), 0.1) / (pull**2 + noise**2))
    reached = count * log2(hypot(1.0, pull / noise)) if noise else inf
    halvings = min(most or _MOST_HALVINGS, count / _SHORTEST_HALF, reached)
    return tuple((first * 2.0 ** (-halvings * np.arange(count) / count)).tolist())


_QUIET = 1.4
"""Noise of a step over the pull of the picture's rows, up to which each of two descents finds the way."""

_TOGETHER = 0.85
"""Share of the steps that two descents take together where the noise is larger."""


_HOPELESS = 3.9
"""Noise of a step over the pull of the picture's rows from which on no descent finds the way."""


def finds_the_way(noise: float, rank: int) -> bool:
    """Whether descents with this total standard deviation of a step's noise better a second moment."""
    return noise <= _HOPELESS * INLIERS / sqrt(rank)


def steps_together(count: int, noise: float, rank: int) -> int:
    """How many of so many steps two descents take as one, so that each has as many of the others.

    Args:
        count: of steps.
        noise: total standard deviation of a step's noise.
        rank: r.
    """
    if noise <= _QUIET * INLIERS / sqrt(rank):
        return count % 2
    return count - 2 * ((count - round(_TOGETHER * count)) // 2)


def two_descents_steps(
    count: int, error: float, noise: float, rank: int, most: int | None = None
) -> tuple[float, ...]:
    """Lengths of the steps of two descents: those of one, but that two from the start go twice as far.

    Args:
        count: of all steps.
        error: square of the distance at the start.
        noise: total standard deviation of a step's noise.
        rank: r.
        most: halvings of the step at most, if they are given.
    """
    steps = np.array(descent_steps(count, error, noise, rank, None, most))
    if steps_together(count, noise, rank) < 2:
        steps *= (min(_LONGEST, 2 * steps[0]) / steps[0]) ** np.linspace(1.0, 0.0, count)
    return tuple(steps.tolist())


def descent_error(error: float, steps: Sequence[float], noise: float, rank: int, scale: float = 0.0) -> float:
    """Square of the expected distance after a descent, of rows scattered as the picture has them.

    Args:
        error: square of the distance at the start.
        steps: lengths.
        noise: total standard deviation of a step's noise.
        rank: r.
        scale: distance within which the loss itself is smooth.
    """
    pull, smooth = INLIERS / sqrt(rank), max(_SCATTER, scale)
    for step in steps:
        drawn = min(1.0, step * pull / sqrt(error + smooth**2))
        error = (1 - drawn) ** 2 * error + (step * noise) ** 2
    return min(right_angles(rank), error)


PCA_STEPS = 6
"""Steps of a descent on squared distances, each of length 1, the longest that swings on no data."""


def pca_error(error: float, steps: Sequence[float], noise: float, rank: int) -> float:
    """Square of the expected distance after PCA steps, in which a row's pull falls with its distance."""
    for step in steps:
        error = (1 - min(1.0, 2 * step * INLIERS / rank)) ** 2 * error + (step * noise) ** 2
    return min(right_angles(rank), error)
