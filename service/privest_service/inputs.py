"""Shared types and checks of all that callers send."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from sys import float_info
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from privest_service.printable import is_printable
from privest_service.problems import Fault, Invalid, NotFound
from privest_service.validation import MOST_FAULTS, NO_JSON, ONE_LINE, faults_of, unknown

T = TypeVar("T")

_DEEPEST = 8

ColumnName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=ONE_LINE),
]
"""A name in a schema; `require_printable` checks new schemas, as older ones may have odd characters."""

UNPRINTABLE = "must be of one line, without characters that nobody sees"


def _printable(text: str) -> str:
    if not is_printable(text):
        raise ValueError(UNPRINTABLE)
    return text


Printable = AfterValidator(_printable)
"""Refuses a text that cannot be shown as it is."""

Name = Annotated[ColumnName, Printable]
"""A name that a caller gives to something."""

QuestionTag = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100), Printable
]
"""A caller's own words on a question."""

Id = Annotated[str, StringConstraints(max_length=40, pattern=r"^[!-~]*$")]


def _written_out(text: Any) -> Any:
    """Return a timestamp as ISO 8601 has it; a date alone is the beginning of that day in UTC.

    Numbers are refused: the interface says nothing of seconds since 1970.
    """
    if isinstance(text, str):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            return f"{text}T00:00:00Z"
        if not re.match(r"\d{4}-", text):
            raise ValueError("must be a date, or a date with a time and a zone, such as 2026-11-24T12:00:00Z")
    return text


Moment = Annotated[AwareDatetime, BeforeValidator(_written_out)]
"""A timestamp in a query string."""

EXACT = 2**53 - 1
"""Largest whole number that JSON holds exactly. Keys are bound to the canonical form of JSON."""


def _numbers(given: Any, depth: int = 0) -> Any:
    """Nested lists of finite numbers, with every number as a float."""
    if isinstance(given, list) and depth < _DEEPEST:
        return [_numbers(part, depth + 1) for part in cast("list[Any]", given)]
    if isinstance(given, int | float) and not isinstance(given, bool) and abs(given) <= float_info.max:
        return float(given)
    raise ValueError("must be nested lists of finite numbers")


Point = Annotated[list[Any], AfterValidator(_numbers)]
"""A point of a manifold as nested lists: floats alone, so that equal points have one canonical form."""


_MOST_FIELDS = 100
"""Most fields of one object in a request; no object here has as many."""


def like(example: Any, *others: type) -> BeforeValidator:
    """Refuse what is no object by showing one that would do.

    The other types are taken besides objects.
    """

    def seen(given: Any) -> Any:
        if given is not None and not isinstance(given, (dict, BaseModel, *others)):
            raise ValueError(f"must look like {json.dumps(example)}")
        return given

    return BeforeValidator(seen)


def limit_size(given: Any, most: int = _MOST_FIELDS) -> Any:
    """Return what was given, unless it has too many parts: to report on each of them would take long.

    Raises:
        ValueError: it has.
    """
    if isinstance(given, dict | list) and len(cast("list[Any]", given)) > most:
        raise ValueError(f"must have at most {most} parts")
    return given


class Input(BaseModel):
    """Base of request bodies: unknown fields, infinities, NaN and numbers in strings are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        return limit_size(given)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose fields is named once: of two, others might read the other one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise json.JSONDecodeError("a field is named twice", "", 0)
    return found


def from_json(text: str | bytes) -> Any:
    """Read a JSON document. Raises ValueError: it is none, or names a field twice."""
    return json.loads(text, object_pairs_hook=_once)


def parsed(text: str | bytes, location: str | None = None) -> Any:
    """Read a JSON document within a request.

    The location is the field that holds the document.

    Raises:
        Invalid: it is none.
    """
    try:
        return from_json(text)
    except (ValueError, RecursionError):
        raise Invalid(faults=[Fault(location=location, rule=NO_JSON)]) from None


def checked(validate: Callable[[Any], T], given: Any) -> T:
    """A part of a request that an endpoint reads itself, by what validates it.

    Raises:
        Invalid: it breaks a rule.
    """
    try:
        return validate(given)
    except ValidationError as error:
        raise Invalid(faults=faults_of(error.errors(), given)) from None


def names_of(fields: Mapping[str, FieldInfo]) -> dict[str, bool]:
    """Return the names by which fields are sent, each with whether it may be sent several times."""

    def repeats(hint: Any) -> bool:
        return any(get_origin(part) is list for part in (hint, *get_args(hint)))

    return {field.alias or name: repeats(field.annotation) for name, field in fields.items()}


def require_known(sent: Iterable[str], known: Mapping[str, bool], what: str) -> None:
    """Refuse names that no field has: to ignore one would be to do something else than was asked.

    Args:
        sent: the names, each as often as it was sent.
        known: as `names_of` returns them.
        what: kind of field, such as "form field".

    Raises:
        Invalid: a name is unknown, or was sent twice although one value counts.
    """
    listed = f"use {', '.join(sorted(known))}" if known else "this path takes none"
    faults = [
        Fault(location=name, rule="is given more than once")
        if name in known
        else Fault(location=unknown(name), rule=f"is not a known {what}: {listed}")
        for name, times in Counter(sent).items()
        if name not in known or (times > 1 and not known[name])
    ]
    if faults:
        raise Invalid(faults=faults[:MOST_FAULTS])


def require_printable(given: Any, place: tuple[str, ...] = ()) -> None:
    """Refuse a document in which a text cannot be shown as it is, as names of columns and categories are.

    Args:
        given: as JSON has it.
        place: of the document in the request.

    Raises:
        Invalid: it has one; the fault has its place, and nothing of the text.
    """
    if isinstance(given, str) and not is_printable(given):
        raise Invalid(faults=[Fault(location=".".join(place), rule=UNPRINTABLE)])
    if isinstance(given, dict):
        for name, part in cast("dict[str, Any]", given).items():
            require_printable(part, (*place, name))
    if isinstance(given, list):
        for number, part in enumerate(cast("list[Any]", given)):
            require_printable(part, (*place, str(number)))


def validate_path_params(given: Mapping[str, str]) -> None:
    """Turn away paths with names that nothing has, and that not every database could even look for.

    Raises:
        NotFound: a name in the path is not printable ASCII.
    """
    if not all(name.isascii() and name.isprintable() for name in given.values()):
        raise NotFound


def either_body(models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    """The `openapi_extra` of an endpoint that reads one of several bodies itself, by media type."""
    content = {
        media: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        for media, model in models.items()
    }
    return {"requestBody": {"required": True, "content": content}}


def add_schemas(app: FastAPI, *models: type[BaseModel]) -> None:
    """Put models among the schemas of the interface that no endpoint declares, but documents refer to."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        schemas = document["components"]["schemas"]
        for model in models:
            told = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema = jsonable_encoder(told, exclude_none=True)  # no `default: null`, as everywhere else
            for name, part in [*schema.pop("$defs", {}).items(), (model.__name__, schema)]:
                schemas.setdefault(name, part)
        return document

    app.openapi = openapi
