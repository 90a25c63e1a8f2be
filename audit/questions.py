"""Every question that the interface offers, as its request models do, and records that are worst for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from privest.arrays import Array
from privest.data.metadata import DatasetMetadata, LabelledMetadata, PartialVectorsMetadata, PointsMetadata
from privest.data.table_metadata import TableMetadata
from privest.data.tables import Recipe
from privest.estimators.federation import Plan
from privest.privacy.accounting import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA, DatasetSchema, Space
from privest_service.estimates.catalogue import KINDS, Kind, of_all
from testing.server import body_of

N = 200
_TARGET = PrivacyTarget(2.0, 1e-6)

# What is neither a choice among a few nor a number with a lower bound needs a value to be asked with.
_VALUES: dict[str, Any] = {
    "batch_size": 20,
    "candidates": [{"solver": "clipped"}, {"features": ["a"], "penalty": 0.1, "solver": "newton"}],
    "clip": 0.5,
    "clip_change": 0.5,
    "coefficients": [1.0, -1.0],
    "dim": 3,
    "epochs": 2,
    "intercept": 0.5,
    "local_steps": 2,
    "penalty": 0.1,
    "point": [0.6, 0.0, 0.8],
    "rank": 1,
    "rate": 0.2,
    "restarts": 2,
    "scale": 0.5,
    "server_step": 1.0,  # others are for local steps, and change no release
    "start": [0.1, 0.0, 0.0],
    "step_scale": 0.5,
    "momentum": 0.5,
    "step_size": 0.5,
    "steps": 3,
    "turns": 2,
}

_SCHEMAS: dict[str, dict[str, Any]] = {
    "vectors": {"kind": "vectors", "dim": 3},
    "partial-vectors": {"kind": "partial-vectors", "dim": 4, "known": 0.75},
    "labelled": {
        "kind": "labelled",
        "features": ["a", "b"],
        "label": "y",
        "classes": ["0", "1"],
        "mean": [0.0, 0.0],
        "scale": [1.0, 1.0],
    },
}

_TABLE: dict[str, Any] = {
    "kind": "table",
    "columns": [
        {"name": "a", "type": "number", "low": -1.0, "high": 3.0},
        {"name": "b", "type": "number", "low": 0.0, "high": 10.0, "missing": "filled", "fill": 2.0},
        {"name": "y", "type": "boolean"},
    ],
}
"""Every estimator takes a table of numbers. Files of npy serve it too."""

_COLUMNS: dict[str, dict[str, Any]] = {"labelled": {"label": "y"}, "partial-vectors": {"columns": ["a", "b"]}}
"""The columns of the table that a kind of data needs to be named."""


@dataclass(frozen=True)
class Question:
    """A question that the service accepts.

    Attributes:
        kind: of the estimate.
        schema: of the data.
        options: that differ from the defaults.
        datasets: that it is about, all but the first the usual one.
        plan: of its answer.
        recipe: what makes records of the rows of a table; None where the rows are the records.
    """

    kind: Kind
    schema: dict[str, Any]
    options: dict[str, Any]
    datasets: int
    plan: Plan
    recipe: Recipe | None

    @property
    def shape(self) -> DatasetMetadata:
        """Public facts of the data."""
        return _read(self.schema).shape(N)

    @property
    def solver(self) -> str | None:
        """The solver that the question names, if it names one."""
        return self.options.get("solver")

    def __str__(self) -> str:
        space = self.schema.get("manifold", {}).get("name", "")
        data = space or ("table" if self.recipe else "")
        return " ".join([self.kind.name, data, *(f"{name}={value}" for name, value in self.options.items())])


def every() -> Iterator[Question]:
    """All of them: every space and a table, every solver with every loss, and every other choice by itself.

    Raises:
        LookupError: a choice has no value here, or is refused with whatever solver.
    """
    for kind in KINDS.values():
        fields = kind.request.model_fields
        own = {name: _choices(name, fields[name]) for name in fields if name not in _COMMON}
        required = needed(kind)
        crossed = {name: own[name] for name in ("solver", "loss") if name in own}
        crosses = [dict(zip(crossed, values, strict=True)) for values in product(*crossed.values())]
        for schema in schemas(kind.dataset_kind):
            yield from _accepted(kind, schema, 1, [required | cross for cross in crosses])
        for name, value in [(each, value) for each, values in own.items() for value in values]:
            if name not in crossed.keys() | required.keys():
                tried = [required | cross | {name: value} for cross in ({}, *crosses)]
                among = product((1, 2), schemas(kind.dataset_kind))
                found = (
                    question for count, schema in among for question in _accepted(kind, schema, count, tried)
                )
                if (first := next(found, None)) is None:
                    raise LookupError(f"{kind.name}: {name}={value} is refused with every solver")
                yield first


def _accepted(
    kind: Kind, schema: dict[str, Any], datasets: int, tried: list[dict[str, Any]]
) -> Iterator[Question]:
    table = _read(schema).shape(N)
    named = _COLUMNS.get(kind.dataset_kind, {}) if schema is _TABLE else {}
    for options in ({**named, **each} for each in tried):
        try:
            asked = kind.request.model_validate(body_of("ds_x", _TARGET.epsilon, **options))
            shape = kind.metadata_of(table, asked)
            plan = kind.plan_for(kind.options(asked), [(shape, _TARGET)] * datasets)
        except ValueError:  # by public facts
            continue
        yield Question(kind, schema, options, datasets, plan, shape.recipe)


def needed(kind: Kind) -> dict[str, Any]:
    """Choices that every question of a kind makes."""
    fields = kind.request.model_fields
    own = [name for name in fields if name not in _COMMON and fields[name].is_required()]
    return {name: _choices(name, fields[name])[0] for name in own}


_COMMON = set().union(*(of_all(kind.request) for kind in KINDS.values()))


def schemas(kind: str) -> list[dict[str, Any]]:
    """Schemas of a kind of data, one for each space where there are several, and a table at the end."""
    if kind != "points":
        return [_SCHEMAS[kind], _TABLE]
    spaces = get_args(get_args(Space)[0])
    points = [
        {"kind": "points", "manifold": space, "radius": 0.5}
        for model in spaces
        for space in _instances(model)
    ]
    return [*points, _TABLE]


def _instances(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    choices = {name: _choices(name, field) for name, field in model.model_fields.items()}
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _choices(name: str, field: FieldInfo) -> list[Any]:
    """All of a few, else the one value above, else one within the declared bounds.

    Raises:
        LookupError: there is none.
    """
    if few := _few(field.annotation):
        return few
    if name in _VALUES:
        return [_VALUES[name]]
    bounds = {type(each): each for each in (*field.metadata, *_metadata(field.annotation))}
    if Ge in bounds:
        return [bounds[Ge].ge]
    if Gt in bounds and Le in bounds:
        return [(bounds[Gt].gt + bounds[Le].le) / 2]
    if Gt in bounds:
        return [bounds[Gt].gt + 1]
    raise LookupError(f"_VALUES in audit/questions.py has no value to ask with for {name}")


def _metadata(annotation: Any) -> Iterator[Any]:
    """What is declared of the parts of a type, however deep."""
    if get_origin(annotation) is Annotated:
        for each in get_args(annotation)[1:]:
            yield from each.metadata if isinstance(each, FieldInfo) else (each,)
    for part in get_args(annotation):
        yield from _metadata(part)


def _few(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if annotation is bool:
        return [False, True]
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [value for part in get_args(annotation) for value in _few(part)]
    return _few(get_args(annotation)[0]) if origin is Annotated else []


def _read(schema: dict[str, Any]) -> DatasetSchema:
    return SCHEMA.validate_python(schema)


# Datasets


def usual(shape: DatasetMetadata) -> Array:
    """Synthetic rows; if they are labelled, or of a table, all of one class."""
    rows = shape.dummy(N, np.random.default_rng(0))
    if isinstance(shape, (LabelledMetadata, TableMetadata)):
        rows[:, -1] = 0.0
    return shape.canonical(rows)


def worst(shape: DatasetMetadata) -> dict[str, Array]:
    """Records, by what is bad about them, as far as an upload of them is accepted."""
    rows = usual(shape)
    ones = np.ones(shape.record)
    found = {
        "zero": 0 * ones,
        "huge": 1e308 * ones,
        "large": 1e200 * rows[0],
        "tiny": 1e-200 * ones,
        "denormal": 5e-324 * ones,
        "duplicate": rows[1],
        "opposite": -rows[1],
    }
    if isinstance(shape, PointsMetadata):
        space, centre = shape.space, shape.search_center
        unit = np.eye(space.coordinate_size)[0]
        found |= {
            "centre": centre,
            "cut locus": -centre,
            "half turn": space.exp_coordinates(centre, np.pi * unit),
            "far": space.exp_coordinates(centre, 15.0 * unit),
            "almost the centre": space.exp_coordinates(centre, 1e-160 * unit),
        }
        if len(shape.record) == 2 and shape.record[0] == shape.record[1]:
            eye = np.eye(shape.record[0])
            found |= {"huge matrix": 1e150 * eye, "tiny matrix": 1e-150 * eye}
    if isinstance(shape, PartialVectorsMetadata):
        found |= {"unknown": np.nan * ones, "one known": np.where(np.cumsum(ones) == 1, ones, np.nan)}
    if isinstance(shape, TableMetadata):
        found |= {"unknown": np.append(rows[0, 0], [np.nan, 0.0]), "at the bounds": np.array([3.0, 0.0, 0.0])}
    if isinstance(shape, (LabelledMetadata, TableMetadata)):
        for record in found.values():
            record[-1] = 0.0
        found |= {"only one of its class": np.append(rows[0, :-1], 1.0)}
    return {
        name: shape.canonical(record) for name, record in found.items() if not int(shape.broken_rule(record))
    }


def worlds(shape: DatasetMetadata, *, together: bool) -> Iterator[tuple[str, Array]]:
    """Datasets beside the usual one: the worst records all together, or each alone in the first place."""
    bad = worst(shape)
    each = {", ".join(bad): list(bad.values())} if together else {name: [one] for name, one in bad.items()}
    for name, records in each.items():
        rows = usual(shape)
        rows[: len(records)] = records
        yield name, rows
