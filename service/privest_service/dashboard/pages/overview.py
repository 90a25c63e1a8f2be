"""The overview: how much is spent, by whom, on what, and what is left."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from privest_service.dashboard import entries
from privest_service.dashboard.budget_summary import (
    BudgetSnapshot,
    BudgetSummary,
    standing,
)
from privest_service.dashboard.charts import Bar, BurnPoint, bars, burn_down, gauge
from privest_service.dashboard.page import Page, place, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.session_auth import FormDep, ManagingOwnerDep, VisitorDep
from privest_service.dashboard.what_is_learned import everybody
from privest_service.database import now
from privest_service.datasets import service as datasets
from privest_service.ledger import promises
from privest_service.ledger import service as ledger
from privest_service.ledger.views import price_of
from privest_service.reports.behind import last_verified
from privest_service.reports.formatting import LONGEST, count, duration, rounded_up, spent_percent, told_apart
from privest_service.reports.shares import Part, analysts_of, by_analyst, by_dataset, platforms_of
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard", route_class=Page)

_LATEST = 8


@router.get("")
@router.get("/")
def overview(request: Request, visitor: VisitorDep, database: DatabaseDep) -> Response:
    """All at a glance."""
    if visitor.is_admin:
        return redirect(request, "/admin")
    if visitor.is_analyst:
        return redirect(request, "/granted")
    with database.read() as session:
        seen = page_version(session, visitor.id)
        account = ledger.owner_account(session, visitor.id)
        own, _ = datasets.visible(session, visitor.principal)
        analysts = analysts_of(session, visitor.id)
        stands = standing(session, account)
        latest = entries.search(session, account, entries.Search()).rows[:_LATEST]
        about = entries.columns_of(session, latest)
        platforms = platforms_of(session, (job and job.through for _, job in latest))
        names = analysts | platforms | {visitor.id: "you"}
        who, what = by_analyst(session, account, analysts), by_dataset(session, account, own)
        learned = everybody(session, account)
        verified = last_verified(session, visitor.id)
        rules = promises.windows_of(session, account)
    ends = now() + stands.lasts if stands.lasts is not None and stands.lasts < LONGEST else None
    if rules.next is not None and ends is not None and ends > rules.next:
        ends = None  # a window of its own begins before
    return render(
        request,
        "overview.html",
        stands=stands,
        account=account,
        gauge=gauge("gauge", stands.spent),
        burn_down=burn_down(
            "burn-down", [_point(request, each, names) for each in stands.history], now(), ends
        ),
        lasts=None if stands.lasts is None else duration(stands.lasts),
        ends=ends,
        renews=rules.next,
        rules=rules,
        basic_ends=_basic_ends(stands),
        by_analyst=bars("by-analyst", [bar(request, part, "analyst") for part in who], "Spent by analyst"),
        by_dataset=bars("by-dataset", [bar(request, part, "dataset") for part in what], "Spent by dataset"),
        latest=latest,
        about=about,
        names=names,
        dataset_names=told_apart(own),
        datasets=own,
        granted=bool(analysts),
        learned=learned,
        title=title,
        price=partial(price_of, ledger.limits_of(account)),
        verified=verified,
        seen=seen,
    )


def _point(request: Request, moment: BudgetSnapshot, names: dict[str, str]) -> BurnPoint:
    label = moment.what
    if moment.submitter is not None:
        label += f" by {names.get(moment.submitter, moment.submitter)}"
    if (cost := moment.price) is not None:
        label += f", ε {rounded_up(cost.epsilon)} at your δ, {spent_percent(cost.share)} of the budget"
    if moment.kind == "void":
        label += " given back"
    href = place(request, f"/ledger/{moment.seq}")
    return BurnPoint(moment.at, moment.left, href, label)


def _basic_ends(stands: BudgetSummary) -> BudgetSnapshot | None:
    """After which entry nothing would be left if ε and δ were simply added up."""
    if stands.budget.composition == "basic":
        return None
    return next((moment for moment in stands.history if moment.left_basic <= 0), None)


def bar(request: Request, part: Part, column: str) -> Bar:
    """What a part of a budget took, and where its entries are."""
    linked = part.id not in ("own", "gone")
    return Bar(
        label=part.label,
        share=part.spent,
        note=f"{spent_percent(part.spent)} · {count(part.queries, 'question')}",
        href=place(request, f"/ledger?{column}={part.id}") if linked else None,
    )


@router.post("/freeze")
def freeze(request: Request, visitor: ManagingOwnerDep, database: DatabaseDep, form: FormDep) -> Response:
    """Stop all queries, or let them go on."""

    def change(session: Session) -> None:
        ledger.set_frozen(session, visitor.id, form.get("frozen") == "yes", by="owner")

    database.run(change)
    return redirect(request, "")
