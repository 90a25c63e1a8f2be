"""Manifolds in schemas, made of what each of them declares in core."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from privest import manifolds
from privest_service.declarations import about, model, options
from privest_service.inputs import Input, like


class ManifoldInput(Input):
    """A manifold, by its name and its parameters."""

    name: str

    @model_validator(mode="after")
    def _exists(self) -> "ManifoldInput":
        manifolds.get(**self.model_dump())
        return self


def _families() -> list[type[ManifoldInput]]:
    """A model for each declaration of manifolds in core, with the names of those that share it."""
    names: dict[Any, list[str]] = {}
    for name in manifolds.MANIFOLDS:
        names.setdefault(manifolds.declaration(name), []).append(name)
    return [_family(declaration, tuple(alike)) for declaration, alike in names.items()]


def _family(declaration: Any, names: tuple[str, ...]) -> type[ManifoldInput]:
    family = declaration.__qualname__.partition(".")[0]
    told = [_in_short(name) if len(names) == 1 else f"`{name}`: {_in_short(name)}" for name in names]
    parameters = {manifolds.public(field): each for field, each in options(declaration).items()}
    content = {"name": (Literal[names], ...)} | parameters
    return model(f"{family}Space", " ".join(told), content, ManifoldInput)


def _in_short(name: str) -> str:
    """The first paragraph on a manifold."""
    build: Any = manifolds.MANIFOLDS[name]
    return about(getattr(build, "__self__", build)).partition("\n\n")[0]


if TYPE_CHECKING:
    Space = ManifoldInput
else:
    Space = Annotated[
        reduce(or_, _families()), Field(discriminator="name"), like({"name": "sphere", "dim": 3})
    ]
