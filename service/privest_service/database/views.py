"""Views for reading by SQL, in units and names of people, and the roles that may read only these views.

No migration makes them: `migrations/env.py` drops all of them before the first migration and makes them again
after the last one. A migration may therefore change any table. A change of a view needs a migration, which
may be empty.

The reading role sees the books of all owners, and the answers that were published for SQL. No view shows
keys, places of rows, other answers, or anything else that a row could change. On PostgreSQL the views
`v_own_…` show the books of some owners: of each owner whose id is the name of a role that the reader is a
member of.

Where a view leaves out rows that its reader must not know of, it reads from a function. PostgreSQL moves
conditions with leakproof operators below the barrier of a plain view, and EXPLAIN shows how many rows each
scan below a view read. Both end at a PL/pgSQL function: the planner never looks into it. A function runs with
the rights of the role that owns the tables, as a plain view does. It takes no arguments, builds no statement
and resolves names in pg_catalog only, so nothing that its caller sets changes what it reads.

Amounts are exact decimals on PostgreSQL. SQLite has only floats: costs are rounded up there, and limits down.
SQLite has no roles: whoever opens the file reads all tables.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from privest_service.database.tables import Base, import_all

_NO_LIMIT = 2**61
"""What an account has as its limits that only counts: see `ledger.units`."""

_FINAL = ("committed", "failed", "voided", "denied", "expired", "withdrawn")
"""States in which a job ends."""

_UNITS = {"mu_squared": 12, "epsilon": 9, "delta": 18, "slack": 18}
"""Digits after the point of what the ledger counts."""

_MAY_PUBLISH = """NOT EXISTS (
    SELECT 1 FROM jobs part JOIN datasets d ON d.id = part.dataset_id
    WHERE (part.id = p.job_id OR part.part_of = p.job_id) AND d.owner_id <> p.publisher_id AND NOT EXISTS (
        SELECT 1 FROM grants g WHERE g.dataset_id = d.id AND g.analyst_id = p.publisher_id
            AND g.revoked_at IS NULL AND g.publish))"""
"""Condition on publications: they are of its publisher's own data, or every owner still lets it publish."""

_CHARGES = """
SELECT e.at AS charged_at, a.owner_id, o.name AS owner, a."window", e.kind AS movement,
    coalesce(j.part_of, j.id) AS question, j.kind AS estimate, j.dataset_id, d.name AS dataset,
    j.submitter_id AS asked_by_id, coalesce(asker.name, own.name) AS asked_by,
    CASE WHEN own.id IS NULL THEN 'analyst' ELSE 'owner' END AS asked_by_role,
    {charged}, {share} AS share_of_budget
FROM entries e
JOIN accounts a ON a.id = e.account_id AND a.scope = 'owner'
JOIN owners o ON o.id = a.owner_id
LEFT JOIN jobs j ON j.id = e.job_id
LEFT JOIN datasets d ON d.id = j.dataset_id
LEFT JOIN analysts asker ON asker.id = j.submitter_id
LEFT JOIN owners own ON own.id = j.submitter_id
WHERE e.kind <> 'limit'
"""

_BUDGETS = """
SELECT a.owner_id, o.name AS owner, a."window", a."window" = o."window" AS is_present, a.scope,
    d.id AS dataset_id, d.name AS dataset, asker.id AS analyst_id, asker.name AS analyst, a.composition,
    o.frozen_by IS NOT NULL AS is_frozen, a.queries, {limits}, {spent},
    {share} AS share_spent, {left} AS share_left
FROM accounts a
JOIN owners o ON o.id = a.owner_id
LEFT JOIN datasets d ON d.id = CASE a.scope WHEN 'dataset' THEN a.subject WHEN 'analyst' THEN {before} END
LEFT JOIN analysts asker ON a.scope = 'analyst' AND asker.id = {behind}
WHERE a.epsilon_limit < {no_limit}
"""

