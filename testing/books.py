"""The ledger without HTTP: just the rows that its own need, and jobs that nobody runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Decision, IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge, Limits
from privest_service.security.models import Owner
from testing.server import SIGNER
from testing.world import PLAN

_numbers = count()


@dataclass
class Books:
    """A database with one owner and one dataset, so that jobs and accounts can be made at will."""

    database: Database
    owner: str = field(default_factory=lambda: new_id("own"))
    dataset: str = field(default_factory=lambda: new_id("ds"))

    def __post_init__(self) -> None:
        with self.database.write() as session:
            session.add(Owner(id=self.owner, name="An owner", window=1))
            session.flush()
            acts.record(session, self.owner, "owner.created", subject=self.owner)
            ledger.open_account(session, self.owner, "owner", Limits("basic", 1, 1, 0, 0))
            session.add(
                Dataset(
                    id=self.dataset,
                    owner_id=self.owner,
                    kind="points",
                    dataset_schema="{}",
                    n=2,
                    fingerprint="",
                )
            )

    def open(self, limits: Limits) -> int:
        """A new account, with an act that tells of its limits."""
        subject = new_id("an")
        with self.database.write() as session:
            acts.record(session, self.owner, "cap.set", subject=subject, details=limits.told())
            return ledger.open_account(session, self.owner, "analyst", limits, subject=subject).id

    def set_cap(self, session: Session, account: int, limits: Limits) -> bool:
        """Change the limits of an account, with an act that tells of it; whether anything was changed."""
        former = ledger.set_cap(session, account, limits)
        if former is None:
            return False
        subject = session.get_one(Account, account).subject
        details = limits.told() | {f"{name}_before": amount for name, amount in former.told().items()}
        acts.record(session, self.owner, "cap.set", subject=subject, details=details)
        return True

    def job(self, submitter: str = "somebody") -> Job:
        """A job that is not yet reserved."""
        return Job(
            id=new_id("job"),
            kind="frechet-mean",
            submitter_id=submitter,
            owner_id=self.owner,
            dataset_id=self.dataset,
            spec_digest="",
            plan=PLAN,
        )

    def reserve(self, charges: dict[int, Charge]) -> str:
        """Reserve a new job; returns its id."""
        with self.database.write() as session:
            return self.reserve_in(session, charges)

    def reserve_in(self, session: Session, amount_of: dict[int, Charge], name: str | None = None) -> str:
        """Reserve a new job in the caller's transaction, under a key of this name. Returns the job's id."""
        job = self.job()
        name = name or f"{new_id('key')}-{next(_numbers)}"
        key = IdempotencyKey(principal_id="somebody", key=name, body_digest="", job_id=job.id)
        accounts = held(session, amount_of)
        amounts = [amount_of[account.id] for account in accounts]
        mechanism = Mechanism(digest="0" * 64, content="{}")
        debits = [charges.Debits(job, accounts, amounts, mechanism)]
        charges.require_covered(session, debits)
        charges.write(session, job, debits, key)
        return job.id

    def request(self) -> str:
        """Have a new job wait for approval; returns its id."""
        job = self.job()
        job.state, job.decide_by = "requested", now() + timedelta(hours=1)
        key = IdempotencyKey(principal_id="somebody", key=f"{new_id('key')}", body_digest="", job_id=job.id)
        with self.database.write() as session:
            jobs.add(session, job, key)
        return job.id

    def approve_in(self, session: Session, job_id: str, amount_of: dict[int, Charge]) -> None:
        """Approve a request in the caller's transaction, which charges it."""
        job = session.get_one(Job, job_id, with_for_update=True)
        decision = Decision(job_id=job_id, id=new_id("dec"), approved=True)
        session.add(decision)
        told = {"decision": decision.id}
        acts.record(session, self.owner, "question.approved", subject=job_id, details=told)
        accounts = held(session, amount_of)
        amounts = [amount_of[account.id] for account in accounts]
        mechanism = Mechanism(digest="0" * 64, content="{}")
        debits = [charges.Debits(job, accounts, amounts, mechanism)]
        charges.require_covered(session, debits)
        charges.write_approved(session, job, debits)

    def account(self, account_id: int) -> Account:
        """An account as it stands."""
        with self.database.read() as session:
            return session.get_one(Account, account_id)

    def faults(self) -> list[str]:
        """What the verifier finds, but for mechanisms: the charges here are made up."""
        with self.database.read(snapshot=True) as session:
            found = verify(lines(session), [SIGNER.public_key]).faults
        return [fault for fault in found if "the mechanism of entry" not in fault]


def held(session: Session, accounts: Iterable[int]) -> list[Account]:
    """Accounts with their rows held, by id."""
    chosen = select(Account).where(Account.id.in_(accounts)).order_by(Account.id)
    return list(session.scalars(chosen.with_for_update().execution_options(populate_existing=True)))


def tenth() -> Charge:
    """The cost of a query of ε = 0.1 at δ = 1e-7, as a plan makes it."""
    from privest.data.metadata import PointsMetadata
    from privest.estimators.frechet_mean import frechet_mean
    from privest.privacy.accounting import PrivacyTarget

    shape = PointsMetadata(1000, {"name": "euclidean", "dim": 3})
    plan = frechet_mean.plan(frechet_mean.FrechetMeanSpec(), shape, PrivacyTarget(0.1, 1e-7))
    return Charge.of(plan.target, plan.cost)
