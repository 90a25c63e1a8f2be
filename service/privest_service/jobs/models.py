"""Tables: jobs, their transitions, owners' decisions on them, and idempotency keys."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now

STATES = (
    "requested",
    "reserved",
    "claimed",
    "committed",
    "failed",
    "voided",
    "denied",
    "expired",
    "withdrawn",
)
"""All states of a job; docs/ledger.md tells which follow which."""


class Job(Base):
    """One run, from its reservation to its end; a dummy's is on synthetic rows, and charged to nobody.

    One that its owner has to approve begins before that, as a request, which is charged nothing. `decide_by`
    tells when a request ends by itself; where no approval is needed it is null. Of a question on several
    datasets the parts tell it, each for its own owner.

    One on several datasets has no owner and no dataset itself, but a part for each of them: a job of that
    dataset's owner, with its own plan, charge and receipt and no answer, which goes through the same states
    at the same moments. So an owner's books tell of nobody else. Parts have a `place` among each other.

    `receipt` names the entries of the ledger and is for the owner who was charged; `analyst_receipt` only
    commits to them and is for the analyst who asked. `tag` is words of whoever asked, as they were sent.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"state IN {STATES}", name="known_state"),
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
    tag: Mapped[str | None] = mapped_column(String(100))
    state: Mapped[str] = mapped_column(String(10), default="reserved")
    decide_by: Mapped[datetime | None] = mapped_column(Moment)
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


class Decision(Base):
    """What an owner decided on a request, or on its part of one: append-only.

    `id` is what receipts and acts call it by. `approved` tells which way it went.
    """

    __tablename__ = "decisions"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    id: Mapped[str] = mapped_column(String(40), unique=True)
    approved: Mapped[bool] = mapped_column()
    reason: Mapped[str | None] = mapped_column(String(500))
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
