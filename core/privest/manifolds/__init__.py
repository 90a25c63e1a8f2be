"""Geometry alone: one file per space, found by name with `get`."""

from collections.abc import Callable, Mapping

from privest.manifolds.base import Embedded, Manifold
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.grassmann import Grassmann
from privest.manifolds.lorentz import Lorentz
from privest.manifolds.oblique import Oblique
from privest.manifolds.poincare_ball import PoincareBall
from privest.manifolds.spd import METRICS
from privest.manifolds.sphere import Sphere
from privest.manifolds.stiefel import Stiefel

__all__ = ["Embedded", "Manifold", "get"]


def _spd(dim: int, metric: str = "affine-invariant") -> Manifold:
    if metric not in METRICS:
        raise ValueError(f"metric of spd must be one of {', '.join(METRICS)}")
    return METRICS[metric](dim)


_BUILDERS: Mapping[str, Callable[..., Manifold]] = {
    "euclidean": Euclidean,
    "sphere": Sphere,
    "spd": _spd,
    "poincare-ball": PoincareBall,
    "lorentz": Lorentz,
    "stiefel": Stiefel,
    "grassmann": Grassmann,
    "oblique": Oblique,
}


def get(name: str, **params: object) -> Manifold:
    """The manifold called `name`.

    Names and parameters: `euclidean` (dim), `sphere` (dim: of the ambient space), `spd` (dim: rows of
    the matrices; metric: `affine-invariant`, `log-euclidean` or `bures-wasserstein`), `poincare-ball`
    (dim), `lorentz` (dim; points have dim + 1 entries, time first), `stiefel` and `grassmann` (dim: of
    the ambient space; rank: columns of a frame), `oblique` (dim: of a column; rank: how many).

    Raises:
        ValueError: no such name, or parameters out of range.
        TypeError: parameters the manifold does not have.
    """
    if name not in _BUILDERS:
        raise ValueError(f"unknown manifold; known are {', '.join(sorted(_BUILDERS))}")
    return _BUILDERS[name](**params)
