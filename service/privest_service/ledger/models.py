"""Tables: accounts, their entries and tallies, mechanisms that are charged for, and the rules of windows."""

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
    text,
)
from sqlalchemy.orm import Mapped, column_property, mapped_column

from privest_service.database import Base, Moment
from privest_service.security.models import Owner

WHOLE = 10**6
"""Millionths of a whole, in which a pace is kept."""

SETS_LIMIT = text("kind = 'limit'")
"""Entries that set limits. Databases have an index of these few, for whoever asks by this very text."""

_Id = BigInteger().with_variant(Integer, "sqlite")


def _random_id() -> int:
    """A number for a new account, of 53 bits, which every JSON reader keeps exactly.

    It is random: a running number would tell how many accounts others have.
    """
    return 1 + secrets.randbelow(2**53 - 1)


class WindowRules(Base):
    """How the windows of one owner may follow each other, and how fast one of them may be spent.

    An owner without a row opens windows by hand, as many and as soon as it likes. Rows are changed by whoever
    holds the owner.

    Attributes:
        every: the period of the calendar at whose beginning a window opens by itself; None for by hand alone.
        most: the largest number of windows that there may ever be; None for any.
        least_days: fewest days from the beginning of one window to that of the next.
        pace: what seven days may take of a window's budget, in millionths; all of them where nothing is said.
        total_epsilon: ε of all windows together, in the ledger's units, if that is what is promised.
        total_delta: δ of all windows together, likewise.
        began_at: the beginning of the present window: the period's, if it opened by itself.
        due_at: when the next one opens by itself; None for never.
    """

    __tablename__ = "window_rules"

    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    every: Mapped[str | None] = mapped_column(String(10))
    most: Mapped[int | None] = mapped_column(Integer)
    least_days: Mapped[int] = mapped_column(Integer, default=0)
    pace: Mapped[int] = mapped_column(Integer, default=WHOLE)
    total_epsilon: Mapped[int | None] = mapped_column(BigInteger)
    total_delta: Mapped[int | None] = mapped_column(BigInteger)
    began_at: Mapped[datetime] = mapped_column(Moment)
    due_at: Mapped[datetime | None] = mapped_column(Moment, index=True)


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
    """The role that froze the owner's account, as it was when this was read."""
    pace: Mapped[int | None] = column_property(
        select(WindowRules.pace)
        .where(WindowRules.owner_id == owner_id)
        .correlate_except(WindowRules)
        .scalar_subquery()
    )
    """What seven days may take of the owner's account, in millionths; None where nothing is said."""

    @property
    def frozen(self) -> bool:
        """Whether nothing may be charged at present."""
        return self.frozen_by is not None

    __mapper_args__ = {"version_id_col": seq, "version_id_generator": False}  # noqa: RUF012


class Mechanism(Base):
    """A description in full of what charges are for, under its own digest: see `mechanisms`."""

    __tablename__ = "mechanisms"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[str] = mapped_column(Text)


class Entry(Base):
    """One movement of budget: never updated, never deleted, each signed over the one before.

    A debit, a void or a loss carries amounts; a limit entry carries the account's new limits. Each has the
    account's sums as they are after it, so that a ledger of any length is drawn from a few of its entries.
    """

    __tablename__ = "entries"
    __table_args__ = (
        Index("ix_entries_limits", "account_id", "seq", sqlite_where=SETS_LIMIT, postgresql_where=SETS_LIMIT),
    )

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


class Tally(Base):
    """All that one submitter asked about one lineage of datasets, by one kind of estimate, in one window.

    It is kept beside the chain of the owner's account and tells nothing that this does not: see `tallies`.

    Attributes:
        account_id: of the owner's account in that window.
        submitter_id: who asked: an analyst, or the owner.
        lineage: of the datasets; empty for rows that came with a question and were declared nobody's.
        kind: of the estimates.
        queries: that are charged; those that were given back are not counted.
        epsilon: that they were charged, in the ledger's units, as are the other amounts.
        first_at: when the first was asked, whatever became of it.
        last_at: likewise the last.
    """

    __tablename__ = "tallies"

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    submitter_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    lineage: Mapped[str] = mapped_column(String(90), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    queries: Mapped[int] = mapped_column(BigInteger)
    epsilon: Mapped[int] = mapped_column(BigInteger)
    delta: Mapped[int] = mapped_column(BigInteger)
    mu_squared: Mapped[int] = mapped_column(BigInteger)
    slack: Mapped[int] = mapped_column(BigInteger)
    first_at: Mapped[datetime] = mapped_column(Moment)
    last_at: Mapped[datetime] = mapped_column(Moment)
