"""Analysts: who may ask about what, up to which cap, and what that has cost."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.dashboard import what_is_learned
from privest_service.dashboard.charts import bars
from privest_service.dashboard.forms import identifier, largest_of_form, number, texts
from privest_service.dashboard.grant_form import (
    CHOICES,
    TERMS,
    fields_in_force,
    require_seen,
    terms_given,
)
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.pages.overview import bar
from privest_service.dashboard.session_auth import FormDep, ManagingOwnerDep, OwnerDep, Visitor
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.endpoints import cap_of
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.schemas import NewCap
from privest_service.inputs import checked
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.ledger.models import WHOLE, Account
from privest_service.ledger.units import EPSILON, Charge, Limits, as_number
from privest_service.ledger.views import epsilon_of, share_of_charge
from privest_service.problems import Fault, Invalid, NotFound, Problem
from privest_service.reports.formatting import percent, rounded_down, typed
from privest_service.reports.shares import analysts_of, by_analyst
from privest_service.reports.words import terms_of
from privest_service.security.dependencies import DatabaseDep
from privest_service.security.models import Analyst
from privest_service.security.service import require_analyst

router = APIRouter(prefix="/dashboard/analysts", route_class=Page)


_PAGE = 200


@dataclass(frozen=True)
class GrantRow:
    """One grant as a row of a table, with its terms in words.

    `spent` is a share of the whole budget and `of_cap` of the cap, of which `left` is the ε of the largest
    single question. `limited_by` says what limits its questions besides, or without a cap.
    """

    grant: Grant
    terms: list[str]
    analyst: str
    dataset: Dataset
    cap: Limits | None
    limited_by: list[str]
    left: float | None
    of_cap: float | None
    spent: float
    epsilon: float
    queries: int


@router.get("")
def read(
    request: Request,
    visitor: OwnerDep,
    database: DatabaseDep,
    page: Annotated[int, Query(ge=0, lt=10**6)] = 0,
) -> Response:
    """The grants in force, and who spent what."""
    return _page(request, visitor, database, dict(request.query_params), None, page)


def _page(
    request: Request,
    visitor: Visitor,
    database: Database,
    given: dict[str, str],
    problem: Problem | None,
    page: int = 0,
) -> Response:
    with database.read() as session:
        seen = page_version(session, visitor.id)
        account = ledger.owner_account(session, visitor.id)
        names, (own, _) = analysts_of(session, visitor.id), datasets.visible(session, visitor.principal)
        parts = by_analyst(session, account, names)
        rows = _rows(session, account, names, page)
        if problem is None:
            given = fields_in_force(session, visitor.id, given) | given
        learned = [
            *what_is_learned.by_analyst(session, account, names, _in_force(session, visitor.id)),
            what_is_learned.everybody(session, account),
        ]
        new = _newcomer(session, given, names)
    limits, largest = ledger.limits_of(account), None
    if given.get("epsilon"):
        amounts = {
            "epsilon": given["epsilon"],
            "delta": given.get("delta") or typed(views.budget(account).limit.delta),
        }
        try:
            largest = largest_of_form(amounts, limits.composition)
        except Invalid as error:
            problem = problem or (error if "see" in given else None)
    return render(
        request,
        "analysts.html",
        seen=seen,
        account=account,
        status=problem.status if problem else 200,
        rows=rows[:_PAGE],
        further=page + 1 if len(rows) > _PAGE else None,
        chart=bars("by-analyst", [bar(request, part, "analyst") for part in parts], "Spent by analyst"),
        datasets=own,
        known=names | new,
        learned=learned,
        delta=views.budget(account).limit.delta,
        largest=largest,
        composition=limits.composition,
        given=given,
        problem=problem,
        kind_choices=CHOICES,
        terms_open=any(given.get(name) for name in (*CHOICES, *TERMS)),
    )


def _in_force(session: Session, owner_id: str) -> set[str]:
    """The subjects of an owner's grants that are neither revoked nor on datasets that are deleted."""
    found = session.execute(
        select(Grant.dataset_id, Grant.analyst_id)
        .join(Dataset, Dataset.id == Grant.dataset_id)
        .where(Dataset.owner_id == owner_id, Dataset.deleted_at.is_(None), Grant.revoked_at.is_(None))
    )
    return {datasets.grant_subject(*each) for each in found}


