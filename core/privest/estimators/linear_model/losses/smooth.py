"""The derivatives and bounds of a loss, convex or not, that solvers need to leave saddle points."""

from typing import Protocol

from privest.arrays import Array


class SmoothLoss(Protocol):
    """f(x; z) of a vector x and a record z, twice differentiable in x, with bounds for every record.

    The bounds follow from public facts. They steer steps and batches, and clips enforce what privacy needs of
    them: no guarantee rests on a record's keeping them.
    """

    @property
    def size(self) -> int:
        """d, length of x."""
        ...

    @property
    def gradient_bound(self) -> float:
        """G: |∇f| is at most this."""
        ...

    @property
    def gradient_lipschitz(self) -> float:
        """M: |∇f(x) − ∇f(y)| is at most M|x − y|, and no eigenvalue of the Hessian larger."""
        ...

    @property
    def hessian_lipschitz(self) -> float:
        """ρ: the Hessians at x and y are at most ρ|x − y| apart, in operator norm."""
        ...

    def gradients(self, point: Array, rows: Array) -> Array:
        """∇f at `point` (d,) for each of (n, ...) records: (n, d). Total: a record that overflows may give
        what is not finite, which clipping counts as zero."""
        ...

    def hessians(self, point: Array, rows: Array) -> Array:
        """The Hessians of f there: (n, d, d), symmetric."""
        ...
