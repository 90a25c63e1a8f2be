"""Geometry alone: one file per space, found by name with `get`."""

from collections.abc import Callable, Mapping
from typing import Any

from privest.manifolds.base import Manifold
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.spd import AffineInvariantSPD
from privest.manifolds.sphere import Sphere

__all__ = ["AffineInvariantSPD", "Euclidean", "Manifold", "Sphere", "get"]


def _spd(dim: int, metric: str = "affine-invariant") -> Manifold:
    if metric != "affine-invariant":
        raise ValueError("metric of spd must be 'affine-invariant'")
    return AffineInvariantSPD(dim)


_BUILDERS: Mapping[str, Callable[..., Manifold]] = {
    "euclidean": Euclidean,
    "sphere": Sphere,
    "spd": _spd,
}


def get(name: str, **params: Any) -> Manifold:
    """The manifold called `name`.

    Names and parameters: `euclidean` (dim), `sphere` (dim: of the ambient space), `spd` (dim: rows of
    the matrices; metric: `affine-invariant`).

    Raises:
        ValueError: no such name, or parameters out of range.
        TypeError: parameters the manifold does not have.
    """
    if name not in _BUILDERS:
        raise ValueError(f"unknown manifold; known are {', '.join(sorted(_BUILDERS))}")
    return _BUILDERS[name](**params)
