"""Transforms of raw records into points. Each point depends on one record, so privacy carries over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from privest.arrays import Array, transposed
from privest.data.float_limits import MetadataFault, scale_faults

_FIRST = np.outer([1, 2, 1], [1, 0, -1]) / 4
"""Sobel's kernel of a first derivative. Its positive entries add up to 1, as those of `_SECOND` do. So no
derivative exceeds the largest intensity."""

_SECOND = np.outer([1, 4, 6, 4, 1], [1, 0, -2, 0, 1]) / 32
"""Kernel of a second derivative."""

_LARGEST_GRADIENT = sqrt(5) / 2
"""Largest length of (I_x, I_y), as the positive entries of cos θ·K + sin θ·Kᵀ add up to cos θ + ½ sin θ."""


class Transform(Protocol):
    """A function of one raw record, applied to each of many."""

    @property
    def raw(self) -> tuple[int, ...]:
        """Shape of a raw record."""
        ...

    @property
    def rules(self) -> Sequence[str]:
        """Conditions that a raw record must meet, in the order in which `broken_rule` checks them."""
        ...

    @property
    def faults(self) -> Iterator[MetadataFault]:
        """Declared scales that float64 cannot work with; by default none."""
        yield from ()

    def broken_rule(self, rows: Array) -> Array:
        """The first rule that each of (n, *raw) rows breaks, counted from 1; 0 if none. (n,) integers."""
        ...

    def __call__(self, rows: Array) -> Array:
        """The transformed records, (n, *record), of (n, *raw) rows."""
        ...


@dataclass(frozen=True)
class CovarianceDescriptors(Transform):
    """Covariance of features over the pixels of one image (Utpala et al. 2023, Appendix C.1).

    The features are x, y, the intensity of each channel, and |I_x|, |I_y|, |I_xx|, |I_yy| and the length of
    the gradient of the mean intensity I over channels.

    There are two departures from the paper. Every feature is divided by its largest possible value, so that
    the regulariser is relative. The orientation arctan(|I_x|/|I_y|) is optional, as it is undefined on
    uniform areas, where one grey level moves it from 0 to π/2.

    Attributes:
        height: height in pixels.
        width: width in pixels.
        channels: 1 for (height, width) images, otherwise images are (height, width, channels).
        largest: largest intensity; the least is 0.
        regulariser: η, added to every eigenvalue, in units of squared scaled features.
        orientation: whether the orientation is a feature. It is 0 if there is no gradient.
    """

    height: int
    width: int
    channels: int = 1
    largest: float = 255.0
    regulariser: float = 1e-2
    orientation: bool = False

    @property
    def raw(self) -> tuple[int, ...]:
        return (self.height, self.width, *([self.channels] if self.channels > 1 else []))

    @property
    def dim(self) -> int:
        """Number of rows of a descriptor."""
        return 7 + self.channels + self.orientation

    @property
    def rules(self) -> Sequence[str]:
        return (f"intensities from 0 to {self.largest:g}",)

    @property
    def faults(self) -> Iterator[MetadataFault]:
        return scale_faults("largest", self.largest)

    def broken_rule(self, rows: Array) -> Array:
        allowed = (rows >= 0) & (rows <= self.largest)
        return np.where(allowed.reshape(len(rows), -1).all(axis=1), 0, 1)

    def __call__(self, rows: Array) -> Array:
        from scipy.ndimage import correlate  # noqa: PLC0415 - for whoever has images to transform

        scaled = rows.reshape(-1, self.height, self.width, self.channels) / self.largest
        grey = scaled.mean(axis=-1)

        def derivative(kernel: Array) -> Array:
            # The image is extended by its edge values, so that its border is no contour.
            return np.abs(np.asarray(correlate(grey, kernel[None], mode="nearest"), dtype=np.float64))

        i_x, i_y = derivative(_FIRST), derivative(_FIRST.T)
        features: list[Array] = [
            np.broadcast_to(np.linspace(0, 1, self.width), grey.shape),
            np.broadcast_to(np.linspace(0, 1, self.height)[:, None], grey.shape),
            *np.moveaxis(scaled, -1, 0),
            i_x,
            i_y,
            derivative(_SECOND),
            derivative(_SECOND.T),
            np.hypot(i_x, i_y) / _LARGEST_GRADIENT,
        ]
        if self.orientation:
            features.append(np.arctan2(i_x, i_y) / (np.pi / 2))
        stacked = np.stack(features, axis=-1).reshape(len(rows), self.height * self.width, self.dim)
        return _covariances(stacked, self.regulariser)


@dataclass(frozen=True)
class WindowCovariances(Transform):
    """Covariance of the channels of a time series over one (length, channels) window.

    Attributes:
        length: number of time steps in a window.
        channels: number of channels.
        scale: public number by which every channel is divided, in the units of the measurements.
        regulariser: η, added to every eigenvalue, in units of the squared scale.
    """

    length: int
    channels: int
    scale: float = 1.0
    regulariser: float = 1e-2

    @property
    def raw(self) -> tuple[int, ...]:
        return (self.length, self.channels)

    @property
    def dim(self) -> int:
        """Number of rows of a covariance matrix."""
        return self.channels

    @property
    def rules(self) -> Sequence[str]:
        return ("finite, and at most a million times the scale",)

    @property
    def faults(self) -> Iterator[MetadataFault]:
        return scale_faults("scale", self.scale)

    def broken_rule(self, rows: Array) -> Array:
        return np.where((np.abs(rows) <= 1e6 * self.scale).all(axis=(1, 2)), 0, 1)

    def __call__(self, rows: Array) -> Array:
        return _covariances(rows / self.scale, self.regulariser)


def _covariances(samples: Array, regulariser: float) -> Array:
    """The regularised covariances, (n, dim, dim), of (n, samples, dim), divided by the number of samples."""
    centred = samples - samples.mean(axis=1, keepdims=True)
    return transposed(centred) @ centred / samples.shape[1] + regulariser * np.eye(samples.shape[2])


@dataclass(frozen=True)
class Indicators(Transform):
    """Replaces each column of category indices in a table by one 0/1 indicator per category.

    Attributes:
        categories: number of categories of each column, or 0 for a column of numbers.
    """

    categories: tuple[int, ...]

    @property
    def raw(self) -> tuple[int, ...]:
        return (len(self.categories),)

    @property
    def rules(self) -> Sequence[str]:
        return ("one of its column's categories",)

    def broken_rule(self, rows: Array) -> Array:
        counts = np.array(self.categories)
        coded = rows[:, counts > 0]
        known = (coded >= 0) & (coded < counts[counts > 0])
        return np.where(known.all(axis=1), 0, 1)

    def __call__(self, rows: Array) -> Array:
        parts = [
            (rows[:, place, None] == np.arange(count)).astype(np.float64) if count else rows[:, place, None]
            for place, count in enumerate(self.categories)
        ]
        return np.concatenate(parts, axis=1)
