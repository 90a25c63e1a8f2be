"""Tables: accounts, their entries, jobs with their transitions, and idempotency keys."""

import secrets
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    select,
)
from sqlalchemy.orm import Mapped, column_property, mapped_column

from privest_service.database import Base, Moment, now
from privest_service.owners.models import Owner

_Id = BigInteger().with_variant(Integer, "sqlite")


def _random_id() -> int:
    """A number for a new account, of 53 bits, which every JSON reader keeps exactly.

    It is random: a running number would tell how many accounts others have.
    """
    return 1 + secrets.randbelow(2**53 - 1)


class Account(Base):
    """Limits and sums of one budget in one window: of an owner, of a lineage of datasets, or of a grant.

    Every charge moves all that it concerns, capped or not. An account is only changed under its row's lock
    and as the version `seq`; behind both stand the CHECKs, which can never be what refuses a charge.
    """

    __tablename__ = "accounts"
    __table_args__ = (
        UniqueConstraint("owner_id", "scope", "subject", "window"),
        CheckConstraint(
            "composition <> 'gdp' OR (mu_squared_spent <= mu_squared_limit AND slack_spent <= slack_limit)",
            name="gdp_within_limits",
        ),
        CheckConstraint(
            "composition <> 'basic' OR (epsilon_spent <= epsilon_limit AND delta_spent <= delta_limit)",
            name="basic_within_limits",
        ),
        CheckConstraint(
            "epsilon_spent >= 0 AND delta_spent >= 0 AND mu_squared_spent >= 0 AND slack_spent >= 0",
            name="not_negative",
        ),
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=False, default=_random_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    scope: Mapped[str] = mapped_column(String(10))
    subject: Mapped[str] = mapped_column(String(90))
    window: Mapped[int] = mapped_column(Integer)
    composition: Mapped[str] = mapped_column(String(10))
    epsilon_limit: Mapped[int] = mapped_column(BigInteger)
    delta_limit: Mapped[int] = mapped_column(BigInteger)
    mu_squared_limit: Mapped[int] = mapped_column(BigInteger)
    slack_limit: Mapped[int] = mapped_column(BigInteger)
    epsilon_spent: Mapped[int] = mapped_column(BigInteger, default=0)
    delta_spent: Mapped[int] = mapped_column(BigInteger, default=0)
    mu_squared_spent: Mapped[int] = mapped_column(BigInteger, default=0)
    slack_spent: Mapped[int] = mapped_column(BigInteger, default=0)
    queries: Mapped[int] = mapped_column(BigInteger, default=0)
    seq: Mapped[int] = mapped_column(BigInteger, default=0)
    head: Mapped[str] = mapped_column(String(64), default="")
    frozen_by: Mapped[str | None] = column_property(
        select(Owner.frozen_by).where(Owner.id == owner_id).correlate_except(Owner).scalar_subquery()
    )
    """The owner's, as it was when this was read."""

    @property
    def frozen(self) -> bool:
        """Whether nothing may be charged at present."""
        return self.frozen_by is not None

    __mapper_args__ = {"version_id_col": seq, "version_id_generator": False}  # noqa: RUF012


class Mechanism(Base):
    """What a charge is for, in full and under its own digest: see `mechanisms`."""

    __tablename__ = "mechanisms"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[str] = mapped_column(Text)


class Entry(Base):
    """One movement of budget: never updated, never deleted, each signed over the one before.

    A debit, a void or a loss carries amounts; a limit entry carries the account's new limits. Each has the
    account's sums as they are after it, so that a ledger of any length is drawn from a few of its entries.
    """

    __tablename__ = "entries"

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    kind: Mapped[str] = mapped_column(String(10))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    mechanism: Mapped[str | None] = mapped_column(ForeignKey("mechanisms.digest"))
    epsilon: Mapped[int] = mapped_column(BigInteger)
    delta: Mapped[int] = mapped_column(BigInteger)
    mu_squared: Mapped[int] = mapped_column(BigInteger)
    slack: Mapped[int] = mapped_column(BigInteger)
    epsilon_spent: Mapped[int] = mapped_column(BigInteger)
    delta_spent: Mapped[int] = mapped_column(BigInteger)
    mu_squared_spent: Mapped[int] = mapped_column(BigInteger)
    slack_spent: Mapped[int] = mapped_column(BigInteger)
    queries: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(Moment)
    prev: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))
    signer: Mapped[str] = mapped_column(String(16))
    signature: Mapped[str] = mapped_column(String(88))


class Job(Base):
    """One run, from its reservation to its end; a dummy's is on synthetic rows, and charged to nobody.

    One on several datasets has no owner and no dataset itself, but a part for each of them: a job of that
    dataset's owner, with its own plan, charge and receipt and no answer, which goes through the same states
    at the same moments. So an owner's books tell of nobody else. Parts have a `place` among each other.

    `receipt` names the entries of the ledger and is for the owner who was charged; `analyst_receipt` only
    commits to them and is for the analyst who asked.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "state IN ('reserved', 'claimed', 'committed', 'failed', 'voided')", name="known_state"
        ),
        CheckConstraint(
            "(state = 'committed' AND part_of IS NULL) = (result IS NOT NULL)", name="result_when_committed"
        ),
        CheckConstraint("(owner_id IS NULL) = (dataset_id IS NULL)", name="owner_of_dataset"),
        CheckConstraint("(part_of IS NULL) = (place IS NULL)", name="place_of_part"),
        CheckConstraint("part_of IS NULL OR dataset_id IS NOT NULL", name="dataset_of_part"),
        Index("ix_jobs_waiting", "state", "created_at"),
        Index("ix_jobs_reuse", "submitter_id", "spec_digest"),
        Index("ix_jobs_submitted", "submitter_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    submitter_id: Mapped[str] = mapped_column(String(40))
    part_of: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    place: Mapped[int | None] = mapped_column(Integer)
    owner_id: Mapped[str | None] = mapped_column(ForeignKey("owners.id"))
    dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"), index=True)
    spec_digest: Mapped[str] = mapped_column(String(64))
    plan: Mapped[str] = mapped_column(Text)
    dummy: Mapped[bool] = mapped_column(default=False)
    state: Mapped[str] = mapped_column(String(10), default="reserved")
    lease_until: Mapped[datetime | None] = mapped_column(Moment)
    result: Mapped[str | None] = mapped_column(Text)
    receipt: Mapped[str | None] = mapped_column(Text)
    analyst_receipt: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)


class Transition(Base):
    """A state that a job entered, and when: append-only."""

    __tablename__ = "job_transitions"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    state: Mapped[str] = mapped_column(String(10), primary_key=True)
    at: Mapped[datetime] = mapped_column(Moment, default=now)


class IdempotencyKey(Base):
    """A principal's key, bound for ever to one body and the job that answered it."""

    __tablename__ = "idempotency_keys"

    principal_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_digest: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    reused: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
