"""Rows against what a few public directions see of them: a start for data too wide for a second moment."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.subspace.schedule import sketch_error
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.subspace.spherical import on_sphere
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle

PUBLIC_SEED = int.from_bytes(b"privest")
"""Seed of what is random and public: the same in every run, and unlike the seeds of tests."""


@dataclass(frozen=True)
class Sketch:
    """Σ x·(Bᵀx)ᵀ for a frame B of few columns: one noisy power step (Hardt and Price 2014).

    Attributes:
        dim: D, length of a row.
        columns: k, of the frame.
    """

    dim: int
    columns: int

    description = "the sketch"

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×k matrix, row by row."""
        return self.dim * self.columns

    def diameter(self, clip: float) -> float:
        """2c√(1 − c²) if c² ≤ 1/3, else √(2c² + ½(1 − c²)²), where c is the clip, at most 1.

        Of two matrices a·xuᵀ and b·yvᵀ the frame sees s ≥ a of x along u, and r ≥ b of y along v, units. They
        are a² + b² − 2ab(x·y)(u·v) apart in square. With t = |u·v| and what the frame does not see opposite,
        −(x·y)(u·v) ≤ t√(1 − s²)√(1 − r²) − t²sr, most where s = a and r = b. With S = a² + b² and 4a²b² ≤ S²
        that leaves at most S + tS(1 − S/2) − t²S²/2. It is largest at t = min(1, 1/S − 1/2), where it grows
        with S: at S = 2c². Two columns and a dimension outside the frame suffice to reach it.
        """
        c2 = min(clip, 1.0) ** 2
        return sqrt(4.0 * c2 * (1.0 - c2) if 3.0 * c2 <= 1.0 else 2.0 * c2 + 0.5 * (1.0 - c2) ** 2)

    def clipped_sum(self, point: Frame, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of matrices of norm at most `clip`; see `Statistic`.

        A public frame sees about √(k/D) of a row, so that a clip of that order costs little signal.
        """
        assert point.basis is not None  # noqa: S101 - a sketch without a frame is a second moment
        x = on_sphere(rows, point.center)
        seen = x @ point.basis
        weight = clip / np.maximum(lengths(seen), clip)
        return (x.T @ (weight[:, None] * seen)).ravel()


def sketch_columns(dim: int, rank: int) -> int:
    """Columns of a sketch: enough for every direction of a subspace to be seen by some."""
    return min(dim, 4 * rank + 8)


def sketch_release(budget: PrivacyBudget, share: float, dim: int, rank: int) -> tuple[NoisySum, float]:
    """The release of a sketch, and the square of the distance that its leading subspace leaves."""
    columns = sketch_columns(dim, rank)
    # Half more than what a public frame sees of a row without a direction.
    clip = min(1.0, 1.5 * sqrt(columns / dim))
    release = budget.release(Sketch(dim, columns), "sketch", clip, share=share)
    return release, sketch_error(release.deviation, dim, rank, columns)


def noisy_span(gate: Oracle, center: Array | None, dim: int, rank: int) -> Array:
    """(dim, columns) orthonormal columns that span a noisy sketch, the leading direction first."""
    columns = sketch_columns(dim, rank)
    public = np.linalg.qr(np.random.default_rng(PUBLIC_SEED).standard_normal((dim, columns)))[0]
    seen = gate.mean(Frame(public, center), "sketch").reshape(dim, columns)
    return np.linalg.svd(seen, full_matrices=False)[0]