_JOBS = """
SELECT j.id AS job, coalesce(j.part_of, j.id) AS question, j.kind AS estimate, j.state, j.dummy AS is_dummy,
    j.owner_id, o.name AS owner, j.dataset_id, d.name AS dataset,
    j.submitter_id AS asked_by_id, coalesce(asker.name, own.name) AS asked_by,
    CASE WHEN own.id IS NULL THEN 'analyst' ELSE 'owner' END AS asked_by_role,
    j.created_at AS asked_at, ended.at AS ended_at
FROM jobs j
LEFT JOIN owners o ON o.id = j.owner_id
LEFT JOIN datasets d ON d.id = j.dataset_id
LEFT JOIN analysts asker ON asker.id = j.submitter_id
LEFT JOIN owners own ON own.id = j.submitter_id
LEFT JOIN job_transitions ended ON ended.job_id = j.id AND ended.state = j.state AND j.state IN {final}
"""

_ACTS = """
SELECT c.at AS acted_at, o.id AS owner_id, o.name AS owner, c.seq AS number, c.kind AS act,
    c.role AS acted_by_role, c.principal AS acted_by_id, coalesce(who.name, asker.name) AS acted_by,
    CASE WHEN substr(c.kind, 1, 4) <> 'key.' THEN c.subject END AS subject_id,
    coalesce(d.name, about.name, about_owner.name) AS subject, c.reason
FROM acts c
LEFT JOIN owners o ON o.id = c.chain
LEFT JOIN owners who ON who.id = c.principal
LEFT JOIN analysts asker ON asker.id = c.principal
LEFT JOIN datasets d ON d.id = c.subject
LEFT JOIN analysts about ON about.id = c.subject
LEFT JOIN owners about_owner ON about_owner.id = c.subject
"""

_PUBLISHED = """
SELECT p.name, v.place, v.item, v.measure, v.value, v.low, v.high, v.unit, p.off_by, {charged},
    j.kind AS estimate, p.publisher_id, coalesce(asker.name, own.name) AS publisher, p.job_id AS receipt,
    p.answered_at, p.published_at
FROM publications p
JOIN published_values v ON v.name = p.name
JOIN jobs j ON j.id = p.job_id
LEFT JOIN analysts asker ON asker.id = p.publisher_id
LEFT JOIN owners own ON own.id = p.publisher_id
WHERE p.in_sql AND p.withdrawn_at IS NULL AND {may_publish}
"""

_OWNERS = """ARRAY(
    SELECT own.rolname::text
    FROM pg_roles own
    JOIN pg_roles reader
        ON reader.rolname = coalesce(nullif(current_setting('role'), 'none')::name, session_user)
    WHERE starts_with(own.rolname::text, 'own_') AND pg_has_role(reader.oid, own.oid, 'USAGE')
        AND NOT reader.rolsuper)"""
"""Expression for the ids of the owners whose roles the reader has.

The reader is the role that the session has set, else the one that it logged in as. In a function with the
rights of its owner, `current_user` is this owner. Superusers count as members of every role, so they get no
rows: autovacuum runs functions of a table's owner in a session of a superuser.
"""

VIEWS = ("v_charges", "v_budgets", "v_jobs", "v_acts", "v_published")
"""The names of all views that SQLite has, too."""

OWN_VIEWS = {f"v_own_{view[2:]}": view for view in VIEWS if view != "v_published"}
"""Views of PostgreSQL for readers of some owners' books, and the view that each is a part of."""

_HIDING = ("v_published", *OWN_VIEWS)
"""Views of PostgreSQL that leave out rows of which their readers must not know: they read from functions."""

_ALL_PUBLISHED = "all_published"
"""The view that the function behind `v_published` reads. No role is granted it."""

_OWN_ROWS = f" WHERE owner_id = ANY({_OWNERS})"
_OWN_JOBS = f"{_OWN_ROWS} AND dataset_id = ANY(ARRAY(SELECT id FROM {{schema}}.datasets{_OWN_ROWS}))"  # noqa: S608
"""Conditions on rows of own books. Jobs have an index by dataset and none by owner, so theirs names both."""

_PLANNED_BY = """
    enable_seqscan=off enable_hashjoin=off enable_mergejoin=off enable_sort=on enable_nestloop=on
    enable_indexscan=on enable_indexonlyscan=on enable_bitmapscan=on enable_material=off enable_memoize=off
    join_collapse_limit=20 from_collapse_limit=20 geqo=off jit=off max_parallel_workers_per_gather=0
    seq_page_cost=1 random_page_cost=1 cpu_tuple_cost=1 cpu_index_tuple_cost=1 cpu_operator_cost=1
    effective_cache_size=524288 plan_cache_mode=auto
"""
"""Settings of the planner in functions, whatever their callers set: rows left out are not even looked up.

EXPLAIN shows how many pages a function read. With these settings it begins at an index of what the reader
may see. Under settings of its caller it could begin at the other end, and read some pages for each row.
"""

