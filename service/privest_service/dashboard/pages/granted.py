"""What an analyst may ask: datasets granted to it, their public facts, and what is left under its caps."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.dashboard.page import Page, render
from privest_service.dashboard.page_version import analyst_version
from privest_service.dashboard.pages.datasets import columns_of
from privest_service.dashboard.session_auth import AnalystDep, Visitor
from privest_service.database.tables import CURSOR
from privest_service.datasets import service
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.schemas import SCHEMA
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.ledger.schemas import Budget
from privest_service.ledger.views import share
from privest_service.reports.words import terms_of
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/granted", route_class=Page)

_PAGE = 100


@dataclass(frozen=True)
class Cap:
    """An analyst's own cap on a dataset, and what its own questions took of it."""

    budget: Budget
    spent: float


@router.get("")
def read(
    request: Request,
    visitor: AnalystDep,
    database: DatabaseDep,
    after: Annotated[str, Query(pattern=f"^({CURSOR})?$")] = "",
) -> Response:
    """The datasets granted to the analyst, newest first."""
    with database.read() as session:
        seen = analyst_version(session, visitor.id)
        granted, further = service.visible(session, visitor.principal, limit=_PAGE, cursor=after)
        caps, said = _caps(session, visitor, granted), _terms(session, visitor, granted)
    link = f"{str(request.base_url).rstrip('/')}/dashboard/analysts?analyst={visitor.id}"
    return render(
        request, "granted.html", seen=seen, datasets=granted, caps=caps, said=said, further=further, link=link
    )


@router.get("/{dataset_id}")
def one(request: Request, dataset_id: str, visitor: AnalystDep, database: DatabaseDep) -> Response:
    """Public facts of one, and the analyst's own cap on it."""
    with database.read() as session:
        dataset = service.require(session, visitor.principal, dataset_id)
        seen, caps = analyst_version(session, visitor.id), _caps(session, visitor, [dataset])
        said = _terms(session, visitor, [dataset])
    schema = SCHEMA.validate_json(dataset.dataset_schema)
    shape = schema.shape(dataset.n)
    return render(
        request,
        "granted_dataset.html",
        seen=seen,
        dataset=dataset,
        cap=caps.get(dataset.id),
        said=said[dataset.id],
        shape=shape.record,
        columns=columns_of(shape),
        schema=schema.model_dump(mode="json", exclude_none=True),
    )


def _terms(session: Session, visitor: Visitor, granted: list[Dataset]) -> dict[str, list[str]]:
    """What the grants of an analyst say besides caps, in words, by dataset."""
    ids = [each.id for each in granted]
    found = session.scalars(select(Grant).where(Grant.analyst_id == visitor.id, Grant.dataset_id.in_(ids)))
    return {each.dataset_id: terms_of(each) for each in found}


def _caps(session: Session, visitor: Visitor, granted: list[Dataset]) -> dict[str, Cap]:
    """The caps in force of an analyst, by dataset; where there is none, none is told."""
    ids = [each.id for each in granted]
    own = session.scalars(
        select(Grant).where(Grant.analyst_id == visitor.id, Grant.dataset_id.in_(ids))
    ).all()
    accounts = service.accounts_of(session, own)
    found = {each: accounts[service.grant_subject(each, visitor.id)] for each in ids}
    return {
        each: Cap(views.budget(account), share(ledger.limits_of(account), account))
        for each, account in found.items()
        if ledger.limits_of(account).capped
    }
