"""The service without HTTP or workers: requests are charged, claimed and ended by its own functions."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, configure_mappers

from privest.privacy.accounting import PrivacyTarget
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.terms import Terms
from privest_service.estimates import requests
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.charging import Answer, Rules
from privest_service.estimates.engine import Engine
from privest_service.estimates.requests import Verdict
from privest_service.estimates.service import Planner, Query, Submissions
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Decision, IdempotencyKey, Job, Transition
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Charge, Limits
from privest_service.security.principals import Principal
from privest_service.security.service import create_analyst
from testing.server import SIGNER, until

KIND = KINDS["frechet-mean"]


def never(*_: Any, **__: Any) -> str:
    """Stands for a worker that no plan here needs."""
    raise AssertionError


def submissions_on(database: Any, room: int = 10_000) -> Submissions:
    """Return the part that submits queries, without workers; so many jobs may wait."""
    return Submissions(database, Planner(never), lambda: None, b"", Rules(room))


def submit(submissions: Submissions, caller: Principal, query: Query, key: str) -> Answer:
    """Submit one query, and wait for it in an event loop of its own."""
    (answer,) = asyncio.run(submissions.submit(caller, query, key))
    return answer


SCHEMA_TEXT = '{"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "radius": 1.0}'
TARGET = {"epsilon": 0.1, "delta": 1e-6}
PATHS = {
    "requested": [],
    "reserved": ["reserved"],
    "claimed": ["reserved", "claimed"],
    "committed": ["reserved", "claimed", "committed"],
    "failed": ["reserved", "claimed", "failed"],
    "voided": ["reserved", "voided"],
    "denied": ["denied"],
    "expired": ["expired"],
    "withdrawn": ["withdrawn"],
}
"""States of a job, and the ways that lead to each, after `requested` where it has to be approved."""

UNCHARGED = ("requested", "denied", "expired", "withdrawn")
"""States in which nobody was charged."""


def _request(dataset: str) -> Any:
    return KIND.request.model_validate({"dataset": {"id": dataset}, "privacy": TARGET, "reuse": False})


def _planned() -> tuple[Charge, str]:
    configure_mappers()
    shape = SCHEMA.validate_json(SCHEMA_TEXT).shape(50)
    plan = KIND.plan_for(KIND.options(_request("ds_x")), [(shape, PrivacyTarget(**TARGET))])
    return Charge.of(plan.target, plan.cost), KIND.plans.dump_json(plan).decode()


COST, PLAN = _planned()
"""Charge for every request in a `World`, and its stored plan.