def _newcomer(session: Session, given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The analyst whom an address names and who was granted nothing yet: whoever has the id may grant."""
    try:
        found = session.get(Analyst, identifier(given, "analyst"))
    except Invalid:
        return {}
    return {} if found is None or found.id in names else {found.id: found.name}


def _rows(session: Session, account: Account, names: dict[str, str], page: int) -> list[GrantRow]:
    """The grants of a page, and one more where another page follows."""
    limits = ledger.limits_of(account)
    grants = session.execute(
        select(Grant, Dataset)
        .join(Dataset, Dataset.id == Grant.dataset_id)
        .where(Dataset.owner_id == account.owner_id, Dataset.deleted_at.is_(None), Grant.revoked_at.is_(None))
        .order_by(Grant.created_at, Grant.dataset_id, Grant.analyst_id)
        .limit(_PAGE + 1)
        .offset(page * _PAGE)
    )
    own = {
        each.subject: each
        for each in session.scalars(
            select(Account).where(
                Account.owner_id == account.owner_id,
                Account.scope == "analyst",
                Account.window == account.window,
            )
        )
    }
    limited = _limited_by(session, account)
    rows: list[GrantRow] = []
    for grant, dataset in grants:
        theirs = own.get(datasets.grant_subject(dataset.id, grant.analyst_id))
        cap = ledger.limits_of(theirs) if theirs else None
        sums = (
            Charge(theirs.epsilon_spent, theirs.delta_spent, theirs.mu_squared_spent, theirs.slack_spent)
            if theirs
            else Charge(0, 0, 0, 0)
        )
        capped = theirs if cap and cap.capped else None
        rows.append(
            GrantRow(
                grant=grant,
                terms=terms_of(grant),
                analyst=names.get(grant.analyst_id, grant.analyst_id),
                dataset=dataset,
                cap=cap if capped else None,
                limited_by=limited[dataset.lineage],
                left=views.budget(capped).largest_query.epsilon if capped else None,
                of_cap=share_of_charge(ledger.limits_of(capped), sums) if capped else None,
                spent=share_of_charge(limits, sums),
                epsilon=epsilon_of(limits, sums),
                queries=theirs.queries if theirs else 0,
            )
        )
    return rows


def _limited_by(session: Session, account: Account) -> defaultdict[str, list[str]]:
    """What limits questions whatever a grant says, in words, by the lineage of their dataset."""
    pace = [] if account.pace in (None, WHOLE) else [f"{percent(account.pace / WHOLE)} of it in seven days"]
    found = defaultdict[str, list[str]](lambda: ["your budget", *pace])
    capped = select(Account).where(
        Account.owner_id == account.owner_id, Account.scope == "dataset", Account.window == account.window
    )
    for each in session.scalars(capped):
        if (limits := ledger.limits_of(each)).capped:
            left = views.budget(each).largest_query.epsilon
            cap = f"the dataset's cap of ε {rounded_down(as_number(limits.epsilon, EPSILON))}"
            found[each.subject] = ["your budget", *pace, f"{cap}, with room for ε {rounded_down(left)}"]
    return found


@router.post("")
def grant(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Grant, or change the cap of a grant, as `PUT /v1/datasets/{id}/grants/{analyst}` does.

    Where the form asks to `see` it, only show the largest question of the cap.
    """
    given = texts(form)
    given["analyst"] = given.get("other") or given.get("analyst", "")
    if "see" in given:
        return _page(request, visitor, database, given, None)

    def change(session: Session) -> None:
        dataset = datasets.require_own(session, visitor.principal, identifier(given, "dataset"))
        delta = views.budget(ledger.owner_account(session, visitor.id)).limit.delta
        try:
            require_analyst(session, identifier(given, "analyst"))
        except NotFound:
            raise Invalid(
                faults=[
                    Fault(
                        location="analyst",
                        rule="is no analyst here: choose a name, or ask the analyst for its id",
                    )
                ]
            ) from None
        require_seen(session.get(Grant, (dataset.id, given["analyst"])), given)
        cap = cap_of(session, dataset, _cap(given, delta))
        datasets.put_grant(session, dataset, given["analyst"], cap, terms_given(given))

    try:
        database.run(change)
    except Invalid as problem:
        return _page(request, visitor, database, given, problem)
    return redirect(request, "/analysts")


def _cap(given: dict[str, str], delta: float) -> NewCap:
    """The cap in a form; no ε beside the budget's δ means none, and no δ beside an ε that of the budget.

    Raises:
        Invalid: one holds no number, or they break a rule.
    """
    found = {name: number(text, name) for name in ("epsilon", "delta") if (text := given.get(name))}
    if "epsilon" not in found and found.get("delta") == delta:  # with which the form begins
        found = {}
    return checked(NewCap.model_validate, {"delta": delta} | found if "epsilon" in found else found)


@router.post("/revoke")
def revoke(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """End a grant at once."""
    dataset_id, analyst_id = (identifier(form, name) for name in ("dataset", "analyst"))

    def change(session: Session) -> None:
        datasets.require_own(session, visitor.principal, dataset_id)
        datasets.revoke_grant(session, dataset_id, analyst_id)

    database.run(change)
    return redirect(request, "/analysts")