_FUNCTION = """
CREATE FUNCTION {schema}.{name}() RETURNS SETOF {schema}.{row}
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000 ROWS 1000
SET search_path = pg_catalog, pg_temp SET client_min_messages = warning {settings}
AS $$ BEGIN RETURN QUERY SELECT * FROM {schema}.{row}{condition}; END $$
"""
"""Makes a function that returns the rows of a view.

Cost and rows are constants, as estimates would tell of the rows left out. Messages below warnings are off,
because a reader can have the server log plans (debug_print_plan) and send what it logs to the client.
"""


class _Words:
    """What SQLite and PostgreSQL say differently."""

    def __init__(self, dialect: str) -> None:
        self._is_sqlite = dialect == "sqlite"

    def amount(self, column: str, name: str, *, up: bool = True) -> str:
        """An amount of the ledger's units as a number: exactly, or rounded up or down."""
        digits = _UNITS[name]
        if not self._is_sqlite:
            return f"trim_scale({column} * 0.{'1'.rjust(digits, '0')})"
        # Two roundings of floats are at most 2⁻⁵² of it, and a third may take as much again: 2⁻⁵¹ is more.
        return f"{column} / 1e{digits} {'+' if up else '-'} abs({column} / 1e{digits}) * {2.0**-51!r}"

    def amounts(self, row: str, after: str = "", *, up: bool = True) -> str:
        """All four amounts of a row, named as they are there."""
        named = ((f"{row}.{name}{after}", name) for name in _UNITS)
        return ", ".join(f"{self.amount(each, name, up=up)} AS {name}{after}" for each, name in named)

    def millionths(self, spent: str, limit: str) -> str:
        """How many millionths of a limit are spent, rounded up."""
        if self._is_sqlite:
            most = f"CAST(1e6 * {spent} / {limit} + 0.001 AS INTEGER) + 1"  # more than floats can be off by
            found = f"CASE WHEN {spent} = 0 THEN 0 ELSE min({most}, 1000000) END"
        else:
            found = f"div({spent}::numeric * 1000000 + {limit} - 1, {limit})"
        return f"CASE WHEN {limit} > 0 THEN {found} WHEN {spent} > 0 THEN 1000000 ELSE 0 END"

    def shares(self, spent: str = "a.{}_spent", *, left: bool = False) -> str:
        """What is spent of an account, or what is left: of its two sums, by the one of which more is gone."""
        most = "max" if self._is_sqlite else "greatest"

        def of(*names: str) -> str:
            return f"{most}({', '.join(self.millionths(spent.format(n), f'a.{n}_limit') for n in names)})"

        gdp, basic = of("mu_squared", "slack"), of("epsilon", "delta")
        found = f"CASE a.composition WHEN 'gdp' THEN {gdp} ELSE {basic} END"
        found = f"(1000000 - {found})" if left else f"({found})"
        return f"{found} / 1e6" if self._is_sqlite else f"trim_scale({found} * 0.000001)"

    def part(self, column: str, *, behind: bool) -> str:
        """What is before the first slash of a text, or behind it."""
        if not self._is_sqlite:
            return f"split_part({column}, '/', {1 + behind})"
        at = f"instr({column}, '/')"
        return f"substr({column}, {at} + 1)" if behind else f"substr({column}, 1, {at} - 1)"


def definitions(dialect: str) -> dict[str, str]:
    """Return the SELECT of each view of whole tables, by its name."""
    words = _Words(dialect)
    given_back = words.shares("abs(e.{})")
    return {
        "v_charges": _CHARGES.format(
            charged=words.amounts("e"), share=f"CASE WHEN e.kind = 'void' THEN -1 ELSE 1 END * {given_back}"
        ),
        "v_budgets": _BUDGETS.format(
            limits=words.amounts("a", "_limit", up=False),
            spent=words.amounts("a", "_spent"),
            share=words.shares(),
            left=words.shares(left=True),
            before=words.part("a.subject", behind=False),
            behind=words.part("a.subject", behind=True),
            no_limit=_NO_LIMIT,
        ),
        "v_jobs": _JOBS.format(final=_FINAL),
        "v_acts": _ACTS,
        "v_published" if dialect == "sqlite" else _ALL_PUBLISHED: _PUBLISHED.format(
            charged=", ".join(
                f"{words.amount(f'p.{name}', name)} AS {name}" for name in ("epsilon", "delta")
            ),
            may_publish=_MAY_PUBLISH,
        ),
    }


