"""Plans that were looked at before are told again, as long as all rows that they follow from are the same.

Each look reads the versions of these rows, in one statement. So whoever changes one of them, in whatever
process, has what was remembered forgotten, and tells nobody of it.
"""

import threading
from typing import Any

from cachetools import FIFOCache
from sqlalchemy import ColumnElement, and_, bindparam, case, select
from sqlalchemy.orm import aliased

from privest_service.database import Database, First, Looks, now
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates.planning import Planner
from privest_service.ledger.models import Account
from privest_service.security.models import Owner

_ROOM = 2**25
"""Most bytes of all plans that are remembered."""

_OWNERS, _DATASETS, _ANALYSTS = aliased(Account), aliased(Account), aliased(Account)

_OWN = Dataset.owner_id == bindparam("caller")
_LIMITS = (
    _OWNERS.id,
    _OWNERS.mu_squared_limit,
    _OWNERS.slack_limit,
    _OWNERS.epsilon_limit,
    _OWNERS.delta_limit,
)


def _in_force(account: type[Account], scope: str, subject: Any) -> ColumnElement[bool]:
    """That an account is the owner's for a scope and a subject, in the window in force."""
    return and_(
        account.owner_id == Owner.id,
        account.scope == scope,
        account.subject == subject,
        account.window == Owner.window,
    )


_VERSIONS = (
    select(
        Dataset.deleted_at,
        Grant.expires_at,
        *(getattr(Grant, name) for name in ("created_at", "revoked_at", "approval", "kinds", "max_epsilon")),
        *_LIMITS,
        # Only an owner's plans tell what was spent. An analyst's time would tell that others asked.
        *(case((_OWN, version)) for each in (_OWNERS, _DATASETS) for version in (each.id, each.seq)),
        _ANALYSTS.id,
        _ANALYSTS.seq,
    )
    .select_from(Dataset)
    .join(Owner, Owner.id == Dataset.owner_id)
    .outerjoin(Grant, and_(Grant.dataset_id == Dataset.id, Grant.analyst_id == bindparam("caller")))
    .outerjoin(_OWNERS, _in_force(_OWNERS, "owner", ""))
    .outerjoin(_DATASETS, _in_force(_DATASETS, "dataset", Dataset.lineage))
    .outerjoin(_ANALYSTS, _in_force(_ANALYSTS, "analyst", bindparam("grant")))
    .where(Dataset.id == bindparam("dataset"))
)
"""Selects what tells whether anything changed that a plan, or its room, follows from.

Nothing else of a dataset ever changes, and every change of an account moves its `seq`. Others' charges, of
which an analyst may not know, change nothing of the analyst's.
"""

Versions = tuple[Any, ...]


_About = tuple[str, str]
"""A caller and a dataset."""


def _versions(first: First, about: _About) -> Versions | None:
    """The versions of all rows that a caller's plan on a dataset follows from; None for who has none now."""
    caller, dataset = about
    found = first(_VERSIONS, caller=caller, dataset=dataset, grant=f"{dataset}/{caller}")
    if found is None:
        return None
    deleted_at, expires_at, *_ = found
    if deleted_at is not None or (expires_at is not None and expires_at <= now()):
        return None
    return tuple(found)


class Remembered:
    """Texts by name, each with the versions that it follows from; what was kept first is forgotten first.

    Args:
        database: has the rows that they follow from.
        planner: makes those that are not remembered.
    """

    def __init__(self, database: Database, planner: Planner) -> None:
        self.database, self.planner = database, planner
        self._kept = FIFOCache[str, tuple[Versions, bytes]](_ROOM, getsizeof=lambda kept: len(kept[1]))
        self._lock = threading.Lock()
        self._looks = Looks(database, _versions)

    async def versions(self, caller_id: str, dataset_id: str) -> Versions | None:
        """The versions of all rows that a caller's plan on a dataset follows from; None if it has none now.

        They are read after this was asked.
        """
        return await self._looks.look((caller_id, dataset_id))

    def recall(self, name: str, now_at: Versions) -> bytes | None:
        """The text that was kept under a name, if it is of these versions."""
        with self._lock:
            kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == now_at else None

    def keep(self, name: str, at: Versions, text: bytes) -> None:
        """Keep a text, unless it is longer than all that may be kept."""
        with self._lock:
            if len(text) <= _ROOM:
                self._kept[name] = at, text
