"""Datasets and grants: registered, found, shared, deleted."""

import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np
from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.database.tables import new_id
from privest_service.datasets.ingest import Format, Ingested, RefusedUploadError, ingest
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.schemas import DatasetSchema
from privest_service.datasets.store import Store
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Limits
from privest_service.problems import DatasetInvalid, Forbidden, NotFound
from privest_service.security.principals import Principal
from privest_service.services import Services

_DUMMY_ROWS, _DUMMY_NUMBERS = 20, 200_000
"""At most so many, and of wide records so few that they make a small answer."""


async def register(
    services: Services, owner_id: str, upload: BinaryIO, form: Format, schema: DatasetSchema
) -> Dataset:
    """Validate an upload in a worker and make it a dataset; nothing half-written is ever visible.

    Raises:
        DatasetInvalid: the file breaks a rule of its schema.
    """
    store, dataset_id = services.store, new_id("ds")
    source, draft = (store.incoming / f"{dataset_id}.{end}" for end in ("upload", "npy"))
    try:
        await services.engine.in_thread(_spool, upload, source)
        accepted: Ingested = await services.engine.in_worker(
            ingest,
            str(source),
            form,
            schema.shape(0),
            str(draft),
            owner_id,
            services.settings.secret,
        )

        def adopt(session: Session) -> Dataset:
            dataset = Dataset(
                id=dataset_id,
                owner_id=owner_id,
                kind=schema.kind,
                dataset_schema=schema.model_dump_json(),
                n=accepted.n,
                fingerprint=accepted.fingerprint,
            )
            session.add(dataset)
            session.flush()
            ledger.ensure_account(session, owner_id, "dataset", dataset.fingerprint)
            return dataset

        def publish() -> Dataset:
            store.adopt(draft, owner_id, dataset_id)
            try:
                return services.database.run(adopt)
            except BaseException:
                store.remove(owner_id, dataset_id)
                raise

        return await services.engine.in_thread(publish)
    except RefusedUploadError as refused:
        raise DatasetInvalid(faults=refused.faults) from None
    finally:
        source.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def _spool(upload: BinaryIO, target: Path) -> None:
    with target.open("xb") as file:
        shutil.copyfileobj(upload, file, 2**20)


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


def visible(session: Session, principal: Principal) -> list[Dataset]:
    """All datasets that the caller owns or was granted, newest first."""
    granted = select(Grant.dataset_id).where(Grant.analyst_id == principal.id, Grant.revoked_at.is_(None))
    return list(
        session.scalars(
            select(Dataset)
            .where(
                Dataset.deleted_at.is_(None),
                or_(Dataset.owner_id == principal.id, Dataset.id.in_(granted)),
            )
            .order_by(Dataset.created_at.desc(), Dataset.id)
        )
    )


def delete(session: Session, dataset: Dataset) -> None:
    """Withdraw a dataset: queries that no worker has claimed are voided, the ledger's entries stay."""
    session.execute(update(Dataset).where(Dataset.id == dataset.id).values(deleted_at=now()))
    ledger.void_waiting(session, dataset_id=dataset.id)


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
    """Cap what may be spent on the rows of a dataset, under whatever handles and schemas.

    Raises:
        Invalid: more than the cap is spent already.
    """
    account = ledger.ensure_account(session, dataset.owner_id, "dataset", dataset.fingerprint)
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
    ledger.void_waiting(session, dataset_id=dataset_id, submitter_id=analyst_id)


def dummy_rows(schema: DatasetSchema) -> list[object]:
    """Synthetic records; the schema is all they know."""
    width = int(np.prod(schema.shape(1).record))
    count = max(2, min(_DUMMY_ROWS, _DUMMY_NUMBERS // width))
    return schema.shape(count).dummy(count, np.random.default_rng(0)).tolist()
