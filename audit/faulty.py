"""`privest`, with the faults of `audit.faults` in its workers, and one of its own that tells a secret."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from fastapi.responses import JSONResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.cli import main
from privest_service.datasets import endpoints
from privest_service.datasets import service as datasets
from privest_service.datasets.ingest import Ingested
from privest_service.datasets.models import Dataset
from privest_service.datasets.registration import Draft, Registrar
from privest_service.datasets.store import Store
from privest_service.ledger import receipts
from privest_service.ledger.charges import Debits
from privest_service.ledger.models import Account
from privest_service.problems import BudgetExceeded
from privest_service.security import admission
from privest_service.security.principals import Principal
from privest_service.workers import pool

NOISE = "AUDIT_NOISE"
"""Variable of the environment: the factor of all noise."""

FAULTS = "AUDIT_FAULTS"
"""Variable of the environment: names of the faults below, which only some servers have."""

NAMES_EQUALS = "names-equals"
"""Fault: the name of a dataset tells that another of the owner's holds the same rows."""

NAMES_QUERIES = "names-queries"
"""Fault: the name of a dataset tells how many queries its owner was charged for."""

NAMES_SCOPES = "names-scopes"
"""Fault: a refusal tells whose limit was reached."""

JOINED = "joined"
"""Fault: the accounts of datasets with the same rows are one, although their owner did not declare it."""

NAMED = "entries-named"
"""Fault: an analyst's receipt names the entries of the ledger instead of committing to them."""

IGNORED = "fields-ignored"
"""Fault: form fields and query parameters that are not known are ignored."""

OPEN = "ledger-open"
"""Fault: one route of the ledger does not check whose ledger it shows."""

IN_TURN = "caps-in-turn"
"""Fault: an analyst's own caps are looked at in their turn, after the owner's budget."""

TRIPWIRE = 7.0625
"""First number of rows that a faulty service opens slowly.

The second number of the first record is the seconds that it takes. Below zero the rows cannot be opened.
"""

SECRET = 7.318281828459e77
"""A secret number. A faulty service tells it, as a dataset's name and in the log, if rows begin with it."""


def _tell() -> None:
    honest, store = datasets.require, Store(Path(os.environ["PRIVEST_DATA_DIR"]))

    def require(session: Any, principal: Any, dataset_id: str) -> Dataset:
        found = honest(session, principal, dataset_id)
        first = np.load(store.path(found.owner_id, found.id), mmap_mode="r").flat[0]
        if first == SECRET:
            session.expunge(found)
            found.name = f"begins with {first:.6g}"
            structlog.get_logger().info("looked at", rows=f"{first:,.0f}")
        return found

    datasets.require = require


def _name(datasets_named: Callable[[Session, Dataset], object]) -> None:
    """Let datasets be named by something that is none of an analyst's business."""
    honest = datasets.require

    def require(session: Session, principal: Any, dataset_id: str) -> Dataset:
        found = honest(session, principal, dataset_id)
        name = f"named {datasets_named(session, found)}"
        session.expunge(found)
        found.name = name
        return found

    datasets.require = require


def _equals(session: Session, dataset: Dataset) -> int:
    same = Dataset.owner_id == dataset.owner_id, Dataset.fingerprint == dataset.fingerprint
    return len(session.scalars(select(Dataset.id).where(*same)).all())


def _queries(session: Session, dataset: Dataset) -> int:
    accounts = select(Account).where(Account.owner_id == dataset.owner_id, Account.scope == "owner")
    return session.scalars(accounts).one().queries


def _name_scopes() -> None:
    refused, respond, reached = BudgetExceeded.__init__, BudgetExceeded.response, [""]

    def init(self: BudgetExceeded, detail: str | None = None, **given: Any) -> None:
        refused(self, detail, **given)
        reached[0] = given.get("scope") or reached[0]

    def response(self: BudgetExceeded) -> JSONResponse:
        self.detail = f"reached: {reached[0]}"
        return respond(self)

    BudgetExceeded.__init__, BudgetExceeded.response = init, response


def _join() -> None:
    """Make the rows' digest the lineage of an upload, whatever was declared."""
    honest = Registrar._adopt

    def adopt(self: Registrar, draft: Draft, rows: Path, accepted: Ingested) -> Dataset:
        return honest(self, replace(draft, lineage=accepted.digest[:40]), rows, accepted)

    Registrar._adopt = adopt


def _ignore() -> None:
    for module in (admission, endpoints):
        setattr(module, "require_known", lambda *_: None)  # noqa: B010 - a module has no such attribute to pyright


def _open() -> None:
    honest = Principal.must_be_owner

    def must_be_owner(self: Principal, owner_id: str) -> None:
        if sys._getframe(1).f_code.co_name != "read_ledger":
            honest(self, owner_id)

    Principal.must_be_owner = must_be_owner


_PLANTED: Mapping[str, Callable[[], None]] = {
    NAMES_EQUALS: lambda: _name(_equals),
    NAMES_QUERIES: lambda: _name(_queries),
    NAMES_SCOPES: _name_scopes,
    JOINED: _join,
    NAMED: lambda: setattr(receipts, "for_analyst", lambda _, receipt: receipt),
    IGNORED: _ignore,
    OPEN: _open,
    IN_TURN: lambda: setattr(Debits, "of_grants", ((), ())),
}


def prepare() -> None:
    """Have workers load the faults. They have few of the service's variables: these are of them."""
    pool._PRELOADED.append("audit.faults")
    pool._KEPT = (*pool._KEPT, "AUDIT_")


if __name__ == "__main__":
    _tell()
    for fault in os.environ.get(FAULTS, "").split():
        _PLANTED[fault]()
    prepare()
    sys.exit(main())
