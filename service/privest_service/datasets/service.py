"""Datasets and grants: found, shared, deleted."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from privest.data.metadata import DatasetMetadata
from privest.data.table_metadata import TableMetadata
from privest_service import acts
from privest_service.database import now
from privest_service.database.tables import behind, cursor_at
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.store import Store
from privest_service.datasets.terms import Terms, has_ended, limits_of_question
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Limits
from privest_service.problems import Forbidden, GrantRefuses, Invalid, NotFound
from privest_service.security.models import Analyst, Owner
from privest_service.security.principals import Principal

DUMMY_ROWS, _DUMMY_NUMBERS = 20, 200_000
"""Most synthetic rows of a dataset, and most numbers in them.

Wide records have fewer rows: two at least, or none.
"""

MOST_LISTED = 1000
"""Datasets, or grants, that are listed at a time."""

_LONGEST_LIST = 2**20
"""Most characters of schemas in one list of datasets. The list ends after them."""

GRANT_CURSOR = r"[!-.0-~]{1,40}/[!-.0-~]{1,40}"
"""What the cursor of a list of grants looks like: the subject of the last one."""


def require(session: Session, principal: Principal, dataset_id: str) -> Dataset:
    """A dataset that the caller owns or was granted. Raises NotFound: there is none for this caller."""
    return require_access(session, principal, dataset_id)[0]


def require_access(session: Session, principal: Principal, dataset_id: str) -> tuple[Dataset, Grant | None]:
    """A dataset that the caller owns or was granted, with that grant.

    Raises:
        GrantRefuses: the caller's grant has come to its end.
        NotFound: there is none for this caller.
    """
    return access(session, principal, [dataset_id])[0]


_NAMED = select(Dataset).where(Dataset.id.in_(bindparam("datasets", expanding=True))).order_by(Dataset.id)
_GRANTED = (
    select(Grant)
    .where(Grant.dataset_id.in_(bindparam("datasets", expanding=True)))
    .where(Grant.analyst_id == bindparam("analyst"))
    .order_by(Grant.dataset_id)
)
_BOTH = (
    select(Dataset, Grant)
    .outerjoin(Grant, and_(Grant.dataset_id == Dataset.id, Grant.analyst_id == bindparam("analyst")))
    .where(Dataset.id.in_(bindparam("datasets", expanding=True)))
)
"""Select datasets and an analyst's grants on them: made once, as it takes longer to make than to run."""

_NAMED_HELD, _GRANTED_HELD = (
    each.with_for_update(read=True).execution_options(populate_existing=True) for each in (_NAMED, _GRANTED)
)
"""Select them as they stand now, and lock them against changes. SQLite has one writer anyway."""


def access(
    session: Session, principal: Principal, dataset_ids: Sequence[str], *, lock: bool = False
) -> list[tuple[Dataset, Grant | None]]:
    """Datasets that the caller owns or was granted, each with that grant, in the order of their ids.

    With `lock`, nobody withdraws or changes any of them before the transaction ends: datasets are locked by
    id, and then grants.

    Raises:
        GrantRefuses: the caller's grant on one of them has come to its end.
        NotFound: one of them is none for this caller.
    """
    given: dict[str, Any] = {"datasets": list(dataset_ids), "analyst": principal.id}
    if not lock:
        found = {dataset.id: (dataset, grant) for dataset, grant in session.execute(_BOTH, given)}
    else:
        named = session.scalars(_NAMED_HELD, given).all()
        others = any(each.owner_id != principal.id for each in named)
        grants = {each.dataset_id: each for each in session.scalars(_GRANTED_HELD, given)} if others else {}
        found = {each.id: (each, grants.get(each.id)) for each in named}
    return [_required(principal, *found.get(each, (None, None))) for each in dataset_ids]


def _required(
    principal: Principal, dataset: Dataset | None, grant: Grant | None
) -> tuple[Dataset, Grant | None]:
    if dataset is None or dataset.deleted_at is not None:
        raise NotFound
    if dataset.owner_id == principal.id:
        return dataset, None
    if grant is None or grant.revoked_at is not None:
        raise NotFound
    if has_ended(grant):
        ended = f"Your grant on dataset {dataset.id} has ended. Ask the owner for a new one."
        raise GrantRefuses(ended, dataset.id)
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


