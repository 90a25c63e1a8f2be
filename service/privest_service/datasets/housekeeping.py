"""Housekeeping: removes rows that no dataset has, and datasets that came with one question."""

from datetime import timedelta

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.datasets.models import IS_LEFT, Dataset
from privest_service.datasets.service import delete, remove_rows
from privest_service.datasets.store import Store
from privest_service.jobs.models import Job

_UNASKED = timedelta(hours=1)
"""Age at which rows that were brought for one question are dropped if none has come.

The service was killed between the two steps.
"""


def clear(database: Database, store: Store) -> None:
    """Delete the rows that no dataset has any more: of a service that was killed between two steps."""
    left = store.old_rows(_UNASKED.total_seconds())
    with database.read() as session:
        for dataset_id, owner_id in left:
            dataset = session.get(Dataset, dataset_id)
            if dataset is None or dataset.deleted_at is not None:
                store.remove(owner_id, dataset_id)


_WAITS = Job.state.in_(("reserved", "claimed"))
_THEIRS = select(Job.id).where(Job.dataset_id == Dataset.id)
_OVER = select(Dataset.id).where(
    IS_LEFT,
    or_(_THEIRS.exists(), Dataset.created_at < bindparam("before")),
    ~_THEIRS.where(_WAITS).exists(),
)


def sweep(database: Database, store: Store) -> None:
    """Drop the ephemeral datasets whose question is over, and those that never came to one."""
    with database.looking() as connection:
        found = connection.execute(_OVER, {"before": now() - _UNASKED}).scalars().all()
    for dataset_id in found:
        dataset = database.run(lambda session, gone=dataset_id: _delete(session, gone))
        remove_rows(store, dataset)


def _delete(session: Session, dataset_id: str) -> Dataset:
    dataset = session.get_one(Dataset, dataset_id)
    delete(session, dataset)
    return dataset
