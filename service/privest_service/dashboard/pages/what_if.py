"""What if: a query planned, its cost against what is left, its error as ε varies; and the query asked."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import QueryParams

from privest.estimators.federation import Plan
from privest_service.dashboard.budget_summary import unit
from privest_service.dashboard.charts import error_curve, gauge
from privest_service.dashboard.forms import texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AskerDep, AskingDep, FormDep, Visitor
from privest_service.dashboard.wishes import (
    EPSILON,
    USUAL,
    Wish,
    body_of,
    columns_offered,
    columns_picked,
    epsilon_to_begin_with,
    example_of,
    kind_of,
    privacy_of,
    question_of,
    settled,
    usual_options,
    wish_of,
)
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.terms import is_within
from privest_service.estimates.catalogue import KINDS, Kind
from privest_service.estimates.dependencies import PlannerDep, SubmissionsDep
from privest_service.estimates.endpoints import require_idempotency_key
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.room import Known, times_covered
from privest_service.estimates.service import Planner, Query
from privest_service.inputs import checked
from privest_service.ledger import entries
from privest_service.ledger import service as ledger
from privest_service.ledger.charges import require_pace
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.ledger.views import price, share
from privest_service.limits import in_thread
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    GrantRefuses,
    Invalid,
    PaceExceeded,
    Problem,
    TooManyRequests,
    Unavailable,
)
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/what-if", route_class=Page)

_AROUND = 16.0
"""Factor by which the curve goes below and above the chosen ε."""

_POINTS = 9


@router.get("")
def read(request: Request, visitor: AskerDep, database: DatabaseDep, planner: PlannerDep) -> Response:
    """The form and, once it is filled in, the plan."""
    given, problem, planned, wish = dict(request.query_params), None, None, Wish()
    try:
        wish = wish_of(request.query_params)
    except Invalid as error:
        problem = error
    with database.read() as session:
        own, _ = datasets.visible(session, visitor.principal)
    # Before a first plan the form is that of the dataset which it shows first.
    chosen = next((each for each in own if wish.dataset in (None, each.id)), None)
    asked = (wish.kind or USUAL.get(chosen.kind, "")) if chosen else ""
    offered = columns_offered(chosen, KINDS[asked]) if chosen and asked in KINDS else {}
    picked, usual = columns_picked(wish, offered), EPSILON
    if chosen and problem is None:
        try:
            plan = partial(question_of, database, planner, visitor, wish, chosen, asked, given | picked)
            usual = epsilon_to_begin_with(plan, wish.delta)
            if wish.dataset:
                planned = _planned(database, planner, visitor, plan(privacy_of(wish, usual)))
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
        usual=usual_options(KINDS[asked]) if asked in KINDS else {},
        offered=offered,
        picked=picked,
        by_column=asked in KINDS and "columns" in KINDS[asked].estimator.shown,
        for_usual=urlencode([each for each in request.query_params.multi_items() if each[0] != "rows"]),
        by_case=asked in KINDS and KINDS[asked].estimator.error.WITHIN == "unfavourable",
        epsilon=usual,
        example=example_of(KINDS[asked]) if asked in KINDS else "",
        title=title,
        unit=unit(asked),
        problem=problem,
        question=settled(request.query_params, planned["plan"].target.epsilon) if planned else "",
        less=settled(request.query_params, planned["most"])
        if planned and planned["refused"] and planned["most"]
        else "",
        key=secrets.token_hex(16),
        **(planned or {"plan": None}),
    )


@router.post("")
async def ask(
    request: Request, visitor: AskingDep, database: DatabaseDep, submissions: SubmissionsDep, form: FormDep
) -> Response:
    """Ask what was planned. The same form sent twice asks once."""
    sent = texts(form)
    question, key = QueryParams(sent.get("question", "")), f"page {sent.get('key', '')}"
    query = await in_thread(_query_of, database, visitor, question, sent.get("tag") or None)
    try:
        (answer,) = await submissions.submit(visitor.principal, query, require_idempotency_key(key))
    except (BudgetExceeded, GrantRefuses) as problem:
        most = (problem.room or {}).get("epsilon")
        less = settled(question, most or query.request.privacy.epsilon / 2)
        return render(request, "refused.html", status=problem.status, problem=problem, less=less)
    return redirect(request, f"/answers/{answer.job_id}")


def _query_of(database: Database, visitor: Visitor, question: QueryParams, tag: str | None) -> Query:
    """The query that a page planned, from the fields of its form."""
    wish = wish_of(question)
    with database.read() as session:
        chosen = datasets.require(session, visitor.principal, wish.dataset or "")
    kind = kind_of(wish.kind or USUAL.get(chosen.kind, ""))
    given = dict(question) | columns_picked(wish, columns_offered(chosen, kind))
    return Query(kind, checked(kind.request.model_validate, body_of(wish, kind, given) | {"tag": tag}))


def _planned(
    database: Database, planner: Planner, visitor: Visitor, question: ResolvedQuery
) -> dict[str, Any]:
    """All that the page says of a plan.

    Raises:
        Problem: it cannot be planned.
    """
    kind = question.kind
    about = question.about[0]
    with database.read() as session:
        known = Known.of(session, visitor.principal, question)
    (accounts,), (allowed,) = known.accounts, known.terms
    plan = planner.make_plan(question)
    charge = Charge.of(plan.target, plan.cost)
    priced = _price(visitor, accounts, charge)
    most = known.largest_epsilon(slack=charge.slack > 0)
    if not (visitor.is_analyst or priced["refused"]):  # of the pace an analyst may not know
        priced["refused"] = _too_fast(database, accounts, charge)
    if allowed and not is_within(charge, allowed):
        priced["refused"] = GrantRefuses("", about.dataset_id)
    error = plan.expected_error.standard_deviation
    curve = _curve(planner, question, kind, plan)
    return priced | {
        "plan": plan,
        "most": most,
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


def _too_fast(database: Database, accounts: Sequence[Account], charge: Charge) -> PaceExceeded | None:
    """The refusal of a charge that an owner's own pace does not allow at present."""
    try:
        with database.read() as session:
            require_pace(session, accounts, [charge] * len(accounts))
    except PaceExceeded as problem:
        return problem
    return None


