"""Tables: analysts, and the API keys of owners and analysts."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now


class Analyst(Base):
    """Somebody who may ask where an owner granted it."""

    __tablename__ = "analysts"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)


class ApiKey(Base):
    """The SHA-256 of a key; the key itself is shown once and kept nowhere.

    `issued_by` is the id of the key that issued it, and ends it. A principal's first key has none, and
    neither has one that the administrator or the bearer of a platform's token issued.
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


class SignIn(Base):
    """A signed-in browser: the SHA-256 of its session id, who it is, the key it came with, its scopes."""

    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(10))
    principal_id: Mapped[str] = mapped_column(String(40))
    key: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(40))
    expires_at: Mapped[datetime] = mapped_column(Moment, index=True)
