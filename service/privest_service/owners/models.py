"""Table: owners."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment, now


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
