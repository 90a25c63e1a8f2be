"""What the role that runs the service may do with the tables that another role made."""

from sqlalchemy import Connection, text

_DELETE, _UPDATE = 8, 16
"""Of PostgreSQL's `pg_trigger.tgtype`."""

_TABLES = text("""
    SELECT c.relname AS name, coalesce(bit_or(t.tgtype), 0) AS refused
    FROM pg_class c
    LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgqual IS NULL
        AND t.tgfoid = (SELECT oid FROM pg_proc WHERE proname = 'privest_refuse'
                        AND pronamespace = current_schema()::regnamespace)
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    GROUP BY c.relname ORDER BY c.relname
""")
"""All tables, with the actions that the migrations' triggers refuse on them, whoever asks."""


def grant(connection: Connection, role: str) -> None:
    """Give a role what the service does with each table, and take from it whatever else it had.

    What triggers refuse is not granted either, so that nobody who has the role's password changes or deletes
    an entry: triggers can be switched off by the tables' owner, which the role is not.

    Args:
        connection: of the role that owns the tables, in a transaction.
        role: that the service runs under.
    """
    quoted = connection.dialect.identifier_preparer.quote_identifier
    name, schema = quoted(role), quoted(connection.scalar(text("SELECT current_schema()")) or "public")
    connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}"))
    connection.execute(text(f"REVOKE CREATE ON SCHEMA {schema} FROM {name}"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {name}"))
    connection.execute(text(f"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {name}"))
    for table, refused in connection.execute(_TABLES).all():
        allowed = ["SELECT"]
        if table != "alembic_version":
            allowed.append("INSERT")
            allowed += [] if refused & _UPDATE else ["UPDATE"]
            allowed += [] if refused & _DELETE else ["DELETE"]
        connection.execute(text(f"GRANT {', '.join(allowed)} ON {quoted(table)} TO {name}"))
