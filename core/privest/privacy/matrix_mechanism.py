"""Private prefix sums of streams: two factorisations of the noise, what they cost, and what a gate adds up.

A *stream* is a sum that grows by *leaves*. A leaf is a clipped sum over records that no leaf of the run has
seen. A *segment* is a sum that began anew. Which records a leaf sees, how many, at what point and when a
segment begins may all depend on what was released before, and on nothing else of the records.

*Certificate.* Let A be the lower triangular matrix of ones, and A = LR with L and R lower triangular. The
prefix sums Ax of the leaves x of a segment are released as Ax + Lz, z independent normal vectors of standard
deviation σ: a post-processing, row by row, of y = Rx + z. Fix the order in which the gate hands out records,
which depends on none of them, and a replaced record's place in it. Given the releases so far, the two worlds
agree on the next leaf's records and point. So they agree on every leaf but one, and that one, number l of its
segment, differs by a vector of length at most s. Then y_t is a normal vector whose mean differs by |R_tl|·s.
Whatever the history was, these μ² add up to at most s²/σ² times the largest squared column norm of R, over
all segments together: the other segments' leaves are of other records. Fully adaptive composition of
Gaussian differential privacy (Smith and Thakurta 2022) makes that the μ² of the run for that order, and so,
as the order is the same in both worlds, of the gate. A record enters one leaf of one stream: of several
streams of one gate the costliest counts, not their sum.
"""

from dataclasses import dataclass
from math import fsum, inf, log2, nextafter, sqrt
from typing import Literal

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.privacy import grid
from privest.privacy.cost import Cost

Factorisation = Literal["tree", "square-root"]
"""`tree`: z_t is the noise of the dyadic node that ends at t, and prefix t carries that of its nodes (Liu
and Talwar 2025, Algorithm 1). `square-root`: L = R = √A, with coefficients binom(2k, k)/4^k (Fichtenberger,
Henzinger and Upadhyay 2023), which no other factorisation betters by more than a constant term."""

_COVER = 1 + 1e-9
"""Factor on a column norm, for the rounding of L's entries and of its products with the noise."""

_REACH = 16.0
"""Standard deviations that no coordinate of normal noise exceeds but for a negligible probability."""

_UNIT = 2.0**-53


def nodes(t: int) -> list[tuple[int, int]]:
    """NODE(t): the dyadic intervals (first, last) that 1, …, t falls into, the longest first.

    The printed loop begins at half the length of the stream. In a stream of 2^k leaves that leaves out the
    last one, for which no other node is in T either.
    """
    found: list[tuple[int, int]] = []
    before = 0
    for level in reversed(range(t.bit_length())):
        if t >> level & 1:
            found.append((before + 1, before + 2**level))
            before += 2**level
    return found


def coefficients(count: int) -> Array:
    """binom(2k, k)/4^k for k = 0, …, count − 1: the first column of √A."""
    k = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def left_row(factorisation: Factorisation, t: int) -> Array:
    """Row t of L, from its first entry to the diagonal: (t,)."""
    if factorisation == "square-root":
        return coefficients(t)[::-1]
    row = np.zeros(t)
    row[[last - 1 for _, last in nodes(t)]] = 1.0
    return row


def column(factorisation: Factorisation, leaves: int) -> float:
    """The largest squared column norm of R in segments of so many leaves, rounded up.

    Of the tree: nodes that contain the first leaf and end within the segment, one on every level.
    """
    if factorisation == "tree":
        return float(leaves.bit_length())
    return fsum(coefficients(leaves) ** 2) * _COVER


def variances(factorisation: Factorisation, leaves: int) -> Array:
    """Variance of the noise on prefixes 1, …, `leaves` in any one direction, for σ = 1: of rows of L."""
    if factorisation == "tree":
        return np.array([float(t.bit_count()) for t in range(1, leaves + 1)])
    return np.cumsum(coefficients(leaves) ** 2)


def variance_of_total(factorisation: Factorisation, first: int, last: int) -> float:
    """Variance of the noise on prefixes `first`, …, `last` all added up, in any one direction, for σ = 1."""
    total = np.zeros(last)
    for t in range(first, last + 1):
        total[:t] += left_row(factorisation, t)
    return float(total @ total)


class _Stream:
    """What is the same of all streams."""

    divisor = 1.0
    """Leaves are weighed already."""
    epsilon = inf
    """Normal noise has no pure ε."""


