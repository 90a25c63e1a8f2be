"""Questions of extreme choices that the interface allows: each has a plan, or is refused in words."""

from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privest.data.metadata import DatasetMetadata
from privest.estimators.federation import Federated
from privest.privacy.accounting import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates import views
from privest_service.estimates.catalogue import KINDS, Kind, of_all
from privest_service.estimates.charging import PlannedQuery
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.service import Planner
from privest_service.ledger.units import Charge
from privest_service.problems import Invalid

T = TypeVar("T")

_TINY = (5e-324, 1e-300, 1e-160, 1e-30, 1e-12, 1e-6)
_FLOATS = (*_TINY, 0.0, 0.01, 0.5, 1.0, 7.0, 1e3, 1e6, 1e12, 1e150, 1e300, 1.7976931348623157e308)
_COUNTS = (1, 2, 3, 10, 1000, 10**6, 2**31, 2**53 - 1)


def _within(value: float, rule: dict[str, Any]) -> bool:
    return (
        value >= rule.get("minimum", -1e999)
        and value > rule.get("exclusiveMinimum", -1e999)
        and value <= rule.get("maximum", 1e999)
    )


def _values(rule: dict[str, Any], definitions: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the interface allows of one choice, by its JSON schema."""
    if "$ref" in rule:
        rule = definitions[rule["$ref"].rpartition("/")[2]]
    if "anyOf" in rule:
        return st.one_of(_values(each, definitions) for each in rule["anyOf"])
    if "const" in rule or "enum" in rule:
        return st.sampled_from(rule.get("enum") or [rule["const"]])
    numbers = st.sampled_from([sign * value for value in _FLOATS for sign in (1, -1)])
    row = st.lists(numbers, min_size=2, max_size=2)
    known: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "integer": st.sampled_from(_COUNTS).filter(lambda value: _within(value, rule)),
        "number": st.sampled_from(_FLOATS).filter(lambda value: _within(value, rule)),
        "array": row | st.lists(row, min_size=2, max_size=2),
    }
    return known[rule["type"]]


def _choices(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    """A few choices of a kind: of many extreme ones the first that is refused hides the others."""
    schema = kind.request.model_json_schema()
    own = {
        name: _values(rule, schema["$defs"])
        for name, rule in schema["properties"].items()
        if name not in of_all(kind.request)
    }
    needed = {name: values for name, values in own.items() if name in schema["required"]}
    optional = {name: values for name, values in own.items() if name not in needed}
    few = st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True) if optional else st.just([])
    return few.flatmap(
        lambda chosen: st.fixed_dictionaries({**needed, **{name: optional[name] for name in chosen}})
    )


_POSITIVE = [value for value in _FLOATS if value > 0]


def _mostly(usual: T, *extreme: T) -> st.SearchStrategy[T]:
    """Draw the usual value half of the time, so that an extreme is also seen without others."""
    return st.booleans().flatmap(lambda odd: st.sampled_from(extreme) if odd else st.just(usual))


_LENGTHS = _mostly(None, *_POSITIVE)


def _declared(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of datasets, their bounds as extreme."""
    match kind:
        case "points":
            spaces = st.sampled_from(
                [
                    {"name": "sphere", "dim": 1},
                    {"name": "spd", "dim": 2},
                    {"name": "spd", "dim": 2, "metric": "bures-wasserstein"},
                    {"name": "euclidean", "dim": 2},
                    {"name": "poincare-ball", "dim": 2},
                ]
            )
            return st.fixed_dictionaries({"kind": st.just(kind), "manifold": spaces, "radius": _LENGTHS})
        case "vectors":
            return st.fixed_dictionaries(
                {"kind": st.just(kind), "dim": st.sampled_from([2, 5, 100]), "norm_bound": _LENGTHS}
            )
        case "partial-vectors":
            return st.fixed_dictionaries(
                {"kind": st.just(kind), "dim": st.just(5), "known": st.sampled_from([1e-300, 0.01, 0.5, 1.0])}
            )
        case _:
            declared = {"kind": kind, "features": ["a", "b"], "label": "y", "classes": ["0", "1"]}
            scales = _mostly(1.0, *_POSITIVE)
            return st.fixed_dictionaries(
                {**{name: st.just(value) for name, value in declared.items()}, "norm_bound": _LENGTHS},
                optional={
                    "mean": st.tuples(scales, scales).map(list),
                    "scale": st.tuples(scales, scales).map(list),
                },
            )


def _planner() -> Planner:
    def at_once(_: str, function: Any, *args: Any, **__: Any) -> Any:
        return function(*args)

    return Planner(at_once)


def _planned(kind: Kind, data: st.DataObject) -> None:
    """Draw a question and plan, price and show it; Invalid is an answer, too."""
    try:
        schema = SCHEMA.validate_python(
            {
                name: value
                for name, value in data.draw(_declared(kind.dataset_kind)).items()
                if value is not None
            }
        )
        shape: DatasetMetadata = schema.shape(data.draw(_mostly(10**4, 2, 100, 10**9)))
        body = data.draw(_choices(kind))
        privacy = {"epsilon": data.draw(_mostly(0.5, *_POSITIVE))}
        request = kind.request.model_validate({"dataset": {"id": "ds_1"}, "privacy": privacy, **body})
    except ValidationError:
        return  # which is 422 before there is a question
    delta = data.draw(_mostly(1e-6, 0.0, 5e-324, 1e-300, 0.5, 1 - 2**-53))
    subjects = tuple(
        QueryTarget(f"ds_{i}", "own_1", shape, PrivacyTarget(privacy["epsilon"], delta))
        for i in range(data.draw(_mostly(1, 2)))
    )
    question = ResolvedQuery("anl_1", kind, subjects, kind.options(request))
    try:
        plan = _planner().make_plan(question)
    except Invalid:
        return
    for part in plan.parts if isinstance(plan, Federated) else (plan,):
        Charge.of(part.target, part.cost)
    assert kind.plans.validate_json(kind.plans.dump_json(plan)) == plan
    nothing: Any = None
    PlannedQuery.of(nothing, question, plan)
    views.plan_view(question, plan, None).model_dump_json()


@pytest.mark.few(3)
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_extreme_choices_have_a_plan_or_are_refused_in_words(name: str, data: st.DataObject) -> None:
    _planned(KINDS[name], data)


@pytest.mark.prove
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_so_have_many_more(name: str, data: st.DataObject) -> None:
    _planned(KINDS[name], data)


_POINTS = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "radius": 1.0}
_VECTORS = {"kind": "vectors", "dim": 5}


