"""Datasets and grants: registered, found, shared, deleted."""

import hashlib
import hmac
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from anyio import CancelScope
from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from privest.metadata import DatasetMetadata
from privest_service.connections.schemas import NewConnection, NewDatabase
from privest_service.connections.sources import fetch
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.datasets.ingest import Ingested
from privest_service.datasets.models import IS_LEFT, Dataset, Grant
from privest_service.datasets.parsing import ROWS, UPLOAD, parse
from privest_service.datasets.schemas import DatasetSchema
from privest_service.datasets.store import Store
from privest_service.formats import Format
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Limits
from privest_service.problems import (
    DatabaseUnavailable,
    DatasetInvalid,
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    Unavailable,
)
from privest_service.security.principals import Principal
from privest_service.services import Services
from privest_service.upload_errors import RefusedUploadError

_DUMMY_ROWS, _DUMMY_NUMBERS = 20, 200_000
"""At most so many, and of wide records so few that they make a small answer: two at least, or none."""

_UNASKED = timedelta(hours=1)
"""After which no question comes to rows that were brought for one: the service was killed between them."""

MOST_LISTED = 1000
"""Datasets that are listed at a time."""

_LONGEST_LIST = 2**20
"""Characters of their schemas, after which a list ends, too."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CURSOR = r"[0-9]{1,17}-[!-~]{1,40}"
"""What a list's cursor looks like."""


@dataclass(frozen=True)
class Arrived:
    """What a source says of the file that it filled.

    Attributes:
        form: the file's format.
        ordered: whether the records stand in an order of the file's own: none decides another's place.
    """

    form: Format
    ordered: bool = True


Source = Callable[[Path], Awaitable[Arrived]]
"""Fills an empty file with rows as they arrive."""


def uploaded(services: Services, upload: BinaryIO, form: Format, sha256: str | None = None) -> Source:
    """A file that came with the request.

    Args:
        services: of this process.
        upload: the file.
        form: its format.
        sha256: that the caller says it has, in hexadecimal digits.
    """

    async def spool(target: Path) -> Arrived:
        await services.engine.in_thread(_spool, upload, target, sha256)
        return Arrived(form)

    return spool


def behind(services: Services, connection: NewConnection, path: str) -> Source:
    """What lies behind a connection."""

    async def copy(target: Path) -> Arrived:
        limit, data_dir = services.settings.max_dataset_bytes, str(services.settings.data_dir.resolve())
        form = await services.engine.in_worker("fetch", fetch, connection, path, str(target), limit, data_dir)
        # A database sorts by a key that each record has a part in.
        return Arrived(form, ordered=not isinstance(connection, NewDatabase))

    return copy


def inline(services: Services, rows: list[Any]) -> Source:
    """Records that came in a request."""

    async def write(target: Path) -> Arrived:
        await services.engine.in_thread(lambda: target.write_text(json.dumps(rows)))
        return Arrived("json")

    return write


