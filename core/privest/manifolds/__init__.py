"""Riemannian manifolds, one file each. `get` builds one by name. A new manifold adds one line here."""

from collections.abc import Callable, Mapping
from inspect import get_annotations, signature

from privest.manifolds.base import Embedded, Manifold, public
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.hyperbolic import Lorentz, PoincareBall
from privest.manifolds.spd import SPD
from privest.manifolds.sphere import Sphere
from privest.manifolds.stiefel_grassmann import Grassmann, Oblique, Stiefel
from privest.options import Option, declared

__all__ = ["MANIFOLDS", "Embedded", "Manifold", "compact", "declaration", "get", "parameters", "public"]

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
"""Each manifold's constructor by name: its class, or a function whose parameters are the class's fields."""


def declaration(name: str) -> Callable[..., object]:
    """The class or function whose annotations declare the parameters of the manifold called `name`."""
    build = MANIFOLDS[name]
    return next(filter(get_annotations, build.__mro__)) if isinstance(build, type) else build


def parameters(name: str) -> Mapping[str, tuple[object, Option]]:
    """The public parameters of the manifold called `name`: the type and the `Option` of each."""
    told = declared(declaration(name)).items()
    return {public(field): (hint, doc) for field, (hint, doc) in told if isinstance(doc, Option)}


def compact() -> list[str]:
    """The names of the manifolds that are `Embedded`."""
    return [
        name for name, build in MANIFOLDS.items() if isinstance(build, type) and issubclass(build, Embedded)
    ]


def get(name: str, **params: object) -> Manifold:
    """The manifold called `name`.

    Args:
        name: a key of `MANIFOLDS`.
        params: its parameters by their public names, as `parameters` lists them, such as `dim`.

    Raises:
        ValueError: there is no such manifold, or a parameter is out of range.
        TypeError: a parameter is unknown or missing.
    """
    if name not in MANIFOLDS:
        raise ValueError(f"unknown manifold; known are {', '.join(sorted(MANIFOLDS))}")
    known = parameters(name)
    if further := params.keys() - known:
        raise TypeError(f"{name} has no parameter {', '.join(sorted(further))}")
    needed = signature(MANIFOLDS[name]).parameters.items()
    if missing := {public(field) for field, each in needed if each.default is each.empty} - params.keys():
        raise TypeError(f"{name} needs {', '.join(sorted(missing))}")
    for param, value in params.items():
        known[param][1].check(f"{param} of {name}", value)
    fields = {public(field): field for field in declared(declaration(name))}
    return MANIFOLDS[name](**{fields[param]: value for param, value in params.items()})
