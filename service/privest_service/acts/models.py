"""Tables: acts, the ends of their chains, and what was left out of floods of refusals."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment

SERVICE = "service"
"""The chain of acts that concern no single owner: of analysts, of administrators, of connections."""

LONGEST_REASON = 500
"""Most characters of a reason."""


class ActChain(Base):
    """The end of a chain of acts: one for each owner, by its id, and one of the service.

    Its row is held while an act is appended, as the last lock of a transaction. No charge holds it.
    """

    __tablename__ = "act_chains"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, default=0)
    head: Mapped[str] = mapped_column(String(64), default="")


class Act(Base):
    """Something that somebody did: never updated, never deleted, each signed over the one before.

    `subject` is the id of what it was done to. `details` is a JSON object of what else there is to tell.
    `person` and `through` are as `Actor` has them.
    Of acts from before there was a record `known_since` says so: nobody signed them, or knows who acted.
    """

    __tablename__ = "acts"
    __table_args__ = (Index("ix_acts_subject", "chain", "subject", "seq"),)

    chain: Mapped[str] = mapped_column(ForeignKey("act_chains.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    role: Mapped[str | None] = mapped_column(String(10))
    principal: Mapped[str | None] = mapped_column(String(40))
    key: Mapped[str | None] = mapped_column(String(40))
    person: Mapped[str | None] = mapped_column(String(255))
    through: Mapped[str | None] = mapped_column(String(40))
    subject: Mapped[str | None] = mapped_column(String(90))
    reason: Mapped[str | None] = mapped_column(String(LONGEST_REASON))
    details: Mapped[str] = mapped_column(Text)
    known_since: Mapped[str | None] = mapped_column(String(10))
    at: Mapped[datetime] = mapped_column(Moment)
    prev: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))
    signer: Mapped[str] = mapped_column(String(16))
    signature: Mapped[str] = mapped_column(String(88))


class Refusals(Base):
    """How many acts of a kind one principal caused in a chain since a moment, and how many were left out."""

    __tablename__ = "refusals"

    chain: Mapped[str] = mapped_column(String(40), primary_key=True)
    principal: Mapped[str] = mapped_column(String(40), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    role: Mapped[str] = mapped_column(String(10))
    since: Mapped[datetime] = mapped_column(Moment)
    told: Mapped[int] = mapped_column(BigInteger, default=0)
    left_out: Mapped[int] = mapped_column(BigInteger, default=0)