They are computed once: processes that are forked need not load the planning code.
"""


@dataclass(frozen=True)
class World:
    """An owner, its dataset and an analyst who was granted it, by name: to be sent to other processes."""

    owner: str
    analyst: str
    dataset: str
    approval: bool = False

    @classmethod
    def make(cls, database: Database, limits: Limits | None = None, *, approval: bool = False) -> "World":
        """A new one in a database, perhaps of an owner who approves each question."""
        with database.write() as session:
            owner, _ = create_owner(session, "x", limits or Limits.of(1.0, 1e-5, "gdp"))
            analyst, _ = create_analyst(session, "x")
            dataset = Dataset(
                id=new_id("ds"),
                owner_id=owner.id,
                kind="points",
                dataset_schema=SCHEMA_TEXT,
                n=50,
                fingerprint=new_id("rows"),
            )
            session.add(dataset)
            session.flush()
            ledger.ensure_account(session, owner.id, "dataset", dataset.lineage)
            composition = limits.composition if limits else "gdp"
            cap, terms = Limits.none(composition), Terms(approval=approval)
            datasets.put_grant(session, dataset, analyst.id, cap, terms)
            return cls(owner.id, analyst.id, dataset.id, approval)

    def submit(self, database: Database, key: str, *, room: int = 10_000) -> str:
        """The job that answers the analyst's request under a key, if the queue has room."""
        caller, query = Principal("analyst", self.analyst), Query(KIND, _request(self.dataset))
        return submit(submissions_on(database, room), caller, query, key).job_id

    def revoke(self, database: Database) -> None:
        """Withdraw the grant, which voids what waits."""
        with database.write() as session:
            datasets.revoke_grant(session, self.dataset, self.analyst)

    def decide(self, database: Database, job: str, verdict: Verdict) -> str:
        """Have the owner decide on a request; returns the state that it then has."""
        owner = Principal("owner", self.owner)
        return database.run(lambda session: requests.decide(session, owner, job, verdict, "so it is").state)

    def withdraw(self, database: Database, job: str) -> str:
        """Have the analyst withdraw a request; returns the state that it then has."""
        analyst = Principal("analyst", self.analyst)
        return database.run(lambda session: requests.withdraw(session, analyst, job).state)

    def accounts(self, session: Session) -> list[Account]:
        """Accounts of the owner, of the dataset and of the grant, in every window."""
        theirs = select(Account).where(Account.owner_id == self.owner)
        return list(session.scalars(theirs.order_by(Account.scope.desc(), Account.window)))

    def jobs(self, session: Session) -> list[Job]:
        """All that were ever reserved."""
        return list(session.scalars(select(Job).where(Job.owner_id == self.owner).order_by(Job.created_at)))

    def state(self, database: Database) -> str | None:
        """The state of the one job, if there is one."""
        with database.read() as session:
            states = [job.state for job in self.jobs(session)]
        assert len(states) <= 1
        return states[0] if states else None

    def check(self, database: Database) -> str | None:
        """Everything that must hold at any moment; the state of the one job, if there is one.

        Key, job and debits are there together or not at all; every sum is that of the jobs that stay
        charged; every job came to its state on one of the legal ways; the chain is whole.
        """
        with database.read(snapshot=True) as session:
            jobs = self.jobs(session)
            keys = session.scalars(
                select(IdempotencyKey.job_id).where(IdempotencyKey.principal_id == self.analyst)
            ).all()
            assert sorted(keys) == sorted(job.id for job in jobs)
            accounts = self.accounts(session)
            assert [account.scope for account in accounts] == ["owner", "dataset", "analyst"]
            for job in jobs:
                self._check_job(session, job, accounts)
            charged = sum(job.state not in ("voided", *UNCHARGED) for job in jobs)
            for account in accounts:
                for name in ("epsilon", "delta", "mu_squared", "slack"):
                    spent = getattr(account, f"{name}_spent")
                    assert spent == charged * getattr(COST, name), (account.scope, name)
                    if name in ledger.limits_of(account).counted:
                        assert spent <= getattr(account, f"{name}_limit")
            assert verify(lines(session, self.owner), [SIGNER.public_key]).faults == []
            assert len(jobs) <= 1
            return jobs[0].state if jobs else None

    def _check_job(self, session: Session, job: Job, accounts: list[Account]) -> None:
        kinds = ["debit", "void"] if job.state == "voided" else ["debit"]
        kinds = [] if job.state in UNCHARGED else kinds
        found = session.execute(select(Entry.account_id, Entry.kind).where(Entry.job_id == job.id)).all()
        assert sorted(map(tuple, found)) == sorted((a.id, kind) for a in accounts for kind in kinds)
        told = session.scalars(select(Transition.state).where(Transition.job_id == job.id)).all()
        asked = ["requested"] if self.approval else []
        assert sorted(told) == sorted(asked + PATHS[job.state])
        decided = session.scalars(select(Decision.approved).where(Decision.job_id == job.id)).all()
        undecided = not self.approval or job.state in ("requested", "expired", "withdrawn")
        assert decided == ([] if undecided else [job.state != "denied"])
        assert (job.result is not None) == (job.receipt is not None) == (job.state == "committed")

    def recover(self, database: Database, key: str, left: str | None) -> str:
        """Ask again after a crash, run what can be run, end what was left: the job's state at last.

        The crash left it in `left`. All that must hold is looked at in the end alone: no entry, act or
        transition is ever taken back.
        """
        with database.read() as session:
            known = [job.id for job in self.jobs(session)]
        if left not in ("voided", "denied"):
            job = self.submit(database, key)
            assert known in ([], [job])
            if self.state(database) == "requested":
                assert self.decide(database, job, "approve") == "reserved"
        if self.state(database) == "reserved":
            # PostgreSQL may keep a killed process's locks for a moment, and claims pass over what is locked.
            self.end(database, until(lambda: claimed(database)), "{}")
        if self.state(database) == "claimed":  # its process is gone, and with it all that it drew
            with database.write() as session:
                assert jobs.fail_overdue(session, now() + timedelta(days=1)) == known
        with database.read() as session:
            assert jobs.queue(session)[0] == 0
            assert jobs.overdue(session, now() + timedelta(days=1)) == []
        after = self.check(database)
        assert after in ("committed", "failed", "voided", "denied")
        return after

    def end(self, database: Database, job: str | None, result: str | None) -> None:
        """Store the end of a run, as the engine does."""
        assert job is not None
        _engine(database)._end(job, result)


def _engine(database: Database) -> Engine:
    """One that is not started: its steps are taken by hand."""
    nowhere: Any = SimpleNamespace(run_token=str, path=lambda *_: "")
    return Engine(database, nowhere, workers=1, job_timeout=600.0)


def claimed(database: Database) -> str | None:
    """The job that the engine claims."""
    found = _engine(database)._claim()
    return found.job.id if found else None
