"""Tables: owners, analysts, people, API keys, and the sessions of browsers."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now

LONGEST_SUBJECT = 255
"""Most characters of a person's `sub`, as OpenID Connect Core 1.0 has it (section 2)."""


class Owner(Base):
    """Somebody who holds records, with one budget for all of them in each window.

    `frozen_by` tells the role of whoever froze all of its budgets, or that both did. It is changed under the
    row's lock, which whatever charges or claims holds: so no charge and no claim is later than a freeze's
    answer.
    """

    __tablename__ = "owners"
    __table_args__ = (CheckConstraint("frozen_by IN ('owner', 'admin', 'both')", name="known_freezer"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    window: Mapped[int] = mapped_column(Integer, default=1)
    frozen_by: Mapped[str | None] = mapped_column(String(10), index=True)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)


class Person(Base):
    """Somebody who came with a token of the platform, as its identity provider calls it.

    Whoever has left is recognised by no token, until the provider lists the person again.
    """

    __tablename__ = "people"

    subject: Mapped[str] = mapped_column(String(LONGEST_SUBJECT), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
    left_at: Mapped[datetime | None] = mapped_column(Moment)


class Analyst(Base):
    """Somebody who may ask where an owner granted it.

    `subject` is the person whose analyst this is: one that was made for a person's group, or for a person by
    the administrator. Others have none.
    """

    __tablename__ = "analysts"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    subject: Mapped[str | None] = mapped_column(String(LONGEST_SUBJECT), unique=True, index=True)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)


class ApiKey(Base):
    """The SHA-256 of a key; the key itself is shown once and kept nowhere.

    `issued_by` is the id of the key that issued it, and ends it. A principal's first key has none, and
    neither has one that the administrator or the bearer of a platform's token issued.

    `person` is whose token issued it, and `through` the service account that asked for the person; what this
    key does is told of both. `client` makes a key of a service account: it may ask for people whose tokens
    were issued to this client of the identity provider, and keys that it issues for them may last
    `client_seconds`, however soon their tokens end.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    role: Mapped[str] = mapped_column(String(10))
    principal_id: Mapped[str] = mapped_column(String(40), index=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
    expires_at: Mapped[datetime | None] = mapped_column(Moment)
    revoked_at: Mapped[datetime | None] = mapped_column(Moment)
    issued_by: Mapped[str | None] = mapped_column(String(40), index=True)
    person: Mapped[str | None] = mapped_column(String(LONGEST_SUBJECT), index=True)
    through: Mapped[str | None] = mapped_column(String(40))
    client: Mapped[str | None] = mapped_column(String(LONGEST_SUBJECT))
    client_seconds: Mapped[int | None] = mapped_column(Integer)


class SignIn(Base):
    """A signed-in browser: the SHA-256 of its session id, who it is, the key it came with, its scopes.

    `person` is whose token opened it.
    """

    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(10))
    principal_id: Mapped[str] = mapped_column(String(40))
    key: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(40))
    person: Mapped[str | None] = mapped_column(String(LONGEST_SUBJECT))
    expires_at: Mapped[datetime] = mapped_column(Moment, index=True)
