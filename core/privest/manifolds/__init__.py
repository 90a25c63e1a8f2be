"""Geometry alone: one file per space, found by name with `get`. A new manifold is one line here."""

from collections.abc import Callable, Mapping

from privest.manifolds.base import Embedded, Manifold
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.grassmann import Grassmann
from privest.manifolds.lorentz import Lorentz
from privest.manifolds.oblique import Oblique
from privest.manifolds.poincare_ball import PoincareBall
from privest.manifolds.spd import SPD
from privest.manifolds.sphere import Sphere
from privest.manifolds.stiefel import Stiefel
from privest.options import Doc, Option, declared

__all__ = ["MANIFOLDS", "Embedded", "Manifold", "compact", "declaration", "get", "parameters"]

MANIFOLDS: dict[str, Callable[..., Manifold]] = {
    Euclidean.name: Euclidean,
    Sphere.name: Sphere,
    SPD.name: SPD.of,
    PoincareBall.name: PoincareBall,
    Lorentz.name: Lorentz,
    Stiefel.name: Stiefel,
    Grassmann.name: Grassmann,
    Oblique.name: Oblique,
}
"""What builds each manifold. Its parameters are declared where it is defined, as `Option`s of their types."""


def declaration(name: str) -> Callable[..., object]:
    """The function whose parameters are those of the manifold called `name`: all of a family share one."""
    build = MANIFOLDS[name]
    return build.__init__ if isinstance(build, type) else build


def parameters(name: str) -> Mapping[str, tuple[object, Doc]]:
    """The parameters of the manifold called `name`: their types, and what is declared of them."""
    return declared(declaration(name))


def compact() -> list[str]:
    """The names of the compact submanifolds of spaces of arrays."""
    return [
        name for name, build in MANIFOLDS.items() if isinstance(build, type) and issubclass(build, Embedded)
    ]


def get(name: str, **params: object) -> Manifold:
    """The manifold called `name`.

    Args:
        name: one of `MANIFOLDS`.
        params: as its class, or `SPD.of`, declares them: `dim`, `rank` of matrices, `metric` of spd.

    Raises:
        ValueError: no such name, or parameters out of range.
        TypeError: parameters the manifold does not have.
    """
    if name not in MANIFOLDS:
        raise ValueError(f"unknown manifold; known are {', '.join(sorted(MANIFOLDS))}")
    known = parameters(name)
    for param, value in params.items():
        if param in known and isinstance(doc := known[param][1], Option):
            doc.check(f"{param} of {name}", value)
    return MANIFOLDS[name](**params)
