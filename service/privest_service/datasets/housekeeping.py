"""Housekeeping: removes rows that no dataset has, and datasets that came with one question."""

from datetime import timedelta

from sqlalchemy import or_, select

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