async def register(
    services: Services,
    owner_id: str,
    source: Source,
    schema: DatasetSchema,
    *,
    name: str | None = None,
    rows_of: str | None = None,
    header: bool | None = None,
    ephemeral: bool = False,
) -> Dataset:
    """Copy rows from their source, validate them in a worker and make them a dataset.

    Nothing half-written is ever visible, and nothing is left of what was refused or came to no end.

    Args:
        services: of this process.
        owner_id: whose rows they are.
        source: of the rows.
        schema: what they must be.
        name: by which people know them.
        rows_of: a dataset of the owner's, deleted or not, that holds the same rows, as the owner declares.
        header: whether the first line of a csv file names its columns, if anybody said so.
        ephemeral: for one question, after which `sweep` removes them.

    Raises:
        DatasetInvalid: the source is refused, or its rows break a rule of the schema.
        Invalid: the owner has no dataset that `rows_of` names.
        TooLarge: the owner's datasets would take more than they may; or have no room, before any look.
    """
    store, dataset_id = services.store, new_id("ds")
    lineage = await services.engine.in_thread(_lineage, services, owner_id, rows_of) or dataset_id
    folder = store.incoming / dataset_id
    try:
        # From the source on: else one owner's files, or copies, would take the disk or the turn of all.
        async with services.engine.turn(owner_id):
            await services.engine.in_thread(_require_room, services, owner_id, 1)
            await services.engine.in_thread(_begin, folder)
            found = await source(folder / UPLOAD)
            accepted = await services.engine.in_worker(
                "intake",
                partial(parse, ordered=found.ordered),
                str(folder),
                found.form,
                schema.intake().of_csv(header),
                services.settings.max_dataset_bytes,
                services.settings.intake_timeout,
            )
            return await services.engine.in_thread(
                _adopt,
                services,
                folder / ROWS,
                dataset_id,
                owner_id,
                schema,
                accepted,
                name,
                lineage,
                ephemeral,
            )
    except RefusedUploadError as refused:
        raise DatasetInvalid(faults=refused.faults) from None
    except OSError:
        raise Unavailable("there is no room for this at present; nothing was stored") from None
    finally:
        # With what a worker left that was stopped, or a parser without number: also if the caller went away.
        with CancelScope(shield=True):
            await services.engine.in_thread(partial(shutil.rmtree, folder, ignore_errors=True))


def _begin(folder: Path) -> None:
    """Make the folder of an upload, with an empty file in it."""
    folder.mkdir(mode=0o700)
    (folder / UPLOAD).touch(0o600)


def _adopt(
    services: Services,
    draft: Path,
    dataset_id: str,
    owner_id: str,
    schema: DatasetSchema,
    accepted: Ingested,
    name: str | None,
    lineage: str,
    ephemeral: bool,
) -> Dataset:
    """Move validated rows to their place, and write down that they are there; or neither."""
    _require_room(services, owner_id, draft.stat().st_size)
    store = services.store

    def note(session: Session) -> Dataset:
        dataset = Dataset(
            id=dataset_id,
            owner_id=owner_id,
            name=name,
            kind=schema.kind,
            dataset_schema=schema.model_dump_json(),
            n=accepted.n,
            fingerprint=fingerprint(services.settings.secret, owner_id, accepted.digest),
            lineage=lineage,
            ephemeral=ephemeral,
        )
        session.add(dataset)
        session.flush()
        if not ephemeral:
            ledger.ensure_account(session, owner_id, "dataset", lineage)
        return dataset

    try:
        store.adopt(draft, owner_id, dataset_id)
        return services.database.run(note)
    except DatabaseUnavailable:  # perhaps it was noted: if not, `clear` removes the rows
        raise
    except BaseException:
        store.remove(owner_id, dataset_id)
        raise


def _lineage(services: Services, owner_id: str, rows_of: str | None) -> str | None:
    """The lineage of the dataset that an upload is declared to hold the rows of.

    Raises:
        Invalid: the owner has no such dataset.
    """
    if rows_of is None:
        return None
    with services.database.read() as session:
        of = session.get(Dataset, rows_of)
        if of is None or of.owner_id != owner_id or of.ephemeral:
            raise Invalid(faults=[Fault(location="rows_of", rule="is not the id of a dataset of yours")])
        return of.lineage


def fingerprint(secret: bytes, owner_id: str, digest: str) -> str:
    """The mark of an owner's rows; nobody without the secret can compute it from rows.

    Args:
        secret: of the service, which the process that reads the rows does not have.
        owner_id: whose rows they are, so that no two owners' can be compared.
        digest: of the rows.
    """
    return hmac.new(secret, f"{owner_id}\0{digest}".encode(), hashlib.sha256).hexdigest()


def _require_room(services: Services, owner_id: str, size: int) -> None:
    most = services.settings.max_owner_bytes
    if services.store.bytes_of(owner_id) + size > most:
        raise TooLarge(f"all datasets of an owner take at most {most} bytes: delete some")


def _spool(upload: BinaryIO, target: Path, sha256: str | None) -> None:
    digest = hashlib.sha256()
    with target.open("r+b") as file:
        while piece := upload.read(2**20):
            digest.update(piece)
            file.write(piece)
    if sha256 is not None and digest.hexdigest() != sha256.lower():
        raise DatasetInvalid(
            faults=[Fault(location="sha256", rule="is not the SHA-256 of the file that arrived")]
        )


