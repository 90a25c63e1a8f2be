"""Table: owners."""

from datetime import datetime

from sqlalchemy import Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now


class Owner(Base):
    """Somebody who holds records, with one budget for all of them in each window."""

    __tablename__ = "owners"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    window: Mapped[int] = mapped_column(Integer, default=1)
    created_at: Mapped[datetime] = mapped_column(Moment, default=now)