@dataclass(frozen=True)
class PrefixSums(_Stream):
    """A stream whose every prefix may be released, with noise correlated through a factorisation.

    Attributes:
        statistic: what leaves are sums of; the name of the stream as well.
        n: records of the gate, each in one leaf at most.
        size: of a vector.
        clip: C, bound on the length of what a record adds to a leaf.
        scale: σ, standard deviation of each entry of z.
        spacing: of the grid.
        factorisation: of the noise.
        leaves: of a segment, at most.
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

    @property
    def count(self) -> int:
        """Answers that see one record, at most."""
        return self.leaves

    @property
    def sensitivity(self) -> float:
        """s: Euclidean length by which one replaced record moves the integer sum of its leaf."""
        return grid.sensitivity(2 * self.clip, self.clip, self.size, self.spacing)

    @property
    def cost(self) -> Cost:
        """Cost of the whole run, however many segments and leaves it has."""
        mu = nextafter(self.sensitivity / self.scale, inf)
        return Cost(nextafter(column(self.factorisation, self.leaves) * nextafter(mu * mu, inf), inf))

    @property
    def variance(self) -> float:
        """Variance of the noise on the noisiest prefix of a segment, in any one direction."""
        return self.scale**2 * float(variances(self.factorisation, self.leaves).max())

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise, the root of `variance`."""
        return sqrt(self.variance)


@dataclass(frozen=True)
class PrefixProducts(_Stream):
    """A stream of symmetric matrices H that stay in the gate: released are products Hu, |u| <= 1, with noise.

    Attributes:
        statistic: what leaves are sums of; the name of the stream as well.
        n: records of the gate, each in one leaf at most.
        rows: of H; leaves are in the coordinates of `SymmetricCoordinates`.
        clip: C, bound on the Frobenius norm of what a record adds to a leaf.
        scale: σ, standard deviation of each entry of the noise on a product.
        spacing: of the grid, of leaves and of products.
        count: products in a segment, at most: all of them see a record of its first leaf.
    """

    statistic: str
    n: int
    rows: int
    clip: float
    scale: float
    spacing: float
    count: int

    noise: Literal["gaussian"] = "gaussian"

    @property
    def size(self) -> int:
        """Number of coordinates of a leaf."""
        return SymmetricCoordinates(self.rows).size

    @property
    def sensitivity(self) -> float:
        """Euclidean length by which one replaced record moves a product on the grid.

        Operator norms are below Frobenius norms. A product is off by (d + 8)·u·|H| in float64, where no
        sum of leaves is longer than nC, and by half a step in each of its entries: in either world.
        """
        moved = grid.sensitivity(2 * self.clip, self.clip, self.size, self.spacing)
        float_error = (self.rows + 8) * _UNIT * self.n * self.clip
        return (moved + 2 * float_error + self.spacing * sqrt(self.rows)) * (1 + 1e-12)

    @property
    def cost(self) -> Cost:
        """Cost of the whole run: a record is in the sums of one segment alone."""
        mu = nextafter(self.sensitivity / self.scale, inf)
        return Cost(nextafter(self.count * nextafter(mu * mu, inf), inf))

    @property
    def variance(self) -> float:
        """Variance of the noise on a product, in any one direction."""
        return self.scale**2

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise, the root of `variance`."""
        return self.scale


Stream = PrefixSums | PrefixProducts


def prefix_sums(
    factorisation: Factorisation, *, statistic: str, n: int, size: int, clip: float, leaves: int, mu: float
) -> PrefixSums:
    """The stream of least noise that costs at most μ².

    Raises:
        ValueError: float64 cannot carry this privacy.
    """
    norm = sqrt(column(factorisation, leaves))
    spacing = 0.0
    while True:
        moved = grid.sensitivity(2 * clip, clip, size, spacing)
        scale = moved * norm / mu * (1 + 1e-12)
        found = PrefixSums(statistic, n, size, clip, scale, spacing, factorisation, leaves)
        needed = _spacing_for(found)
        if needed <= spacing:
            return found
        spacing = needed


def prefix_products(
    *, statistic: str, n: int, rows: int, clip: float, count: int, mu: float
) -> PrefixProducts:
    """The products of least noise that cost at most μ², all `count` of a segment together.

    Raises:
        ValueError: float64 cannot carry this privacy.
    """
    spacing = 0.0
    while True:
        found = PrefixProducts(statistic, n, rows, clip, 1.0, spacing, count)
        scale = found.sensitivity * sqrt(count) / mu * (1 + 1e-12)
        found = PrefixProducts(statistic, n, rows, clip, scale, spacing, count)
        needed = _spacing_for(found)
        if needed <= spacing:
            return found
        spacing = needed


def _spacing_for(stream: Stream) -> float:
    """The grid of a stream, every sum of which is at most nC long.

    Raises:
        ValueError: there is none.
    """
    if not (1e-100 <= stream.clip <= 1e100 and 1e-150 < stream.scale < 1e150):
        raise ValueError("clip and privacy are too far apart for float64")
    needed = grid.spacing_for(stream.scale, stream.n * stream.clip, _REACH * stream.deviation)
    if log2(needed / stream.scale) > 0:
        raise ValueError("epsilon is too large for exact sums over this many records")
    return needed
