"""What if: a query planned, its cost against what is left, its error as ε varies; and the query asked."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from math import exp, log
from typing import Annotated, Any, get_origin
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field
from starlette.datastructures import QueryParams

from privest.estimators.federation import Federated, Part, Plan
from privest.metadata import PartialVectorsMetadata
from privest.options import Option, declared
from privest.tables.metadata import TableMetadata
from privest_service.dashboard.budget_summary import unit
from privest_service.dashboard.charts import error_curve, gauge
from privest_service.dashboard.entries import Choice, or_none
from privest_service.dashboard.forms import from_json, texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AskerDep, AskingDep, FormDep, Visitor
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS, Kind, of_all
from privest_service.estimates.dependencies import PlannerDep, SubmissionsDep
from privest_service.estimates.endpoints import require_idempotency_key
from privest_service.estimates.planning import Planner
from privest_service.estimates.plans import asked_columns
from privest_service.estimates.questions import ResolvedQuery, resolve
from privest_service.estimates.room import known_accounts, times_covered
from privest_service.inputs import checked
from privest_service.jobs.models import Job
from privest_service.ledger import entries, views
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.ledger.views import price, share
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    Fault,
    Invalid,
    Problem,
    TooManyRequests,
    Unavailable,
)
from privest_service.reports.formatting import typed
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep
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
def read(request: Request, visitor: AskerDep, database: DatabaseDep, planner: PlannerDep) -> Response:
    """The form and, once it is filled in, the plan."""
    given, problem, planned, wish = dict(request.query_params), None, None, Wish()
    try:
        wish = _wish(request.query_params)
    except Invalid as error:
        problem = error
    with database.read() as session:
        own, _ = datasets.visible(session, visitor.principal)
    # Before a first plan the form is that of the dataset which it shows first.
    chosen = next((each for each in own if wish.dataset in (None, each.id)), None)
    asked = (wish.kind or _USUAL.get(chosen.kind, "")) if chosen else ""
    offered = _offered(chosen, KINDS[asked]) if chosen and asked in KINDS else {}
    picked = _picked(wish, offered)
    if chosen and wish.dataset and problem is None:
        try:
            planned = _planned(database, planner, visitor, wish, asked, given | picked)
        except Problem as error:
            problem = error
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
        problem=problem,
        question=request.url.query,
        key=secrets.token_hex(16),
        **(planned or {"plan": None}),
    )


@router.post("")
def ask(
    request: Request, visitor: AskingDep, database: DatabaseDep, submissions: SubmissionsDep, form: FormDep
) -> Response:
    """Ask what was planned. The same form sent twice asks once."""
    sent = texts(form)
    question = QueryParams(sent.get("question", ""))
    wish = _wish(question)
    with database.read() as session:
        chosen = datasets.require(session, visitor.principal, wish.dataset or "")
    asked = wish.kind or _USUAL.get(chosen.kind, "")
    kind = _kind(asked)
    given = dict(question) | _picked(wish, _offered(chosen, kind))
    body = checked(kind.request.model_validate, _body(wish, kind, given))
    key = require_idempotency_key(f"page {sent.get('key', '')}")
    answer = submissions.submit(submissions.command(visitor.principal, kind, body, key))
    return redirect(request, f"/answers/{answer.job_id}")


def _wish(params: QueryParams) -> Wish:
    """What an address says of a query. Raises Invalid: it says what no query has."""
    several = {name: params.getlist(name) for name in ("columns", "features")}
    wish = checked(Wish.model_validate, dict(params) | several)
    _require_known(dict(params))
    return wish


def _kind(name: str) -> Kind:
    """The kind of a query. Raises Invalid: there is none of this name."""
    if name not in KINDS:
        raise Invalid(faults=[Fault(location="kind", rule=f"must be one of: {', '.join(KINDS)}")])
    return KINDS[name]


def _planned(
    database: Database,
    planner: Planner,
    visitor: Visitor,
    wish: Wish,
    asked: str,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """All that the page says of a plan.

    Raises:
        Problem: it cannot be planned.
    """
    kind = _kind(asked)
    body = checked(kind.request.model_validate, _body(wish, kind, given))
    with database.read() as session:
        question = resolve(session, visitor.principal, kind, body)
        accounts = list(known_accounts(session, visitor.principal, question.about[0]))
    plan = planner.plan(question)
    priced = _price(visitor, accounts, Charge.of(plan.target, plan.cost), plan.target.delta)
    error, most = plan.expected_error.standard_deviation, priced["most"]
    curve = _curve(planner, question, kind, plan)
    return priced | {
        "plan": plan,
        "approval": question.approval,
        "kind": kind,
        "solver": getattr(plan, "solver", None),
        "error": error,
        "foretold": (kind.estimator.error_title, kind.estimator.error_meaning),
        "radius": getattr(plan.expected_error, "radius_95", None),
        "untold": getattr(plan.expected_error, "untold", None),
        "curve": error_curve("curve", curve, (plan.target.epsilon, error), most or None)
        if len(curve) > 1
        else None,
    }


def _price(visitor: Visitor, accounts: list[Account], charge: Charge, delta: float) -> dict[str, Any]:
    """What a query takes of the accounts that its asker may know: an analyst knows its own cap alone."""
    refused, charges = None, [charge] * len(accounts)
    require = entries.require_sums if visitor.is_analyst else entries.require_room
    try:
        require(accounts, charges)
    except (BudgetExceeded, AccountFrozen) as problem:
        refused = problem
    told: dict[str, Any] = {"refused": refused} | dict.fromkeys(("most", "times", "gauge", "price"))
    account = next((each for each in accounts if each.scope != "dataset"), None)
    if account is None:
        return told
    limits = ledger.limits_of(account)
    spent, paid = share(limits, account), price(limits, charge)
    pure = delta == 0 and limits.composition == "gdp"  # whose ε has no such bound in one formula
    return told | {
        "price": paid,
        "spent": spent,
        "times": min(map(times_covered, accounts, charges)) if paid.share else None,
        "gauge": gauge("gauge", spent, paid.share),
        "most": None if pure else views.largest_query(account, delta),
    }


def address_with_less(job: Job, plan: Plan | Part | None) -> str | None:
    """The address that plans a question on one dataset again with half its ε; None where that is not known.

    It has what the form asks for. Further options are for the analyst to choose anew.
    """
    if plan is None or isinstance(plan, Part | Federated):
        return None
    epsilon, delta = plan.target.epsilon / 2, plan.target.delta
    told: dict[str, Any] = {
        name: getattr(plan, name) for name in _usual_options(KINDS[job.kind]) if hasattr(plan, name)
    }
    told |= {"dataset": job.dataset_id, "kind": job.kind, "epsilon": typed(epsilon), "delta": typed(delta)}
    recipe, names = plan.shape.recipe, asked_columns(plan) or []
    if recipe is not None and recipe.label is not None:
        told["label"], *names = names
    if recipe is not None and len(recipe.chosen) < len(recipe.columns) - (recipe.label is not None):
        told["columns" if recipe.label is None else "features"] = names
    return urlencode(told, doseq=True)


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


def _curve(planner: Planner, question: ResolvedQuery, kind: Kind, chosen: Plan) -> list[tuple[float, float]]:
    """The error to expect at other ε by the same solver; of plans that take long it is not worked out.

    What the planner chose for this ε holds for all, so that it is one curve.
    """
    if "solver" in question.options and (solver := getattr(chosen, "solver", None)):
        question = replace(question, options=question.options | {"solver": solver})
    if kind.is_heavy(question.options):
        return []
    points: list[tuple[float, float]] = []
    (subject,) = question.about
    for i in range(_POINTS):
        epsilon = subject.target.epsilon * exp(log(_AROUND) * (2 * i / (_POINTS - 1) - 1))
        try:
            target = replace(subject.target, epsilon=epsilon)
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