def require(session: Session, principal: Principal, dataset_id: str) -> Dataset:
    """A dataset that the caller owns or was granted.

    Raises:
        NotFound: there is none for this caller.
    """
    return require_access(session, principal, dataset_id)[0]


def require_access(
    session: Session, principal: Principal, dataset_id: str, *, hold: bool = False
) -> tuple[Dataset, Grant | None]:
    """A dataset that the caller owns or was granted, with that grant.

    Args:
        session: of the caller's transaction.
        principal: who asks.
        dataset_id: for what.
        hold: let neither be withdrawn before this transaction ends. SQLite has one writer anyway.

    Raises:
        NotFound: there is none for this caller.
    """
    lock = {"read": True} if hold else None
    dataset = session.get(Dataset, dataset_id, with_for_update=lock)
    if dataset is None or dataset.deleted_at is not None:
        raise NotFound
    if dataset.owner_id == principal.id:
        return dataset, None
    grant = session.get(Grant, (dataset_id, principal.id), with_for_update=lock)
    if grant is None or grant.revoked_at is not None:
        raise NotFound
    return dataset, grant


def require_own(session: Session, principal: Principal, dataset_id: str) -> Dataset:
    """A dataset that the caller owns.

    Raises:
        Forbidden: it was granted to the caller, who is not its owner.
        NotFound: there is none for this caller.
    """
    dataset = require(session, principal, dataset_id)
    if dataset.owner_id != principal.id:
        raise Forbidden
    return dataset


def visible(
    session: Session, principal: Principal, *, limit: int = MOST_LISTED, cursor: str = ""
) -> tuple[list[Dataset], str | None]:
    """Datasets that the caller owns or was granted, newest first, and the cursor of those that follow.

    Args:
        session: of the caller's transaction.
        principal: who asks.
        limit: of how many; fewer come where their schemas are long.
        cursor: where an earlier list ended.
    """
    granted = select(Grant.dataset_id).where(Grant.analyst_id == principal.id, Grant.revoked_at.is_(None))
    theirs = (
        select(Dataset.id, Dataset.created_at, func.length(Dataset.dataset_schema))
        .where(
            Dataset.deleted_at.is_(None),
            ~Dataset.ephemeral,
            or_(Dataset.owner_id == principal.id, Dataset.id.in_(granted)),
        )
        .order_by(Dataset.created_at.desc(), Dataset.id)
        .limit(limit + 1)
    )
    if cursor:
        microseconds, _, last = cursor.partition("-")
        then = _EPOCH + timedelta(microseconds=int(microseconds))
        theirs = theirs.where(
            or_(Dataset.created_at < then, and_(Dataset.created_at == then, Dataset.id > last))
        )
    rows = session.execute(theirs).all()
    room = sum(length <= _LONGEST_LIST for length in accumulate(length for _, _, length in rows))
    listed = rows[: min(limit, max(1, room))]
    found = {
        each.id: each
        for each in session.scalars(select(Dataset).where(Dataset.id.in_([row.id for row in listed])))
    }
    further = None
    if len(listed) < len(rows):
        last = listed[-1]
        further = f"{(last.created_at - _EPOCH) // timedelta(microseconds=1)}-{last.id}"
    return [found[row.id] for row in listed], further


def with_same_rows(session: Session, dataset: Dataset) -> list[Dataset]:
    """Other datasets of the owner with the same rows, as their fingerprints tell: for its eyes alone."""
    return list(
        session.scalars(
            select(Dataset).where(
                Dataset.owner_id == dataset.owner_id,
                Dataset.fingerprint == dataset.fingerprint,
                Dataset.id != dataset.id,
                Dataset.deleted_at.is_(None),
                ~Dataset.ephemeral,
            )
        )
    )


def delete(session: Session, dataset: Dataset) -> None:
    """Withdraw a dataset: queries that no worker has claimed are voided, the ledger's entries stay."""
    session.execute(update(Dataset).where(Dataset.id == dataset.id).values(deleted_at=now()))
    charges.void_waiting(session, dataset_id=dataset.id)


