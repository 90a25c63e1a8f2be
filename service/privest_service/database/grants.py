"""Grants: rights of the role that runs the service, on tables that another role made."""

from sqlalchemy import Connection, text

from privest_service.database.tables import Base, import_all

_DELETE, _UPDATE = 8, 16
"""Bits of PostgreSQL's `pg_trigger.tgtype`."""

_OWNED = text("""
    SELECT c.relname FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
        AND pg_has_role(c.relowner, 'USAGE')
""")
"""Selects all tables that this role owns. Other programs may have some in the same schema."""

_TABLES = text("""
    SELECT c.relname AS name, coalesce(bit_or(t.tgtype), 0) AS refused
    FROM pg_class c
    LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgqual IS NULL
        AND t.tgfoid = (SELECT oid FROM pg_proc WHERE proname = 'privest_refuse'
                        AND pronamespace = current_schema()::regnamespace)
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(:ours)
    GROUP BY c.relname ORDER BY c.relname
""")
"""Selects the service's tables, with the actions that the migrations' triggers refuse to everybody."""

_SEQUENCES = text("""
    SELECT s.relname FROM pg_class s
    JOIN pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    JOIN pg_class c ON c.oid = d.refobjid
    WHERE s.relkind = 'S' AND c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(:ours)
""")
"""Selects the sequences of the service's tables."""


def grant(connection: Connection, role: str) -> None:
    """Give a role what the service does with each of its tables, and take from it whatever else it had.

    Of tables that other programs have in the same schema it is given nothing.
    What triggers refuse is not granted either, so that nobody who has the role's password changes or deletes
    an entry: triggers can be switched off by the tables' owner, which the role is not.

    The connection is in a transaction, and of the role that owns the tables.
    """
    import_all()
    ours = {"ours": [*Base.metadata.tables, "alembic_version"]}
    quoted = connection.dialect.identifier_preparer.quote_identifier
    name, schema = quoted(role), quoted(connection.scalar(text("SELECT current_schema()")) or "public")
    for table in connection.scalars(_OWNED).all():
        connection.execute(text(f"REVOKE ALL ON {quoted(table)} FROM {name}"))
    connection.execute(text(f"REVOKE CREATE ON SCHEMA {schema} FROM {name}"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {name}"))
    for sequence in connection.scalars(_SEQUENCES, ours).all():
        connection.execute(text(f"GRANT USAGE, SELECT, UPDATE ON SEQUENCE {quoted(sequence)} TO {name}"))
    for table, refused in connection.execute(_TABLES, ours).all():
        allowed = ["SELECT"]
        if table != "alembic_version":
            allowed.append("INSERT")
            allowed += [] if refused & _UPDATE else ["UPDATE"]
            allowed += [] if refused & _DELETE else ["DELETE"]
        connection.execute(text(f"GRANT {', '.join(allowed)} ON {quoted(table)} TO {name}"))
