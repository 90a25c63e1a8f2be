"""What if: a query planned and not asked, its cost against what is left, and its error as ε varies."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from math import exp, log
from typing import Annotated, Any, get_origin

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field

from privest.estimators.federation import Plan
from privest.metadata import PartialVectorsMetadata
from privest.options import Option, declared
from privest.privacy.cost import PrivacyTarget
from privest.tables.metadata import TableMetadata
from privest_service.dashboard.budget_summary import share, share_of_charge, title, unit
from privest_service.dashboard.charts import error_curve, gauge
from privest_service.dashboard.entries import Choice, or_none
from privest_service.dashboard.forms import from_json
from privest_service.dashboard.page import Page, render
from privest_service.dashboard.session_auth import OwnerDep, Visitor
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS, Kind, of_all
from privest_service.estimates.dependencies import PlannerDep
from privest_service.estimates.planning import Planner
from privest_service.estimates.questions import ResolvedQuery, resolve
from privest_service.inputs import checked
from privest_service.ledger import entries, views
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    Fault,
    Invalid,
    Problem,
    TooManyRequests,
    Unavailable,
)
from privest_service.security.dependencies import DatabaseDep
from privest_service.security.models import Owner
from privest_service.validation import MOST_FAULTS, UNKNOWN, unknown

router = APIRouter(prefix="/dashboard/what-if", route_class=Page)

_AROUND = 16.0
"""Factor by which the curve goes below and above the chosen ε."""

_POINTS = 9

_USUAL = {each: kind.name for kind in reversed(KINDS.values()) for each in (kind.dataset_kind, "table")}
"""The usual question for each kind of dataset: the first estimator that takes it."""


_Names = Annotated[list[str], Field(max_length=2000)]
"""Names of a table's columns."""


class Wish(BaseModel):
    """A query that is thought of."""

    dataset: Choice = None
    kind: Choice = None
    epsilon: Annotated[float, Field(gt=0)] = 0.5
    delta: Annotated[float | None, BeforeValidator(or_none)] = None
    options: Annotated[str, Field(max_length=20_000)] = ""
    columns: _Names = []
    label: str = ""
    features: _Names = []


@router.get("")
def read(request: Request, visitor: OwnerDep, database: DatabaseDep, planner: PlannerDep) -> Response:
    """The form and, once it is filled in, the plan."""
    given, problem, planned, wish = dict(request.query_params), None, None, Wish()
    try:
        several = {name: request.query_params.getlist(name) for name in ("columns", "features")}
        wish = checked(Wish.model_validate, given | several)
        _require_known(given)
    except Invalid as error:
        problem = error
    with database.read() as session:
        account = ledger.owner_account(session, visitor.id)
        own, _ = datasets.visible(session, visitor.principal)
    chosen = next((each for each in own if each.id == wish.dataset), None)
    asked = (wish.kind or _USUAL.get(chosen.kind, "")) if chosen else ""
    offered = _offered(chosen, KINDS[asked]) if chosen and asked in KINDS else {}
    picked = _picked(wish, offered)
    if chosen and problem is None:
        try:
            planned = _planned(database, planner, visitor, account, wish, asked, given | picked)
        except Problem as error:
            problem = error
    limits = ledger.limits_of(account)
    return render(
        request,
        "what_if.html",
        status=problem.status if problem else 200,
        given=given,
        wish=wish,
        chosen=chosen,
        datasets=own,
        kinds=[kind for kind in KINDS.values() if chosen and chosen.kind in (kind.dataset_kind, "table")],
        asked=asked,
        usual=_usual_options(KINDS[asked]) if asked in KINDS else {},
        offered=offered,
        picked=picked,
        example=_example(KINDS[asked]) if asked in KINDS else "",
        title=title,
        unit=unit(asked),
        spent=share(limits, account),
        problem=problem,
        **(planned or {"plan": None}),
    )


