"""The owner's budget: what it promises, raised, renewed by hand or by rule, and how fast it may be spent."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy import select

from privest_service.dashboard.budget_summary import standing
from privest_service.dashboard.forms import largest_of_form, number, texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.session_auth import FormDep, ManagingOwnerDep, OwnerDep, Visitor
from privest_service.database import Database, now
from privest_service.inputs import checked
from privest_service.ledger import promises, renewals, views
from privest_service.ledger import service as ledger
from privest_service.ledger.endpoints import changed
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import BudgetChange, RenewalRules, Windows
from privest_service.ledger.windows import LEAST_DAYS
from privest_service.problems import Fault, Invalid, Problem
from privest_service.reports.formatting import duration
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/budget", route_class=Page)

_DIGITS = 10
"""Digits that no number of a window or of days has."""

_WINDOWS = 100
"""Most windows that are listed, the latest of them."""


@router.get("")
def read(request: Request, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """What the budget promises, and the forms that change it."""
    return _page(request, visitor, database)


def _page(
    request: Request,
    visitor: Visitor,
    database: Database,
    form: str = "",
    given: Mapping[str, str] | None = None,
    problem: Problem | None = None,
) -> Response:
    """The page; with the form of this name as it was filled in, which has a problem or was only looked at."""
    with database.read() as session:
        seen = page_version(session, visitor.id)
        present = ledger.owner_account(session, visitor.id)
        latest = session.scalars(
            select(Account)
            .where(Account.owner_id == visitor.id, Account.scope == "owner")
            .order_by(Account.window.desc())
            .limit(_WINDOWS)
        ).all()
        windows = [
            (views.budget(each), views.chance_of_guessing(ledger.limits_of(each), each)) for each in latest
        ]
        rules = promises.windows_of(session, present)
        filled = dict(given) if form == "rules" and given is not None else _in_force(rules)
        stands = standing(session, present)
        next_by = renewals.would_open(session, present, *_numbers(filled))
    limits = ledger.limits_of(present)
    largest = views.largest_single(limits)
    if form == "raise" and given is not None:
        try:
            largest = largest_of_form(given, limits.composition)
        except Invalid as error:
            largest, problem = None, problem or error
    return render(
        request,
        "budget.html",
        status=problem.status if problem else 200,
        account=present,
        budget=stands.budget,
        stands=stands,
        largest=largest,
        lasts=None if stands.lasts is None else duration(stands.lasts),
        outlasts=rules.next is not None and stands.lasts is not None and stands.lasts > rules.next - now(),
        windows=windows,
        most=views.chance_of_guessing(limits, limits, ""),
        rules=rules,
        filled=filled,
        next_by=next_by,
        refused=form,
        given=given or {},
        problem=problem,
        **({} if form else {"seen": seen}),  # what a form says is not at the address to be looked at again
    )


def _in_force(rules: Windows) -> dict[str, str]:
    """The rules for windows as fields of the form; least days that follow from the period are left out."""
    given = {"every": rules.every or "", "promise": rules.promise}
    if rules.most is not None:
        given["most"] = str(rules.most)
    if rules.least_days != LEAST_DAYS[rules.every]:
        given["least_days"] = str(rules.least_days)
    return given


def _change(
    request: Request, visitor: Visitor, database: Database, form: str, given: Mapping[str, str]
) -> Response:
    """Change the budget as a form says, or show the page with what is wrong in it."""
    try:
        change = checked(BudgetChange.model_validate, _FORMS[form](given))
        database.run(lambda session: changed(session, visitor.principal, visitor.id, change))
    except Problem as problem:
        return _page(request, visitor, database, form, given, problem)
    return redirect(request, "/budget")


@router.post("")
def raise_it(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Raise the budget, which cannot be lowered again.

    Where the form asks to `see` it, only show the largest question of the raised budget.
    """
    given = texts(form)
    if "see" in given:
        return _page(request, visitor, database, "raise", given)
    return _change(request, visitor, database, "raise", given)


@router.post("/renew")
def renew(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Open a new window: all budgets begin anew, with a promise of their own."""
    return _change(request, visitor, database, "renew", texts(form))


@router.post("/rules")
def rule(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Say how windows follow each other from now on."""
    given = texts(form)
    if "see" in given:
        return _seen(request, visitor, database, given)
    return _change(request, visitor, database, "rules", given)


@router.post("/pace")
def pace(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Say how much of a window seven days may take."""
    return _change(request, visitor, database, "pace", texts(form))


def _seen(request: Request, visitor: Visitor, database: Database, given: Mapping[str, str]) -> Response:
    """The page with a rule that is not set, and when windows would open by it."""
    try:
        _rules(given)
    except Invalid as problem:
        return _page(request, visitor, database, "rules", given, problem)
    return _page(request, visitor, database, "rules", given)


def _raised(given: Mapping[str, str]) -> dict[str, Any]:
    _require_sure(given)
    return {name: number(given.get(name, ""), name) for name in ("epsilon", "delta")}


def _renewed(given: Mapping[str, str]) -> dict[str, Any]:
    _require_sure(given)
    return {"window": "new", "replaces": _whole(given, "replaces")}


def _ruled(given: Mapping[str, str]) -> dict[str, Any]:
    """The rules for windows; a promise for all windows together stays for ever."""
    rules = _rules(given).model_dump()
    if rules["promise"] == "lifetime":
        _require_sure(given)
        if rules["most"] is None:
            told = Fault(location="most", rule="must be said for a promise for all windows together")
            raise Invalid(faults=[told])
    return {"renewal": rules}


def _rules(given: Mapping[str, str]) -> RenewalRules:
    """The rules for windows as a form has them. Raises Invalid: they cannot be."""
    rules: dict[str, Any] = {"every": given.get("every") or None, "promise": given.get("promise")}
    rules |= {name: _whole(given, name) for name in ("most", "least_days") if given.get(name)}
    return checked(RenewalRules.model_validate, rules)


def _numbers(given: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Most windows and least days of rules; none of rules that cannot be."""
    try:
        rules = _rules(given)
    except Invalid:
        return None, None
    return rules.most, rules.least_days


def _paced(given: Mapping[str, str]) -> dict[str, Any]:
    """The pace as a share; nothing filled in is no such limit."""
    text = given.get("pace") or "100"
    if not 1e-4 <= number(text, "pace") <= 100:
        raise Invalid(faults=[Fault(location="pace", rule="must be above 0 and at most 100")])
    return {"pace": number(text, "pace") / 100}


_FORMS = {"raise": _raised, "renew": _renewed, "rules": _ruled, "pace": _paced}
"""What each form asks for, as the interface has it."""


def _whole(given: Mapping[str, str], name: str) -> int:
    """A whole number of a form.

    Raises:
        Invalid: it is none.
    """
    text = given.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        raise Invalid(faults=[Fault(location=name, rule="must be a whole number")])
    return int(text)


def _require_sure(given: Mapping[str, str]) -> None:
    """Refuse what cannot be undone as long as nobody said to be sure.

    Raises:
        Invalid: nobody did.
    """
    if given.get("sure") != "yes":
        rule = "must be ticked: this cannot be undone"
        raise Invalid(faults=[Fault(location="sure", rule=rule)])
