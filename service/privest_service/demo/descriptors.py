"""Covariance descriptors of scikit-learn's digits, and what an owner can state of them without a look.

A descriptor (`CovarianceDescriptors`; Utpala et al. 2023, Appendix C.1) is the covariance, over the 64
pixels of one image, of eight features: x, y, intensity, |I_x|, |I_y|, |I_xx|, |I_yy| and the length of the
gradient. One image makes one matrix and nothing depends on a second image, so that replacing an image
replaces one record.

Two choices differ from the paper's:

- η is 0.01, not 1e-6. Blank and nearly dependent features leave eigenvalues of 6e-4, where the logarithm
  reads rounding to 17 grey levels: at 1e-6 an image lies up to 6.8 from the mean of its class, at 0.01
  up to 2.2, half of all images within 0.7. Noise follows the clip, the clip follows that spread.
- No orientation arctan(|I_x|/|I_y|): it is undefined on blank paper, most of a digit, and jumps from 0 to
  π/2 by one grey level there.

The public centre and radius come from pen strokes drawn by a fixed seed, rasterised in the way that
the data set documents: 32×32 bitmaps whose 4×4 blocks are counted. No digit takes part. Half of these
drawings lie within 1.5 of their Fréchet mean, nineteen in twenty within 2.2.
"""

from functools import cache
from typing import Any

import numpy as np

from privest import manifolds
from privest.arrays import Array
from privest.data.transforms import CovarianceDescriptors

SIDE = 8
LARGEST_INTENSITY = 16.0
REGULARISER = 1e-2
"""Regulariser η, in units of squared scaled features."""

_DESCRIPTORS = CovarianceDescriptors(SIDE, SIDE, largest=LARGEST_INTENSITY, regulariser=REGULARISER)

DIGITS = (0, 1)
"""The classes of the story. Their means are 1.18 apart, of 45 pairs the third widest."""

FEATURES = ("x", "y", "I", "|I_x|", "|I_y|", "|I_xx|", "|I_yy|", "|∇I|")

PUBLIC_RADIUS = 2.0
"""Radius about `public_center()` within which most drawn strokes, and the mean of any class, are expected."""

_STROKES, _SEED, _KNOTS, _PEN, _FIELD = 200, 0, 5, 2.0, 32


def covariance_descriptors(images: Array) -> Array:
    """(n, 8, 8) matrices, features in the order of `FEATURES`, of (n, 8, 8) intensities from 0 to 16."""
    return _DESCRIPTORS(images)


def digit_descriptors(digit: int) -> Array:
    """The descriptors of all images of one digit, (n, 8, 8), n between 174 and 183."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - of the demo group, not of the service

    images, labels = load_digits(return_X_y=True)
    return covariance_descriptors(images[labels == digit].reshape(-1, SIDE, SIDE))


def frechet_mean(points: Array) -> Array:
    """The mean without privacy, (8, 8), to compare with: Riemannian gradient descent with unit steps.

    Args:
        points: (n, 8, 8) matrices no wider spread than descriptors; far wider, unit steps diverge.

    Raises:
        ArithmeticError: it did not converge.
    """
    space = manifolds.get("spd", dim=points.shape[-1])
    mean = points.mean(axis=0)
    for _ in range(100):
        step = space.log_coordinates(mean, points).mean(axis=0)
        mean = space.exp_coordinates(mean, step)
        if float(np.linalg.norm(step)) < 1e-10:
            return mean
    raise ArithmeticError("the Fréchet mean did not converge")


@cache
def public_center() -> Array:
    """The Fréchet mean of the descriptors of drawn strokes, (8, 8): where to look before any look."""
    return frechet_mean(covariance_descriptors(drawn_strokes(_STROKES, _SEED)))


def schema() -> dict[str, Any]:
    """The schema that the owner declares at the upload. All of it is known before any digit is read."""
    return {
        "kind": "points",
        "manifold": {"name": "spd", "dim": len(FEATURES), "metric": "affine-invariant"},
        "center": public_center().tolist(),
        "radius": PUBLIC_RADIUS,
    }


def drawn_strokes(count: int, seed: int) -> Array:
    """Random pen strokes in the format of the digits, (count, 8, 8), from 0 to 16.

    A stroke is a Bézier curve through five uniform control points, moved and scaled to fill the 32×32
    field, drawn with a pen four pixels wide; an intensity is the number of inked pixels in a 4×4 block.
    """
    rng = np.random.default_rng(seed)
    along = np.linspace(0, 1, _FIELD + 1)[:, None]
    order = np.arange(_KNOTS)
    binomial = np.array([1, 4, 6, 4, 1])
    bernstein = binomial * along**order * (1 - along) ** order[::-1]
    middles = np.arange(_FIELD) + 0.5
    pixels = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    images = np.empty((count, SIDE, SIDE))
    for image in images:
        curve = bernstein @ rng.uniform(size=(_KNOTS, 2))
        low, high = curve.min(axis=0), curve.max(axis=0)
        curve = (curve - (low + high) / 2) / (high - low).max() * (_FIELD - 2 * _PEN) + _FIELD / 2
        inked = ((pixels - curve) ** 2).sum(axis=-1).min(axis=1) <= _PEN**2
        image[:] = inked.reshape(SIDE, _FIELD // SIDE, SIDE, _FIELD // SIDE).sum(axis=(1, 3))
    return images