def _price(visitor: Visitor, accounts: Sequence[Account], charge: Charge) -> dict[str, Any]:
    """What a query takes of the accounts that its asker may know: an analyst knows its own cap alone."""
    refused, charges = None, [charge] * len(accounts)
    require = entries.require_sums if visitor.is_analyst else entries.require_room
    try:
        require(accounts, charges)
    except (BudgetExceeded, AccountFrozen) as problem:
        refused = problem
    told: dict[str, Any] = {"refused": refused} | dict.fromkeys(("times", "gauge", "price"))
    account = next((each for each in accounts if each.scope != "dataset"), None)
    if account is None:
        return told
    limits = ledger.limits_of(account)
    spent, paid = share(limits, account), price(limits, charge)
    return told | {
        "price": paid,
        "spent": spent,
        "times": min(map(times_covered, accounts, charges)) if paid.share else None,
        "gauge": gauge("gauge", spent, paid.share),
    }


def _curve(planner: Planner, question: ResolvedQuery, kind: Kind, chosen: Plan) -> list[tuple[float, float]]:
    """The error to expect at other ε by the same solver; of plans that take long it is not worked out.

    What the planner chose for this ε holds for all, so that it is one curve.
    """
    if "solver" in question.options and (solver := getattr(chosen, "solver", None)):
        question = replace(question, options=question.options | {"solver": solver})
    if kind.certificates(question.options):
        return []
    points: list[tuple[float, float]] = []
    (subject,) = question.about
    for i in range(_POINTS):
        epsilon = subject.target.epsilon * exp(log(_AROUND) * (2 * i / (_POINTS - 1) - 1))
        try:
            target = replace(subject.target, epsilon=epsilon)
            other = replace(question, about=(replace(subject, target=target),))
            plan: Plan = planner.make_plan(other)
        except (
            ValueError,
            Invalid,
            TooManyRequests,
            Unavailable,
        ):  # so little, or so much, that there is none
            continue
        points.append((epsilon, plan.expected_error.standard_deviation))
    return points
