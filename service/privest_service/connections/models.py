"""Tables: connections, and the owners that may use them."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now


class Connection(Base):
    """A place that the administrator named; where it is and what opens it are encrypted."""

    __tablename__ = "connections"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    sealed: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)


class Assignment(Base):
    """An owner's permission to register data behind a connection."""

    __tablename__ = "connection_owners"

    connection_name: Mapped[str] = mapped_column(ForeignKey("connections.name"), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
