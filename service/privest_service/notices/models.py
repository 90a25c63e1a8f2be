"""Tables: channels to owners and analysts, and notices that wait to be delivered on them."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now


class Channel(Base):
    """A way to an owner or an analyst: where it leads is encrypted, and how its deliveries fared is told.

    Attributes:
        events: the kinds of notices that it takes, between blanks.
        heads_every: how often signed heads go there; None for never.
        heads_due_at: when they do next.
        last_heads: those that went there last, in JSON.
        failures: attempts that failed since the last that did not.
        given_up: notices that were dropped undelivered.
        last_error: what the last attempt met, in words; None if it succeeded.
        attempt_at: no attempt is made sooner; while one is made, the end of its lease; None before the first.
    """

    __tablename__ = "channels"
    __table_args__ = (CheckConstraint("(owner_id IS NULL) <> (analyst_id IS NULL)", name="one_holder"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str | None] = mapped_column(ForeignKey("owners.id"), index=True)
    analyst_id: Mapped[str | None] = mapped_column(ForeignKey("analysts.id"), index=True)
    kind: Mapped[str] = mapped_column(String(20))
    sealed: Mapped[str] = mapped_column(Text)
    events: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
    heads_every: Mapped[str | None] = mapped_column(String(10))
    heads_due_at: Mapped[datetime | None] = mapped_column(Moment, index=True)
    last_heads: Mapped[str | None] = mapped_column(Text)
    failures: Mapped[int] = mapped_column(Integer, default=0)
    given_up: Mapped[int] = mapped_column(Integer, default=0)
    last_error: Mapped[str | None] = mapped_column(String(200))
    delivered_at: Mapped[datetime | None] = mapped_column(Moment)
    attempt_at: Mapped[datetime | None] = mapped_column(Moment)


class Delivery(Base):
    """A notice that was not delivered on a channel yet; it is deleted when it was, or is given up."""

    __tablename__ = "deliveries"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    channel_id: Mapped[str] = mapped_column(ForeignKey("channels.id"), index=True)
    event: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
