"""A question as the form of *what if* says it: its fields, what they begin with, and what they ask for."""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_origin
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, Field
from starlette.datastructures import QueryParams

from privest.data.metadata import PartialVectorsMetadata
from privest.data.table_metadata import TableMetadata
from privest.estimators.federation import Federated, Part, Plan
from privest.options import Option, declared
from privest_service.dashboard.entries import Choice, or_none
from privest_service.dashboard.forms import from_json
from privest_service.dashboard.session_auth import Visitor
from privest_service.database import Database
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.declarations import example_of_list
from privest_service.estimates.catalogue import KINDS, Kind, of_all
from privest_service.estimates.epsilon_found import to_plan
from privest_service.estimates.plans import asked_columns
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.service import Planner
from privest_service.inputs import checked
from privest_service.jobs.models import Job
from privest_service.problems import Fault, Invalid, Problem
from privest_service.reports.formatting import typed
from privest_service.validation import MOST_FAULTS, UNKNOWN, unknown

EPSILON = 0.5
"""The ε that a plan begins with where there is room for it."""

_BY = ("within", "of", "rows", "epsilon", "share")
"""The fields by which ε is said or found."""

USUAL = {each: kind.name for kind in reversed(KINDS.values()) for each in (kind.dataset_kind, "table")}
"""The usual question for each kind of dataset: the first estimator that takes it."""


_Names = Annotated[list[str], Field(max_length=2000)]
"""Names of a table's columns."""


_Above0 = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(or_none)]


class Wish(BaseModel):
    """A query that is thought of: by ε, by how far off its answer may be, or by a share of what is left.

    `of` names the column whose interval is to be so narrow; empty means the whole answer. `rows` is "usual"
    where the accuracy is for records as the forecast takes them, and not for whatever they are. `share` is
    a percentage. If none of them is said, ε is `EPSILON` or what there is still room for.
    """

    dataset: Choice = None
    kind: Choice = None
    within: _Above0 = None
    of: Annotated[str, Field(max_length=1000)] = ""
    rows: Literal["", "usual"] = ""
    epsilon: _Above0 = None
    share: Annotated[Annotated[float, Field(gt=0, le=100)] | None, BeforeValidator(or_none)] = None
    delta: Annotated[float | None, BeforeValidator(or_none)] = None
    options: Annotated[str, Field(max_length=20_000)] = ""
    columns: _Names = []
    label: str = ""
    features: _Names = []


def wish_of(params: QueryParams) -> Wish:
    """What an address says of a query. Raises Invalid: it says what no query has."""
    several = {name: params.getlist(name) for name in ("columns", "features")}
    wish = checked(Wish.model_validate, dict(params) | several)
    _require_known(dict(params))
    return wish


def kind_of(name: str) -> Kind:
    """The kind of a query. Raises Invalid: there is none of this name."""
    if name not in KINDS:
        raise Invalid(faults=[Fault(location="kind", rule=f"must be one of: {', '.join(KINDS)}")])
    return KINDS[name]


def question_of(
    database: Database,
    planner: Planner,
    visitor: Visitor,
    wish: Wish,
    chosen: Dataset,
    asked: str,
    given: Mapping[str, Any],
    privacy: dict[str, Any],
) -> ResolvedQuery:
    """The question that a form asks, with its ε as `POST /v1/plans` finds it.

    Raises:
        Problem: it cannot be asked, or no ε does what is wished for.
    """
    kind = kind_of(asked)
    body = body_of(wish.model_copy(update={"dataset": chosen.id}), kind, given)
    request = checked(kind.plan_request.model_validate, body | {"privacy": privacy})
    return to_plan(database, planner, visitor.principal, kind, request)


def privacy_of(wish: Wish, usual: float) -> dict[str, Any]:
    """The privacy of a plan as the interface has it. Raises Invalid: ε is said, or to be found, twice."""
    told: dict[str, Any] = {}
    if wish.within is not None:
        figure = "radius_95" if wish.rows else "within"
        told["target"] = {"columns": {wish.of: wish.within}} if wish.of else {figure: wish.within}
    if wish.share is not None:
        told["share"] = wish.share / 100
    if wish.epsilon is not None:
        told["epsilon"] = wish.epsilon
    if len(told) > 1:
        rule = "fill in one of: the accuracy that you need, ε, and a share of what is left"
        raise Invalid(faults=[Fault(location="privacy", rule=rule)])
    return (told or {"epsilon": usual}) | ({} if wish.delta is None else {"delta": wish.delta})


_FIRST = 0.1
"""Share of what is left that a form begins with: nobody should spend all of it who only pressed a button."""


def epsilon_to_begin_with(plan: Callable[[dict[str, Any]], ResolvedQuery], delta: float | None) -> float:
    """The ε that a form begins with: the usual one, or a tenth of what is left where that is less."""
    try:
        most = plan({"share": _FIRST} | ({} if delta is None else {"delta": delta}))
    except Problem:  # its visitor may know of no limit, nothing is left, or there is no such question
        return EPSILON
    return min(EPSILON, most.about[0].target.epsilon)


def settled(asked: QueryParams, epsilon: float) -> str:
    """The address of what was planned, with an ε: what is asked is what was shown."""
    kept = [(name, value) for name, value in asked.multi_items() if name not in _BY]
    return urlencode([*kept, ("epsilon", typed(epsilon))])


