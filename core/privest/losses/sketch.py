"""Rows against what a few public directions see of them: a start for data too wide for a second moment."""

from dataclasses import dataclass

import numpy as np

from privest.arrays import Array, lengths
from privest.losses.second_moment import Frame
from privest.losses.spherical import on_sphere


@dataclass(frozen=True)
class Sketch:
    """Σ x·(Bᵀx)ᵀ for a frame B of few columns: one noisy power step (Hardt and Price 2014).

    Attributes:
        dim: D, length of a row.
        columns: k, of the frame.
    """

    dim: int
    columns: int

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×k matrix, row by row."""
        return self.dim * self.columns

    def diameter(self, clip: float) -> float:
        """Two matrices may be opposite, but for what they have in the frame."""
        return 2.0 * clip

    def clipped_sum(self, point: Frame, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of matrices of norm at most `clip`; see `Statistic`.

        A public frame sees about √(k/D) of a row, so that a clip of that order costs little signal.
        """
        assert point.basis is not None  # noqa: S101 - a sketch without a frame is a second moment
        x = on_sphere(rows, point.center)
        seen = x @ point.basis
        weight = clip / np.maximum(lengths(seen), clip)
        return (x.T @ (weight[:, None] * seen)).ravel()