def forget(services: Services, dataset: Dataset) -> None:
    """Undo the registration of rows that came to no question."""
    services.database.run(lambda session: session.delete(session.get_one(Dataset, dataset.id)))
    remove_rows(services.store, dataset)


def clear(database: Database, store: Store) -> None:
    """Delete the rows that no dataset has any more: of a service that was killed between two steps."""
    left = store.old_rows(_UNASKED.total_seconds())
    with database.read() as session:
        for dataset_id, owner_id in left:
            dataset = session.get(Dataset, dataset_id)
            if dataset is None or dataset.deleted_at is not None:
                store.remove(owner_id, dataset_id)


def sweep(database: Database, store: Store) -> None:
    """Drop the ephemeral datasets whose question is over, and those that never came to one."""
    waiting = Job.state.in_(("reserved", "claimed"))
    theirs = select(Job.id).where(Job.dataset_id == Dataset.id)
    over = or_(theirs.exists(), Dataset.created_at < now() - _UNASKED)
    with database.read() as session:
        found = session.scalars(select(Dataset).where(IS_LEFT, over, ~theirs.where(waiting).exists())).all()
    for dataset in found:
        database.run(lambda session, gone=dataset: delete(session, gone))
        remove_rows(store, dataset)


def remove_rows(store: Store, dataset: Dataset) -> None:
    """Delete the rows, once the withdrawal is committed."""
    store.remove(dataset.owner_id, dataset.id)


def put_grant(session: Session, dataset: Dataset, analyst_id: str, cap: Limits) -> Grant:
    """Grant, grant anew, or change the cap of a grant; what was spent before counts.

    Raises:
        Invalid: more than the cap is spent already.
    """
    grant = session.get(Grant, (dataset.id, analyst_id), with_for_update=True)
    if grant is None:
        grant = Grant(dataset_id=dataset.id, analyst_id=analyst_id)
        session.add(grant)
    elif grant.revoked_at is not None:
        grant.revoked_at, grant.created_at = None, now()
    subject = grant_subject(dataset.id, analyst_id)
    ledger.set_cap(session, ledger.ensure_account(session, dataset.owner_id, "analyst", subject).id, cap)
    return grant


def put_cap(session: Session, dataset: Dataset, cap: Limits) -> None:
    """Cap what may be spent on a dataset and all others that were declared to hold its rows.

    Raises:
        Invalid: more than the cap is spent already.
    """
    account = ledger.ensure_account(session, dataset.owner_id, "dataset", dataset.lineage)
    ledger.set_cap(session, account.id, cap)


def grant_subject(dataset_id: str, analyst_id: str) -> str:
    """By which the account of a grant is found."""
    return f"{dataset_id}/{analyst_id}"


def revoke_grant(session: Session, dataset_id: str, analyst_id: str) -> None:
    """End a grant at once; the analyst's queries that no worker has claimed are voided.

    Raises:
        NotFound: there is none in force.
    """
    grant = session.get(Grant, (dataset_id, analyst_id))
    if grant is None or grant.revoked_at is not None:
        raise NotFound
    grant.revoked_at = now()
    charges.void_waiting(session, dataset_id=dataset_id, submitter_id=analyst_id)


def dummy_rows(shape: DatasetMetadata) -> list[object]:
    """Synthetic records; these public facts are all they know.

    Raises:
        Invalid: records are so wide that two of them are more than an answer should hold.
    """
    width = prod(shape.record)
    if 2 * width > _DUMMY_NUMBERS:
        raise Invalid(
            f"records of {width} numbers are too wide to be shown, {_DUMMY_NUMBERS // 2} is the most: "
            'ask for an estimate with "dummy": true instead'
        )
    count = min(_DUMMY_ROWS, _DUMMY_NUMBERS // width)
    rows = shape.dummy(count, np.random.default_rng(0))
    return np.where(np.isnan(rows), np.array(None), rows).tolist()  # JSON has no NaN
