"""The SQL database: one way to read, one way to write, the same on SQLite and on PostgreSQL."""

from privest_service.database.engine import Database, before_commit, once_committed
from privest_service.database.tables import Base, Moment, insert_if_new, now

__all__ = ["Base", "Database", "Moment", "before_commit", "insert_if_new", "now", "once_committed"]
