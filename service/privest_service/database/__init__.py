"""The SQL database: one way to read, one way to write, the same on SQLite and on PostgreSQL."""

from privest_service.database.engine import Database, once_committed
from privest_service.database.tables import Base, Moment, now

__all__ = ["Base", "Database", "Moment", "now", "once_committed"]