@pytest.mark.parametrize(
    ("name", "declared", "epsilon", "body", "told"),
    [
        ("frechet-mean", _POINTS, 0.5, {"solver": "rsgd", "steps": 1, "rate": 1e-300}, "rate"),
        ("frechet-mean", _POINTS, 0.5, {"solver": "rsvrg", "steps": 1, "rate": 5e-324}, "rate"),
        ("robust-pca", _VECTORS, 0.5, {"solver": "sggd", "rank": 2, "rate": 1e-300}, "rate"),
        (
            "frechet-mean",
            _POINTS,
            1e-300,
            {"solver": "rsvrg", "steps": 1, "clip": 1e-90, "clip_change": 1e-100},
            "too far apart",
        ),
    ],
)
def test_what_float64_cannot_hold_is_refused_in_words(
    name: str, declared: dict[str, Any], epsilon: float, body: dict[str, Any], told: str
) -> None:
    kind, shape = KINDS[name], SCHEMA.validate_python(declared).shape(100)
    given = {"dataset": {"id": "ds_1"}, "privacy": {"epsilon": epsilon}, **body}
    options = kind.options(kind.request.model_validate(given))
    question = ResolvedQuery(
        "anl_1", kind, (QueryTarget("ds_1", "own_1", shape, PrivacyTarget(epsilon, 1e-6)),), options
    )
    with pytest.raises(Invalid, match="invalid") as refused:
        _planner().make_plan(question)
    assert told in str(refused.value.detail)
