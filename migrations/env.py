"""How Alembic reaches the database: one transaction, under a lock that other processes wait for."""

from alembic import context
from sqlalchemy import text

from privest_service.database import Base
from privest_service.database.grants import grant
from privest_service.database.models import import_all

_LOCK = 0x9219E57  # any number, the same in every process

import_all()
engine = context.config.attributes["engine"]
with engine.begin() as connection:  # on SQLite this takes the write lock
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0"))  # another's migration may take its time
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": _LOCK})
    context.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True)
    context.run_migrations()
    if role := context.config.attributes.get("role"):
        grant(connection, role)