def _in_force() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Conditions on grants: they were not revoked, and have not come to their end."""
    return Grant.revoked_at.is_(None), or_(Grant.expires_at.is_(None), Grant.expires_at > now())


def visible(
    session: Session, principal: Principal, *, limit: int = MOST_LISTED, cursor: str = ""
) -> tuple[list[Dataset], str | None]:
    """Datasets that the caller owns or was granted, newest first, and the cursor of those that follow.

    Fewer than `limit` come where their schemas are long. The cursor tells where an earlier list ended.
    """
    granted = select(Grant.dataset_id).where(Grant.analyst_id == principal.id, *_in_force())
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
        theirs = theirs.where(behind(cursor, Dataset.created_at, Dataset.id))
    rows = session.execute(theirs).all()
    room = sum(length <= _LONGEST_LIST for length in accumulate(length for _, _, length in rows))
    listed = rows[: min(limit, max(1, room))]
    found = {
        each.id: each
        for each in session.scalars(select(Dataset).where(Dataset.id.in_([row.id for row in listed])))
    }
    further = None
    if len(listed) < len(rows):
        further = cursor_at(listed[-1].created_at, listed[-1].id)
    return [found[row.id] for row in listed], further


def with_same_rows(session: Session, dataset: Dataset) -> list[Dataset]:
    """Other datasets of the owner with the same rows, as fingerprints tell. Only the owner may see them."""
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
    if not dataset.ephemeral:
        details = {"name": dataset.name}
        acts.record(session, dataset.owner_id, "dataset.deleted", subject=dataset.id, details=details)


def remove_rows(store: Store, dataset: Dataset) -> None:
    """Delete the rows, once the withdrawal is committed."""
    store.remove(dataset.owner_id, dataset.id)


def put_grant(
    session: Session, dataset: Dataset, analyst_id: str, cap: Limits, terms: Terms | None = None
) -> Grant:
    """Grant, grant anew, or change the cap and the terms of a grant; what was spent before counts.

    Requests of before are held to the new terms when they are approved.

    Raises:
        Invalid: more than the cap is spent already, or the terms leave room for no question.
    """
    terms = terms or Terms()
    limits_of_question(session, dataset, terms.max_epsilon)
    grant = session.get(Grant, (dataset.id, analyst_id), with_for_update=True)
    new = grant is None or grant.revoked_at is not None
    if grant is None:
        grant = Grant(dataset_id=dataset.id, analyst_id=analyst_id)
        session.add(grant)
    elif grant.revoked_at is not None:
        grant.revoked_at, grant.created_at = None, now()
    changed = new or Terms.of(grant) != terms
    terms.put_into(grant)
    subject = grant_subject(dataset.id, analyst_id)
    account = ledger.ensure_account(session, dataset.owner_id, "analyst", subject)
    former = ledger.set_cap(session, account.id, cap)
    # With the name, so that what pages call the analyst can be held against what the owner was told then.
    who = {"analyst": analyst_id, "analyst_name": session.get_one(Analyst, analyst_id).name}
    if former is not None and not new:
        _tell_cap(session, dataset, former, cap, who)
    if changed:
        kind, details = ("grant.made", cap.told()) if new else ("grant.changed", {})
        told = {**who, **details, **terms.told()}
        acts.record(session, dataset.owner_id, kind, subject=dataset.id, details=told)
    return grant


def _tell_cap(
    session: Session, dataset: Dataset, former: Limits, cap: Limits, who: Mapping[str, str] | None = None
) -> None:
    """Record that a cap was changed, from what to what: a dataset's, or that of somebody's grant on it."""
    before = {f"{name}_before": amount for name, amount in former.told().items()}
    details = {**(who or {}), **cap.told(), **before}
    acts.record(session, dataset.owner_id, "cap.set", subject=dataset.id, details=details)


def require_grant(
    session: Session, principal: Principal, dataset_id: str, analyst_id: str
) -> tuple[Grant, Account]:
    """A grant that was not revoked, with the account of its cap, for its owner or its analyst.

    Raises:
        NotFound: there is none for this caller.
    """
    dataset, grant = session.get(Dataset, dataset_id), session.get(Grant, (dataset_id, analyst_id))
    if dataset is None or grant is None or dataset.deleted_at is not None or grant.revoked_at is not None:
        raise NotFound
    if principal.id not in (dataset.owner_id, analyst_id):
        raise NotFound
    return grant, accounts_of(session, [grant])[grant_subject(dataset_id, analyst_id)]


def accounts_of(session: Session, grants: Sequence[Grant]) -> dict[str, Account]:
    """The accounts in force that count what grants cost, by the subjects of these."""
    owners = select(Dataset.owner_id).where(Dataset.id.in_({each.dataset_id for each in grants}))
    found = session.scalars(
        select(Account)
        .join(Owner, and_(Owner.id == Account.owner_id, Owner.window == Account.window))
        .where(
            Account.owner_id.in_(owners),
            Account.scope == "analyst",
            Account.subject.in_([grant_subject(each.dataset_id, each.analyst_id) for each in grants]),
        )
        .execution_options(populate_existing=True)
    )
    return {each.subject: each for each in found}


def grants(
    session: Session, principal: Principal, *, limit: int = MOST_LISTED, cursor: str = ""
) -> tuple[list[Grant], str | None]:
    """Grants in force of an analyst, or on an owner's datasets, and the cursor of those that follow.

    They come by dataset and analyst. The cursor tells where an earlier list ended.
    """
    theirs = (
        select(Grant)
        .join(Dataset)
        .where(
            Dataset.deleted_at.is_(None),
            *_in_force(),
            or_(Dataset.owner_id == principal.id, Grant.analyst_id == principal.id),
        )
    )
    if cursor:
        dataset_id, _, analyst_id = cursor.partition("/")
        later = and_(Grant.dataset_id == dataset_id, Grant.analyst_id > analyst_id)
        theirs = theirs.where(or_(Grant.dataset_id > dataset_id, later))
    found = list(session.scalars(theirs.order_by(Grant.dataset_id, Grant.analyst_id).limit(limit + 1)))
    listed = found[:limit]
    return listed, grant_subject(listed[-1].dataset_id, listed[-1].analyst_id) if found[limit:] else None


def put_cap(session: Session, dataset: Dataset, cap: Limits) -> None:
    """Cap what may be spent on a dataset and all others that were declared to hold its rows.

    Raises:
        Invalid: more than the cap is spent already.
    """
    account = ledger.ensure_account(session, dataset.owner_id, "dataset", dataset.lineage)
    if (former := ledger.set_cap(session, account.id, cap)) is not None:
        _tell_cap(session, dataset, former, cap)


def grant_subject(dataset_id: str, analyst_id: str) -> str:
    """The subject under which the account of a grant is stored."""
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
    owner_id, details = session.get_one(Dataset, dataset_id).owner_id, {"analyst": analyst_id}
    acts.record(session, owner_id, "grant.revoked", subject=dataset_id, details=details)


def dummy_rows(shape: DatasetMetadata, most: int = DUMMY_ROWS) -> list[object]:
    """Synthetic records, those of a dummy run; these public facts are all they know.

    Those of a table are objects by the names of its columns, with values of the columns' types.

    Raises:
        Invalid: records are so wide that two of them are more than an answer should hold.
    """
    width = prod(shape.record)
    if 2 * width > _DUMMY_NUMBERS:
        raise Invalid(
            f"Records of {width} numbers are too wide to be shown: the most is {_DUMMY_NUMBERS // 2}. "
            'Ask for an estimate with "dummy": true instead.'
        )
    count = min(most, _DUMMY_NUMBERS // width)
    rows = shape.dummy(count, np.random.default_rng(0))
    if isinstance(shape, TableMetadata):
        return [
            {c.name: c.cell(value) for c, value in zip(shape.columns, row, strict=True)}
            for row in rows.tolist()
        ]
    return np.where(np.isnan(rows), np.array(None), rows).tolist()  # JSON has no NaN
