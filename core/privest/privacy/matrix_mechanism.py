"""Private prefix sums of streams: two factorisations of the noise, and the certificates of their cost.

A *stream* is a sum that grows by *leaves*. A leaf is a clipped sum over records that no other leaf of the run
has seen. A *segment* is the part of a stream since its sum was last reset to zero. Which records a leaf sees,
how many, at what point, and when a segment begins may depend on earlier releases, and on no record otherwise.

*Certificate.* Let A be the lower triangular matrix of ones, and A = LR with L and R lower triangular. Let x
be the leaves of a segment. The gate releases their prefix sums Ax as Ax + Lz, where the rows of z are
independent normal vectors with standard deviation σ. This is a row-by-row post-processing of y = Rx + z. Fix
the order in which the gate hands out records, which depends on no record, and the replaced record's place in
it. Given the releases so far, the two neighbouring datasets yield the same next leaf, unless it sees the
replaced record. Only one leaf does. If it is number l of its segment, it differs by a vector of length s at
most, and the mean of y_t differs by at most |R_tl|·s. For every history these μ² add up to at most s²/σ²
times the largest squared column norm of R. By fully adaptive composition of Gaussian differential privacy
(Smith and Thakurta 2022) this is the μ² of the run for that order, and so of the gate, as both datasets have
the same order. A record enters one leaf of one stream. So several streams cost as much as the costliest.
"""

from dataclasses import dataclass
from math import fsum, inf, nextafter, sqrt
from typing import ClassVar, Literal

import numpy as np

from privest.arrays import Array
from privest.privacy import clipped_sums
from privest.privacy.accounting import Cost, repeated

Factorisation = Literal["tree", "square-root"]
"""The factorisation A = LR. With `tree`, every dyadic interval of leaves has one noise vector, and a prefix
carries the noise of the intervals that make it up (Liu and Talwar 2025, Algorithm 1). With `square-root`,
L = R = √A, which is optimal up to an additive constant (Fichtenberger et al. 2023)."""

_COVER = 1 + 1e-9
"""Factor on a squared column norm. It covers the rounding of L's entries: docs/privacy.md, "Streams"."""


def nodes(t: int) -> list[tuple[int, int]]:
    """The dyadic intervals (first, last) that make up 1, …, t, the longest first.

    This is NODE(t) of Liu and Talwar (2025), Algorithm 1. Their loop, as printed, starts at half the length
    of the stream, and so misses the last leaf of a stream of 2^k leaves.
    """
    found: list[tuple[int, int]] = []
    before = 0
    for level in reversed(range(t.bit_length())):
        if t >> level & 1:
            found.append((before + 1, before + 2**level))
            before += 2**level
    return found


def coefficients(count: int) -> Array:
    """The first column of √A, (count,): binom(2k, k)/4^k for k = 0, …, count − 1."""
    k = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def left_row(factorisation: Factorisation, t: int) -> Array:
    """Row t of L up to the diagonal, (t,); rows are counted from 1."""
    if factorisation == "square-root":
        return coefficients(t)[::-1]
    row = np.zeros(t)
    row[[last - 1 for _, last in nodes(t)]] = 1.0
    return row


def column(factorisation: Factorisation, leaves: int) -> float:
    """The largest squared column norm of R for segments of `leaves` leaves, rounded up.

    For the tree it is the number of levels, as one interval on each level contains the first leaf.
    """
    if factorisation == "tree":
        return float(leaves.bit_length())
    return fsum(coefficients(leaves) ** 2) * _COVER


def variances(factorisation: Factorisation, leaves: int) -> Array:
    """Variance of the noise on each prefix in any one direction, for σ = 1, (leaves,)."""
    if factorisation == "tree":
        return np.array([float(t.bit_count()) for t in range(1, leaves + 1)])
    return np.cumsum(coefficients(leaves) ** 2)


def variance_of_total(factorisation: Factorisation, first: int, last: int) -> float:
    """Variance of the noise on the sum of prefixes `first`, …, `last`, in any one direction, for σ = 1."""
    total = np.zeros(last)
    for t in range(first, last + 1):
        total[:t] += left_row(factorisation, t)
    return float(total @ total)


@dataclass(frozen=True)
class PrefixSums:
    """A stream that may release every prefix, with noise correlated through a factorisation.

    Attributes:
        statistic: name of the summed statistic in the plan, which also names the stream.
        n: number of records behind the gate.
        size: length of the summed vector.
        clip: bound on the length of one record's vector.
        scale: σ, standard deviation of each entry of z.
        spacing: spacing of the grid.
        leaves: largest number of leaves in a segment.
    """

    statistic: str
    n: int
    size: int
    clip: float
    scale: float
    spacing: float
    factorisation: Factorisation
    leaves: int

    noise: Literal["gaussian"] = "gaussian"

    divisor: ClassVar[float] = 1.0
    """Number by which released values are divided; solvers divide streams themselves."""

    epsilon: ClassVar[float] = inf
    """The pure ε; normal noise has none."""

    @property
    def count(self) -> int:
        """Largest number of releases that see one record."""
        return self.leaves

    @property
    def sensitivity(self) -> float:
        """Bound s on the Euclidean distance by which one replaced record moves its leaf on the grid."""
        return clipped_sums.sensitivity(2 * self.clip, self.clip, self.size, self.spacing)

    @property
    def cost(self) -> Cost:
        """The cost of the whole run. It does not depend on the number of segments."""
        seen = column(self.factorisation, self.leaves)
        return repeated(nextafter(self.sensitivity / self.scale, inf), seen)

    @property
    def variance(self) -> float:
        """Variance of the noise on the noisiest prefix of a segment, in any one direction."""
        return self.scale**2 * float(variances(self.factorisation, self.leaves).max())

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the noisiest prefix of a segment, in any one direction."""
        return sqrt(self.variance)


def prefix_sums(
    factorisation: Factorisation, *, statistic: str, n: int, size: int, clip: float, leaves: int, mu: float
) -> PrefixSums:
    """The stream of least noise that costs at most μ²; `PrefixSums` describes the other arguments.

    Raises:
        ValueError: float64 sums cannot carry this privacy.
    """
    norm = sqrt(column(factorisation, leaves))

    def release(spacing: float) -> PrefixSums:
        scale = clipped_sums.sensitivity(2 * clip, clip, size, spacing) * norm / mu * (1 + 1e-12)
        clipped_sums.check_range(clip, scale)
        return PrefixSums(statistic, n, size, clip, scale, spacing, factorisation, leaves)

    return clipped_sums.fitted(release, _largest_noise)


def _largest_noise(stream: PrefixSums) -> float:
    """Bound on every coordinate of the noise, except with negligible probability."""
    return 16.0 * stream.deviation
