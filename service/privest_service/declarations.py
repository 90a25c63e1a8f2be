"""Models of the interface, made of what core declares of dataclasses and functions by `privest.options`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, reduce
from inspect import Parameter, getdoc, signature
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, create_model

from privest.arrays import Array, NestedList
from privest.options import Doc, Option, declared, undressed
from privest_service.inputs import EXACT, ColumnName, Input, Point


def model(
    name: str, about: str, content: Mapping[str, Any], base: type[Any] = BaseModel, module: str = __name__
) -> type[Any]:
    """A model called `name` that adds fields to another one."""
    found: Any = create_model(name, __base__=base, __doc__=about, __module__=module, **content)
    return found


def about(owner: Any) -> str:
    """The docstring of a class, without its list of attributes."""
    return (getdoc(owner) or "").partition("Attributes:")[0].strip()


def options(owner: Any) -> dict[str, Any]:
    """The parameters of a function, or the fields of a dataclass, as fields of a request."""
    types = declared(owner)
    found: dict[str, Any] = {}
    for name, parameter in signature(owner).parameters.items():
        if name in types:
            hint, doc = types[name]
            default = ... if parameter.default is Parameter.empty else parameter.default
            found[name] = (_dressed(_input(hint, doc), doc, default), default)
    return found


@cache
def view(owner: type[Any], name: str = "") -> type[BaseModel]:
    """The model of a dataclass in an answer, by default called after it."""
    return model(name or f"{owner.__name__}View", about(owner), content(owner))


def content(owner: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass as fields of an answer."""
    types = declared(owner)
    found: dict[str, Any] = {}
    for field in fields(owner):
        hint, doc = types[field.name]
        default = ... if field.default is MISSING else field.default
        found[field.name] = (_dressed(_output(hint, doc.axes), doc, default), default)
    return found


def shown(owner: type[Any], name: str) -> Any:
    """The type of a dataclass's field or property in an answer, with its description."""
    found = vars(owner).get(name)
    if isinstance(found, property):
        hint, doc = undressed(get_type_hints(found.fget, include_extras=True)["return"])
    else:
        hint, doc = declared(owner)[name]
    return _dressed(_output(hint, doc.axes), doc)


def _dressed(hint: Any, doc: Doc, default: Any = None) -> Any:
    """A type with its description, left out of JSON where that is declared and it has its default."""
    about: dict[str, Any] = {"description": doc.description} if doc.description else {}
    if doc.omit_default:
        about["exclude_if"] = _is(default)
    return Annotated[hint, Field(**about)] if about else hint


def _is(default: Any) -> Callable[[Any], bool]:
    return lambda value: value == default


def _input(hint: Any, doc: Doc) -> Any:
    """The type of an option in JSON: whole numbers are exact there, and nested lists hold numbers alone."""
    if get_origin(hint) in (Union, UnionType):
        return _union(_input(part, doc) for part in get_args(hint))
    if hint == NestedList:
        return Point
    if get_origin(hint) is tuple:
        (each, *_) = get_args(hint)
        lengths: dict[str, Any] = (
            {"min_length": doc.ge, "max_length": doc.le} if isinstance(doc, Option) else {}
        )
        return Annotated[list[_part(each)], Field(**lengths)]
    if hint not in (int, float) or not isinstance(doc, Option):
        return hint
    bounds = {"gt": doc.gt, "ge": doc.ge, "le": EXACT if hint is int and doc.le is None else doc.le}
    return Annotated[hint, Field(**{name: bound for name, bound in bounds.items() if bound is not None})]


def _part(hint: Any) -> Any:
    """The type of an option in a list: options of their own, or a name."""
    if is_dataclass(hint):
        return _inner(cast("type[Any]", hint))
    return ColumnName if hint is str else hint


def example_of_list(hint: Any) -> list[dict[str, Any]]:
    """A list of options, as an example: with the defaults, and with the first choice that is among a few."""
    (owner, *_) = get_args(hint)
    few = {name: get_args(part) for name, (part, _) in declared(owner).items() for part in _literals(part)}
    name = next(iter(few))
    return [{}, {name: few[name][0]}]


def _literals(hint: Any) -> list[Any]:
    if get_origin(hint) is Literal:
        return [hint]
    return [each for part in get_args(hint) for each in _literals(part)]


@cache
def _inner(owner: type[Any]) -> type[BaseModel]:
    """The model of options within a request."""
    return model(owner.__name__, about(owner), options(owner), Input)


def _output(hint: Any, axes: tuple[int, ...] = ()) -> Any:
    """The type of a number, an array or a dataclass in an answer as JSON has it."""
    if get_origin(hint) in (Union, UnionType):
        return _union(_output(part, axes) for part in get_args(hint))
    if hint == Array:
        return _union(map(_nested, axes)) if axes else list[Any]
    if get_origin(hint) is tuple:
        return list[_output(get_args(hint)[0])]
    return view(hint) if isinstance(hint, type) and is_dataclass(hint) else hint


def _nested(axes: int) -> Any:
    """Numbers in lists, in lists …, so many deep."""
    return list[_nested(axes - 1)] if axes else float


def _union(parts: Iterable[Any]) -> Any:
    return reduce(or_, parts)
