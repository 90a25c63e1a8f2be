"""Tables: datasets and grants."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now

IS_LEFT = text("ephemeral AND deleted_at IS NULL")
"""Selects the ephemeral datasets that are not deleted; their partial index has the same words."""

_LEFT: dict[str, Any] = {"sqlite_where": IS_LEFT, "postgresql_where": IS_LEFT}


def _own_id(context: Any) -> str:
    return context.get_current_parameters()["id"]


class Dataset(Base):
    """The public facts of one upload; its rows are in the store, under the same id.

    `lineage` is the id of the first dataset that the owner declared to hold the same rows, by default its own
    id. Accounts are joined by it. The fingerprint of the rows joins nothing: it is for the owner's eyes.

    An ephemeral one came with a question, and goes once that is answered. Of one whose rows are at a site of
    its owner's, `at_site` is the id there, and the store has nothing.
    """

    __tablename__ = "datasets"
    __table_args__ = (Index("ix_datasets_ephemeral", "created_at", **_LEFT),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str | None] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(20))
    dataset_schema: Mapped[str] = mapped_column(Text)
    n: Mapped[int] = mapped_column(BigInteger)
    fingerprint: Mapped[str] = mapped_column(String(64))
    lineage: Mapped[str] = mapped_column(String(40), default=_own_id)
    ephemeral: Mapped[bool] = mapped_column(default=False)
    at_site: Mapped[str | None] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
    deleted_at: Mapped[datetime | None] = mapped_column(Moment)


class Grant(Base):
    """An analyst's permission to ask about a dataset. An account of its own counts what that costs.

    What else it says are its terms, which its owner and its analyst may read. Every question is held to them
    before it is charged: names of estimators as a JSON list, the largest ε in 1e-9, the hours in which
    the owner decides on a question that it has to approve, and whether answers may be published.
    """

    __tablename__ = "grants"

    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    analyst_id: Mapped[str] = mapped_column(ForeignKey("analysts.id"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
    revoked_at: Mapped[datetime | None] = mapped_column(Moment)
    approval: Mapped[bool] = mapped_column(default=False)
    purpose: Mapped[str | None] = mapped_column(String(500))
    kinds: Mapped[str | None] = mapped_column(Text)
    max_epsilon: Mapped[int | None] = mapped_column(BigInteger)
    expires_at: Mapped[datetime | None] = mapped_column(Moment)
    decide_within: Mapped[int | None] = mapped_column(Integer)
    publish: Mapped[bool] = mapped_column(default=False)