def drop(connection: Connection) -> None:
    """Drop all views and their functions, so that none prevents a change of tables."""
    for name in _HIDING:
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))
        if connection.dialect.name != "sqlite":
            connection.execute(text(f"DROP FUNCTION IF EXISTS {_function(name)}()"))
    for name in definitions(connection.dialect.name):
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))


def make(connection: Connection) -> None:
    """Make all views, over tables of the present version. Nobody may read them before it is granted."""
    dialect = connection.dialect.name
    # A barrier: functions of the reader are not called with rows that the view's condition leaves out.
    barrier = "" if dialect == "sqlite" else "WITH (security_barrier) "
    for name, select in definitions(dialect).items():
        connection.exec_driver_sql(f"CREATE VIEW {name} {barrier}AS {select}")
    if dialect == "sqlite":
        return
    schema, settings = _schema(connection), " ".join(f"SET {each}" for each in _PLANNED_BY.split())
    for name in _HIDING:
        function = _function(name)
        condition = _OWN_JOBS if name == "v_own_jobs" else _OWN_ROWS if name in OWN_VIEWS else ""
        made = _FUNCTION.format(
            schema=schema,
            name=function,
            row=OWN_VIEWS.get(name, _ALL_PUBLISHED),
            settings=settings,
            condition=condition.format(schema=schema),
        )
        connection.exec_driver_sql(made)
        connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {schema}.{function}() FROM PUBLIC")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS SELECT * FROM {schema}.{function}()")  # noqa: S608


def _function(view: str) -> str:
    """Return the name of the function from which a view reads."""
    return f"{view}_rows"


def _schema(connection: Connection) -> str:
    """Return the quoted name of the schema in which tables and views are."""
    name = connection.scalar(text("SELECT current_schema()")) or "public"
    return connection.dialect.identifier_preparer.quote_identifier(name)


def grant_reading(connection: Connection, role: str) -> None:
    """Let a role of PostgreSQL read the views, and revoke all other rights that it had on the service's.

    The connection is in a transaction, and of the role that owns tables and views.
    """
    import_all()
    quoted = connection.dialect.identifier_preparer.quote_identifier
    name, schema = quoted(role), _schema(connection)
    for table in (*Base.metadata.tables, "alembic_version", *VIEWS, *OWN_VIEWS, _ALL_PUBLISHED):
        connection.execute(text(f"REVOKE ALL ON {quoted(table)} FROM {name}"))
    for view in _HIDING:
        connection.execute(text(f"REVOKE ALL ON FUNCTION {_function(view)}() FROM {name}"))
    connection.execute(text(f"REVOKE CREATE ON SCHEMA {schema} FROM {name}"))
    _grant(connection, name, VIEWS)


def grant_owners(connection: Connection) -> None:
    """Let each role that has an owner's id as its name read the views of that owner's books.

    The connection is to PostgreSQL, in a transaction, and of the role that owns the views.
    """
    named = text("SELECT id FROM owners WHERE id IN (SELECT rolname::text FROM pg_roles)")
    for owner_id in connection.scalars(named).all():
        _grant(
            connection, connection.dialect.identifier_preparer.quote_identifier(owner_id), tuple(OWN_VIEWS)
        )


def _grant(connection: Connection, role: str, views: Sequence[str]) -> None:
    """Let a role, whose name is quoted, read some views, and so call the functions that these read from."""
    connection.execute(text(f"GRANT USAGE ON SCHEMA {_schema(connection)} TO {role}"))
    for view in views:
        connection.execute(text(f"GRANT SELECT ON {view} TO {role}"))
        if view in _HIDING:
            connection.execute(text(f"GRANT EXECUTE ON FUNCTION {_function(view)}() TO {role}"))
