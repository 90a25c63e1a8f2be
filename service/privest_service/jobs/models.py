"""Tables: jobs, their transitions, what is run with others, owners' decisions, and idempotency keys."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Double, ForeignKey, Index, Integer, LargeBinary, String, Text
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
    `person` and `through` tell who asked by a token, and which service account asked for this person.
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
    person: Mapped[str | None] = mapped_column(String(255))
    through: Mapped[str | None] = mapped_column(String(40))
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


class JointRun(Base):
    """A job that a hub and the sites of its datasets run together: here is the hub, or one of the sites.

    While it is `waiting` no worker takes it: a hub waits for the sites' answers, and a site until all others
    have accepted the question. Then it is `ready`, and `taken` by a worker.

    Attributes:
        terms: JSON. At a hub it is what sites need to plan the question by themselves; at a site, what they
            need to take their part.
        hub_job: at a site, the id of its part at the hub, to which one job here belongs for ever.
    """

    __tablename__ = "joint_runs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    state: Mapped[str] = mapped_column(String(10), default="waiting", index=True)
    terms: Mapped[str] = mapped_column(Text)
    hub_job: Mapped[str | None] = mapped_column(String(40), unique=True)


class SitePart(Base):
    """At a hub: what the site of one dataset did about a question, or about its part of one on several.

    It has `accepted` the question, `ended` its run, or `refused`.

    Attributes:
        weight: of its answers among those of all sites.
        answers: most that its plan allows.
        reason: in words of the site, why it refused.
        receipt: of what the question was charged at the site, signed there.
        result: of a question on one dataset, which its site runs alone.
    """

    __tablename__ = "site_parts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    state: Mapped[str] = mapped_column(String(10))
    weight: Mapped[float] = mapped_column(Double)
    answers: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str | None] = mapped_column(String(500))
    receipt: Mapped[str | None] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)


class SiteAnswer(Base):
    """At a hub: a site's noisy answer, its number in the run, what was asked, and float64 as bytes."""

    __tablename__ = "site_answers"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    label: Mapped[str] = mapped_column(String(40))
    numbers: Mapped[bytes] = mapped_column(LargeBinary)


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
