"""How Alembic reaches the database: one transaction, under a lock that other processes wait for."""

from alembic import context
from sqlalchemy import text

from privest_service.database import Base, views
from privest_service.database.grants import grant
from privest_service.database.tables import import_all

_LOCK = 0x9219E57  # any number, the same in every process

import_all()
engine, head = context.config.attributes["engine"], context.script.get_current_head()
with engine.begin() as connection:  # on SQLite this takes the write lock
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0"))  # another's migration may take its time
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": _LOCK})
    context.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True)
    migration = context.get_context()
    # Whoever reads a view while there is nothing to do is not waited for.
    if not migration.get_current_revision() == context.get_revision_argument() == head:
        views.drop(connection)
        context.run_migrations()
        if migration.get_current_revision() == head:
            views.make(connection)
    if role := context.config.attributes.get("role"):
        grant(connection, role)
    if reader := context.config.attributes.get("reader"):
        views.grant_reading(connection, reader)
    if connection.dialect.name == "postgresql" and migration.get_current_revision() == head:
        views.grant_owners(connection)
