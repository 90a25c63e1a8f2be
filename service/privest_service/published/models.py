"""Tables: published answers, their numbers, and who may read them."""

from datetime import datetime

from sqlalchemy import BigInteger, Double, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from privest_service.database import Base, Moment


class Publication(Base):
    """An answer under a name. The name stays its publisher's for ever, so that no reader is shown another's.

    Attributes:
        name: of the table.
        publisher_id: who asked the question, and published what it was answered.
        job_id: the job whose answer it is; publishing again replaces it.
        in_sql: whether the database's reading role may read it.
        epsilon: what the question was charged, in the ledger's units, as is δ; the most that any owner was.
        off_by: by how much the whole answer is off at most in 95 of 100 runs; None where that is not known.
        answered_at: when the job was committed.
        published_at: when this answer was published.
        withdrawn_at: when it was withdrawn; its numbers went then.
    """

    __tablename__ = "publications"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    publisher_id: Mapped[str] = mapped_column(String(40), index=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    in_sql: Mapped[bool]
    epsilon: Mapped[int] = mapped_column(BigInteger)
    delta: Mapped[int] = mapped_column(BigInteger)
    off_by: Mapped[float | None] = mapped_column(Double)
    answered_at: Mapped[datetime] = mapped_column(Moment)
    published_at: Mapped[datetime] = mapped_column(Moment)
    withdrawn_at: Mapped[datetime | None] = mapped_column(Moment)


class PublishedValue(Base):
    """One number of a published answer, with its interval of 95 % where one is known.

    Attributes:
        place: in the table, from 0.
        item: the column, feature or coordinate that it is of.
        measure: what of it is told, as `mean` or `coefficient`.
        unit: of the three numbers, where they are no plain ones.
    """

    __tablename__ = "published_values"

    name: Mapped[str] = mapped_column(ForeignKey("publications.name"), primary_key=True)
    place: Mapped[int] = mapped_column(Integer, primary_key=True)
    item: Mapped[str] = mapped_column(Text)
    measure: Mapped[str] = mapped_column(Text)
    value: Mapped[float] = mapped_column(Double)
    low: Mapped[float | None] = mapped_column(Double)
    high: Mapped[float | None] = mapped_column(Double)
    unit: Mapped[str | None] = mapped_column(String(40))


class PublicationReader(Base):
    """Somebody whom a publisher named as a reader, besides itself and the owners of the data."""

    __tablename__ = "publication_readers"

    name: Mapped[str] = mapped_column(ForeignKey("publications.name"), primary_key=True)
    reader_id: Mapped[str] = mapped_column(String(40), primary_key=True, index=True)
