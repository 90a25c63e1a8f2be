"""Published answers: of an owner's data, or of an analyst, and who reads them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy import select

from privest_service.dashboard.forms import texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AskerDep, FormDep, KeyHolderDep
from privest_service.datasets.models import Dataset
from privest_service.inputs import checked
from privest_service.ledger.units import EPSILON, as_number
from privest_service.published import service
from privest_service.published.schemas import NAME, PUBLISHED_NAME, NewPublication
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep
from privest_service.security.models import Analyst, Owner

router = APIRouter(prefix="/dashboard/published", route_class=Page)

_PAGE = 100


@router.get("")
def read(
    request: Request,
    visitor: AskerDep,
    database: DatabaseDep,
    after: Annotated[str, Query(pattern=f"^({NAME})?$")] = "",
) -> Response:
    """What concerns the visitor or what it may read, by name."""
    with database.read() as session:
        found = service.listed(session, visitor.principal, limit=_PAGE + 1, after=after)
        names = dict[str, str]()
        for table in (Owner, Analyst, Dataset):
            told = {id_ for each in found for id_ in (*each.readers, *each.datasets)}
            rows = session.execute(select(table.id, table.name).where(table.id.in_(told)))
            names |= {each.id: each.name or each.id for each in rows}
    return render(
        request,
        "published.html",
        found=found[:_PAGE],
        further=found[_PAGE - 1].publication.name if found[_PAGE:] else None,
        names=names,
        title=title,
        epsilon=lambda units: as_number(units, EPSILON),
    )


@router.post("")
def publish(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Publish the answer to a question of one's own, or publish it for others."""
    given = texts(form)
    name = checked(PUBLISHED_NAME.validate_python, given.get("name", ""))
    told = {
        "job": given.get("job", ""),
        "readers": given.get("readers", "").replace(",", " ").split(),
        "sql": "sql" in given,
    }
    body = checked(NewPublication.model_validate, told)
    database.run(
        lambda session: service.publish(
            session, visitor.principal, name, body.job, body.readers, in_sql=body.sql
        )
    )
    return redirect(request, "/published")


@router.post("/withdraw")
def withdraw(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Withdraw one."""
    name = checked(PUBLISHED_NAME.validate_python, texts(form).get("name", ""))
    database.run(lambda session: service.withdraw(session, visitor.principal, name))
    return redirect(request, "/published")