def address_again(job: Job, plan: Plan | Part | None, times: float) -> str | None:
    """The address that plans a question on one dataset again with so many times its ε; None if not known.

    It has what the form asks for. Further options are for the analyst to choose anew.
    """
    if plan is None or isinstance(plan, Part | Federated):
        return None
    epsilon, delta = float(f"{plan.target.epsilon * times:.3g}"), plan.target.delta
    told: dict[str, Any] = {
        name: getattr(plan, name) for name in usual_options(KINDS[job.kind]) if hasattr(plan, name)
    }
    told |= {"dataset": job.dataset_id, "kind": job.kind, "epsilon": typed(epsilon), "delta": typed(delta)}
    recipe, names = plan.shape.recipe, asked_columns(plan) or []
    if recipe is not None and not recipe.is_usual:  # the form offers columns alone
        return None
    if recipe is not None and recipe.label is not None:
        told["label"], *names = names
    if recipe is not None and len(recipe.chosen) < len(recipe.columns) - (recipe.label is not None):
        told["columns" if recipe.label is None else "features"] = names
    return urlencode(told, doseq=True)


_OF_TABLES = {"columns", "label", "features"}
"""The fields of requests that choose of a table."""


def columns_offered(dataset: Dataset, kind: Kind) -> dict[str, list[str]]:
    """Names of the columns that a question on a table may choose, by the field that chooses them."""
    shape = SCHEMA.validate_json(dataset.dataset_schema).shape(dataset.n)
    if not isinstance(shape, TableMetadata):
        return {}
    # Gaps of categories are no unknown entries, which completion fills.
    numbers_alone = issubclass(kind.estimator.metadata, PartialVectorsMetadata)
    names = [column.name for column in shape.columns if column.is_ordered or not numbers_alone]
    labels = [column.name for column in shape.columns if not column.is_ordered]
    found = {"columns": names, "label": labels, "features": names}
    return {name: found[name] for name in _OF_TABLES & of_all(kind.request)}


def columns_picked(wish: Wish, offered: Mapping[str, list[str]]) -> dict[str, Any]:
    """What is chosen of the columns that are offered: what an address says of another table is left out."""
    found: dict[str, Any] = {}
    if labels := offered.get("label"):
        found["label"] = wish.label if wish.label in labels else labels[0]
    for name, names in (("columns", wish.columns), ("features", wish.features)):
        known = [each for each in names if each in offered.get(name, ()) and each != found.get("label")]
        found |= {name: known} if known else {}
    return found


def usual_options(kind: Kind) -> dict[str, Any]:
    """The options that a form asks for by themselves, with what they begin with."""
    docs = {name: doc for name, (_, doc) in declared(kind.estimator.spec).items()}
    return {
        name: doc.usual for name, doc in docs.items() if isinstance(doc, Option) and doc.usual is not None
    }


def _require_known(given: Mapping[str, str]) -> None:
    """Refuse an address that says more than the form asks; fields of another kind stay from before.

    Raises:
        Invalid: it does.
    """
    asked = Wish.model_fields.keys() | {name for kind in KINDS.values() for name in usual_options(kind)}
    known = {name for kind in KINDS.values() for name in declared(kind.estimator.spec)}
    if further := sorted(given.keys() - asked)[:MOST_FAULTS]:
        belongs = 'belongs in the further options, as JSON: options={"…": …}'
        raise Invalid(
            faults=[
                Fault(location=unknown(name), rule=belongs if name in known else UNKNOWN) for name in further
            ]
        )


def example_of(kind: Kind) -> str:
    """Further options that this kind takes: those that it needs, else a whole number, else any."""
    spec, usual = kind.estimator.spec, usual_options(kind)
    free = [each for each in fields(spec) if each.name not in usual]
    types = {name: hint for name, (hint, _) in declared(spec).items()}
    needed = [each for each in free if each.default is MISSING]
    whole = [each for each in free if types[each.name] in (int, int | None)]
    return json.dumps(
        {each.name: _value_like(types[each.name], each.default) for each in needed or (whole or free)[:1]}
    )


def _value_like(hint: Any, default: Any) -> Any:
    """A value of an option, as an example."""
    if default is not MISSING and default is not None:
        return default
    if get_origin(hint) is tuple:
        return example_of_list(hint)
    return [1, -1] if get_origin(hint) is list else 20 if hint in (int, int | None) else 0.5


def body_of(wish: Wish, kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The request body that would be sent.

    Raises:
        Invalid: an option is no number, or the further options are no JSON object.
    """
    usual = usual_options(kind)
    for name in usual.keys() & given.keys():
        if given[name].strip():
            usual[name] = from_json(given[name], name, "must be a number, like 2")
    rule = f"must be a JSON object, like {example_of(kind)}"
    options = from_json(wish.options, "options", rule) if wish.options.strip() else {}
    if not isinstance(options, dict):
        raise Invalid(faults=[Fault(location="options", rule=rule)])
    privacy = {"epsilon": wish.epsilon} | ({} if wish.delta is None else {"delta": wish.delta})
    usual |= {name: given[name] for name in _OF_TABLES & given.keys() & of_all(kind.request)}
    return {**usual, **options, "dataset": {"id": wish.dataset}, "privacy": privacy}
