"""The ledger: entries to search, each with its mechanism, receipt and place in the chain; exports."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.estimators.federation import Part
from privest.estimators.registry import ESTIMATORS
from privest_service.dashboard import entries
from privest_service.dashboard.entries import Search
from privest_service.dashboard.page import Page, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.pages.report import VerifierDep
from privest_service.dashboard.session_auth import FormDep, OwnerDep, Visitor
from privest_service.datasets.models import Dataset
from privest_service.estimates.plans import stored_plan
from privest_service.exports.endpoints import exported
from privest_service.exports.export import heads_of
from privest_service.inputs import checked
from privest_service.ledger import service as ledger
from privest_service.ledger.views import price_of, share
from privest_service.limits import EXPORTS, in_thread
from privest_service.reports import behind
from privest_service.reports.formatting import noise, told_apart
from privest_service.reports.shares import analysts_of, platforms_of
from privest_service.reports.words import of_columns, title
from privest_service.security.dependencies import DatabaseDep, LimiterDep, SettingsDep
from privest_service.security.service import require_owner

router = APIRouter(prefix="/dashboard/ledger", route_class=Page)

_NAMED = 1000
"""Most datasets that are shown by name; entries about others show ids."""


async def _search(request: Request) -> Search:
    """What is looked for, of the address."""
    return checked(Search.model_validate, dict(request.query_params))


@router.get("")
def read(
    request: Request, visitor: OwnerDep, database: DatabaseDep, wanted: Annotated[Search, Depends(_search)]
) -> Response:
    """Entries, newest first."""
    with database.read() as session:
        seen = page_version(session, visitor.id)
        owner = require_owner(session, visitor.id)
        account = ledger.owner_account(session, visitor.id, window=wanted.window)
        analysts, datasets = analysts_of(session, visitor.id), names_of_datasets(session, visitor.id)
        text = wanted.text.strip().lower()
        named = [key for key, name in {**analysts, **datasets}.items() if text in name.lower()]
        found = entries.search(session, account, wanted, named)
        about = entries.columns_of(session, found.rows)
        platforms = platforms_of(session, (job and job.through for _, job in found.rows))
    return render(
        request,
        "ledger.html",
        seen=seen,
        found=found,
        about=about,
        wanted=wanted,
        account=account,
        windows=owner.window,
        analysts=analysts,
        names=analysts | platforms | {visitor.id: "you"},
        dataset_names=datasets,
        kinds={name: title(name) for name in ESTIMATORS},
        title=title,
        price=partial(price_of, ledger.limits_of(account)),
        further=wanted.chosen | {"before": found.further},
    )


def names_of_datasets(session: Session, owner_id: str) -> dict[str, str]:
    """What an owner registered, the latest of it; without what came with a question."""
    found = session.execute(
        select(Dataset.id, Dataset.name)
        .where(Dataset.owner_id == owner_id, ~Dataset.ephemeral)
        .order_by(Dataset.created_at.desc())
        .limit(_NAMED)
    )
    return told_apart(found)


async def _with_room(visitor: OwnerDep, limiter: LimiterDep) -> AsyncIterator[Visitor]:
    """An owner with room for one more export, until all of it is sent."""
    with limiter.hold(EXPORTS, visitor.id):
        yield visitor


@router.get("/export")
def export(visitor: Annotated[Visitor, Depends(_with_room)], database: DatabaseDep) -> StreamingResponse:
    """All of it, to keep and to verify."""
    return exported(database, visitor.id, "jsonl")


@router.get("/heads")
def heads(visitor: OwnerDep, database: DatabaseDep) -> Response:
    """The signed ends of all chains as a file, to be kept elsewhere."""
    with database.read() as session:
        found = heads_of(session, visitor.id)
    name = f"heads-{visitor.id}-{found.at[:10]}.json"
    return Response(
        found.model_dump_json(indent=2),
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.post("/verify")
async def verify(
    request: Request, visitor: OwnerDep, settings: SettingsDep, verifying: VerifierDep, form: FormDep
) -> Response:
    """Verify every entry and every receipt, by a worker, and note in the acts that it was done.

    Raises:
        Invalid: a key is none.
        TooManyRequests: the owner's ledger is being verified already.
    """
    _, verifying_it = verifying.begin(visitor.id, str(form.get("keys", "")).split(), lambda _: None)
    verdict = await verifying_it
    found = verdict.found

    def note(session: Session) -> None:
        behind.note_verified(session, visitor.id, found.entries, len(found.faults))

    await in_thread(verifying.database.run, note)
    return render(request, "verified.html", report=found, signer=settings.signer)


@router.get("/{seq}")
def entry(
    request: Request,
    seq: Annotated[int, Path(ge=1, lt=2**62)],
    visitor: OwnerDep,
    database: DatabaseDep,
    settings: SettingsDep,
    window: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
) -> Response:
    """One entry."""
    with database.read() as session:
        account = ledger.owner_account(session, visitor.id, window=window)
        detail = entries.detail(session, account, seq, settings.signer)
        platforms = platforms_of(session, [detail.job and detail.job.through])
        analysts, datasets = analysts_of(session, visitor.id), names_of_datasets(session, visitor.id)
    job = detail.job
    plan = stored_plan(job.kind, job.plan) if job else None
    limits = ledger.limits_of(account)
    told: dict[str, Any] = json.loads(detail.mechanism.content) if detail.mechanism else {}
    return render(
        request,
        "entry.html",
        detail=detail,
        account=account,
        limits=limits,
        price=price_of(limits, detail.entry),
        after=share(limits, detail.entry),
        names=analysts | platforms | {visitor.id: "you"},
        dataset_names=datasets,
        title=title(job.kind) if job else None,
        columns=of_columns(job.plan) if job else "",
        plan=plan,
        records=plan and (plan.n if isinstance(plan, Part) else plan.shape.n),
        releases=[noise(release) for release in told.get("releases", ())],
        mechanism=json.dumps(told, indent=2, ensure_ascii=False) if told else None,
    )