def _planned(
    database: Database,
    planner: Planner,
    visitor: Visitor,
    account: Account,
    wish: Wish,
    asked: str,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """All that the page says of a plan.

    Raises:
        Problem: it cannot be planned.
    """
    kind = KINDS.get(asked)
    if kind is None:
        raise Invalid(faults=[Fault(location="kind", rule=f"must be one of: {', '.join(KINDS)}")])
    body = checked(kind.request.model_validate, _body(wish, kind, given))
    with database.read() as session:
        question = resolve(session, visitor.principal, kind, body)
        dataset = session.get_one(Dataset, question.about[0].dataset_id)
        owner = session.get_one(Owner, visitor.id)
        accounts = ledger.accounts_in_force(session, owner, {"dataset": dataset.lineage})
    plan = planner.plan(question)
    limits, charge = ledger.limits_of(account), Charge.of(plan.target, plan.cost)
    refused = None
    try:
        entries.require_room(accounts, [charge] * len(accounts))
    except (BudgetExceeded, AccountFrozen) as problem:
        refused = problem
    spent, cost = share(limits, account), share_of_charge(limits, charge)
    error = plan.expected_error.standard_deviation
    curve, delta = _curve(planner, question, kind), plan.target.delta
    pure = delta == 0 and limits.composition == "gdp"  # whose ε has no such bound in one formula
    most = None if pure else views.largest_query(account, delta)
    return {
        "plan": plan,
        "kind": kind,
        "cost": cost,
        "refused": refused,
        "times": min(map(_times, accounts, [charge] * len(accounts))) if cost else None,
        "gauge": gauge("gauge", spent, cost),
        "error": error,
        "foretold": (kind.estimator.error_title, kind.estimator.error_meaning),
        "radius": getattr(plan.expected_error, "radius_95", None),
        "untold": getattr(plan.expected_error, "untold", None),
        "most": most,
        "curve": error_curve("curve", curve, (plan.target.epsilon, error), most or None)
        if len(curve) > 1
        else None,
    }


def _times(account: Account, charge: Charge) -> int:
    """How many times an account covers a charge."""
    names = ledger.limits_of(account).counted
    left = {name: getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent") for name in names}
    return min(left[name] // amount for name in names if (amount := getattr(charge, name)))


_OF_TABLES = {"columns", "label", "features"}
"""The fields of requests that choose of a table."""


def _offered(dataset: Dataset, kind: Kind) -> dict[str, list[str]]:
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


def _picked(wish: Wish, offered: Mapping[str, list[str]]) -> dict[str, Any]:
    """What is chosen of the columns that are offered: what an address says of another table is left out."""
    found: dict[str, Any] = {}
    if labels := offered.get("label"):
        found["label"] = wish.label if wish.label in labels else labels[0]
    for name, names in (("columns", wish.columns), ("features", wish.features)):
        known = [each for each in names if each in offered.get(name, ()) and each != found.get("label")]
        found |= {name: known} if known else {}
    return found


def _usual_options(kind: Kind) -> dict[str, Any]:
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
    asked = Wish.model_fields.keys() | {name for kind in KINDS.values() for name in _usual_options(kind)}
    known = {name for kind in KINDS.values() for name in declared(kind.estimator.spec)}
    if further := sorted(given.keys() - asked)[:MOST_FAULTS]:
        belongs = 'belongs in the further options, as JSON: options={"…": …}'
        raise Invalid(
            faults=[
                Fault(location=unknown(name), rule=belongs if name in known else UNKNOWN) for name in further
            ]
        )


def _example(kind: Kind) -> str:
    """Further options that this kind takes: those that it needs, else a whole number, else any."""
    spec, usual = kind.estimator.spec, _usual_options(kind)
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
    return [1, -1] if get_origin(hint) is list else 20 if hint in (int, int | None) else 0.5


def _body(wish: Wish, kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The request body that would be sent.

    Raises:
        Invalid: an option is no number, or the further options are no JSON object.
    """
    usual = _usual_options(kind)
    for name in usual.keys() & given.keys():
        if given[name].strip():
            usual[name] = from_json(given[name], name, "must be a number, like 2")
    rule = f"must be a JSON object, like {_example(kind)}"
    options = from_json(wish.options, "options", rule) if wish.options.strip() else {}
    if not isinstance(options, dict):
        raise Invalid(faults=[Fault(location="options", rule=rule)])
    privacy = {"epsilon": wish.epsilon} | ({} if wish.delta is None else {"delta": wish.delta})
    usual |= {name: given[name] for name in _OF_TABLES & given.keys() & of_all(kind.request)}
    return {**usual, **options, "dataset": {"id": wish.dataset}, "privacy": privacy}


def _curve(planner: Planner, question: ResolvedQuery, kind: Kind) -> list[tuple[float, float]]:
    """The error to expect at other ε; of plans that take long it is not worked out."""
    if kind.is_heavy(question.options):
        return []
    points: list[tuple[float, float]] = []
    (subject,) = question.about
    for i in range(_POINTS):
        epsilon = subject.target.epsilon * exp(log(_AROUND) * (2 * i / (_POINTS - 1) - 1))
        try:
            target = PrivacyTarget(epsilon, subject.target.delta)
            other = replace(question, about=(replace(subject, target=target),))
            plan: Plan = planner.plan(other)
        except (
            ValueError,
            Invalid,
            TooManyRequests,
            Unavailable,
        ):  # so little, or so much, that there is none
            continue
        points.append((epsilon, plan.expected_error.standard_deviation))
    return points
