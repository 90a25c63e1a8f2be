"""Readers by SQL try to learn of rows that a view leaves out, from EXPLAIN and from what the server logs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.database.views import OWN_VIEWS, VIEWS
from testing import ROOT
from testing.roles import Roles
from testing.server import SIGNER
from testing.world import World

pytestmark = pytest.mark.parametrize("backend", ["postgresql"])

SECRET = 0.7316250948
"""An answer of another owner that is not published for SQL."""

ABOUT_OTHERS = (
    "owner_id = '{}'",  # leakproof operators: PostgreSQL moves these conditions below a barrier
    "owner_id <> '{}'",
    "owner_id LIKE '{}'",  # no leakproof operator
    "owner_id IN (SELECT '{}')",
    "true OR owner_id = '{}'",
)


@pytest.fixture
def roles(database_url: str) -> Iterator[Roles]:
    made = Roles(database_url)
    yield made
    made.drop()


class Reader:
    """A session under a role that reads views, which collects all that the server says of its statements."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection, self._logged = connection, list[str]()
        connection.add_notice_handler(
            lambda said: self._logged.append(f"{said.message_primary} {said.message_detail}")
        )
        # A caller's settings reach the functions that it calls, and logs reach the client.
        for setting in (
            "client_min_messages = log",
            "debug_print_plan = on",
            "join_collapse_limit = 1",
            "enable_indexscan = off",
            "enable_bitmapscan = off",
        ):
            connection.execute(f"SET {setting}".encode())

    def seen(self, view: str, condition: str) -> str:
        """Return what EXPLAIN and the log show of a statement, without times and the condition's constants.

        Whether a page was in the cache differs from run to run, so both kinds are added up. The first run
        reads the server's catalogs as well, so the second one counts.
        """
        statement = f"SELECT * FROM {view} WHERE {condition}"  # noqa: S608
        explained = (
            f"EXPLAIN (ANALYZE, BUFFERS, VERBOSE, SETTINGS, TIMING OFF, SUMMARY OFF) {statement}".encode()
        )
        self._connection.execute(explained)
        self._logged.clear()
        plan = self._connection.execute(explained).fetchall()
        lines = [re.sub(r"shared .*", lambda found: _pages(found[0]), line) for (line,) in plan]
        planning = next((at for at, line in enumerate(lines) if line.startswith("Planning")), len(lines))
        logged = re.sub(r":(constvalue|location|stmt_len) .*", "", "\n".join(self._logged))
        return "\n".join([*(line for line in lines[:planning] if "Filter: " not in line), logged])


def _pages(buffers: str) -> str:
    return f"pages {sum(int(count) for count in re.findall(r'(?:hit|read)=([0-9]+)', buffers))}"


@contextmanager
def reading(url: str) -> Iterator[Reader]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Reader(connection)


def bisected(reader: Reader, condition: str) -> tuple[float, float]:
    """Search for a number: it is below a bound where the server shows what it shows for a high bound."""
    low, high = -1.0, 1.0
    below = reader.seen("v_published", condition.format(high))
    for _ in range(41):
        middle = (low + high) / 2
        if reader.seen("v_published", condition.format(middle)) == below:
            high = middle
        else:
            low = middle
    return low, high


@pytest.mark.parametrize("condition", ["value < {}", "value + 0 < {}", "value::numeric < {}"])
def test_no_bisection_finds_an_answer_that_is_not_published(roles: Roles, condition: str) -> None:
    database = Database(roles.making, signer=SIGNER)
    migrate(database, reader=roles.reader)
    world = World.make(database)
    job = world.submit(database, "a")
    database.close()
    publication = (
        "INSERT INTO publications VALUES ('hidden', '{}', '{}', false, 1, 1, null, now(), now(), null);"
        "INSERT INTO published_values VALUES ('hidden', 0, 'item', 'mean', 0, null, null, null)"
    )
    roles.does(publication.format(world.owner, job), roles.making)
    learned = []
    for value in (SECRET, -SECRET):
        roles.does(f"UPDATE published_values SET value = {value}", roles.making)  # noqa: S608
        with reading(roles.reading) as reader:
            named = [reader.seen("v_published", f"name {how} 'hidden'") for how in ("=", "<>", "LIKE")]
            learned.append((bisected(reader, condition), named))
    assert learned[0] == learned[1]


def test_the_books_of_others_change_nothing_that_a_reader_of_its_own_sees(roles: Roles) -> None:
    """Pages of an index may be split and plans may follow statistics, but no row of others costs a page."""
    database = Database(roles.making, signer=SIGNER)
    migrate(database)
    own, other = World.make(database), World.make(database)
    for key in "abcde":
        own.submit(database, key)
        other.submit(database, key)
    clinic = f"clinic_{roles.reader}"
    url = make_url(roles.reading).set(username=clinic).render_as_string(hide_password=False)
    create = 'CREATE ROLE "{0}" NOLOGIN; CREATE ROLE {1} LOGIN PASSWORD \'x\' IN ROLE "{0}"'
    roles.does(create.format(own.owner, clinic), roles.superuser)

    def seen() -> tuple[dict[str, str], dict[str, int]]:
        roles.does("ANALYZE", roles.making)
        with reading(url) as reader:
            told = {
                f"{view} {condition}": reader.seen(view, condition.format(other.owner))
                for view in OWN_VIEWS
                for condition in ABOUT_OTHERS
            }
        pages = {statement: int(re.findall(r"pages (\d+)", one)[0]) for statement, one in told.items()}
        return {statement: re.sub(r"pages \d+", "", one) for statement, one in told.items()}, pages

    try:
        migrate(database)
        before, pages = seen()
        for view in OWN_VIEWS:  # the function reads the same pages whatever the condition is
            assert len({pages[f"{view} {condition}"] for condition in ABOUT_OTHERS}) == 1
        further = [other.submit(database, f"further {number}") for number in range(30)]
        after, more_pages = seen()
        assert after == before
        for statement, count in pages.items():
            assert abs(more_pages[statement] - count) < len(further) // 2, statement
    finally:
        database.close()
        for role in (clinic, own.owner):
            roles.does(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"', roles.superuser)


def test_functions_behind_views_have_fixed_settings_and_few_callers(roles: Roles) -> None:
    """The reading role calls one of them, and nobody else any; a superuser's session shows no own books."""
    database = Database(roles.making, signer=SIGNER)
    migrate(database, reader=roles.reader)
    World.make(database)
    with database.read() as session:
        found = session.execute(
            text(
                "SELECT proname, prosecdef, prorows, procost, proconfig,"
                " has_function_privilege(:reader, oid, 'EXECUTE'),"
                " has_function_privilege(:other, oid, 'EXECUTE')"
                " FROM pg_proc WHERE proname LIKE 'v\\_%' AND pronamespace = current_schema()::regnamespace"
            ),
            {"reader": roles.reader, "other": roles.runner},
        ).all()
    assert {(name, reads) for name, *_, reads, _ in found} == {
        ("v_published_rows", True),
        *((f"{view}_rows", False) for view in OWN_VIEWS),
    }
    for _, definer, rows, cost, settings, _, others in found:
        assert (definer, rows, cost, others) == (True, 1000, 1000, False)
        assert {"search_path=pg_catalog, pg_temp", "client_min_messages=warning"} <= set(settings)
    database.close()
    for statement in ("SELECT * FROM all_published", "SELECT * FROM v_own_jobs_rows()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.does(statement, roles.reading)


def test_a_set_role_narrows_what_is_read_and_superusers_own_no_books(roles: Roles) -> None:
    database = Database(roles.making, signer=SIGNER)
    migrate(database)
    first, second = World.make(database), World.make(database)
    for owner in (first.owner, second.owner):
        roles.does(f'CREATE ROLE "{owner}" NOLOGIN; GRANT "{owner}" TO {roles.reader}', roles.superuser)

    def owners(url: str, role: str) -> set[str]:
        with psycopg.connect(url) as connection:
            connection.execute(f'SET ROLE "{role}"'.encode())
            return {owner for (owner,) in connection.execute("SELECT owner_id FROM v_own_acts")}

    try:
        migrate(database)
        assert owners(roles.reading, roles.reader) == {first.owner, second.owner}
        assert owners(roles.reading, first.owner) == {first.owner}
        assert owners(roles.superuser, make_url(roles.superuser).username or "") == set()
        assert owners(roles.superuser, second.owner) == {second.owner}
    finally:
        database.close()
        for owner in (first.owner, second.owner):
            roles.does(f'DROP OWNED BY "{owner}"; DROP ROLE "{owner}"', roles.superuser)


def test_the_page_takes_counts_of_rows_from_readers(roles: Roles) -> None:
    database = Database(roles.making, signer=SIGNER)
    migrate(database, reader=roles.reader)
    page = (ROOT / "docs/bi.md").read_text()
    (taking,) = re.findall(r"^```sql\n(DO .*?)^```", page, re.MULTILINE | re.DOTALL)
    counts = (
        "SELECT n_live_tup FROM pg_stat_user_tables",
        "SELECT heap_blks_hit FROM pg_statio_user_tables",
        "SELECT seq_tup_read FROM pg_stat_xact_user_tables",
        "SELECT pg_relation_size('jobs')",
        "SELECT reltuples FROM pg_class",
        "SELECT relpages FROM pg_class",
    )
    for statement in counts:
        roles.does(statement, roles.reading)
    roles.does(taking, roles.superuser)
    for statement in counts:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.does(statement, roles.reading)
    engine = create_engine(make_url(roles.reading).set(drivername="postgresql+psycopg"))
    assert "v_published" in inspect(engine).get_view_names()  # BI tools still find what they may read
    assert inspect(engine).get_columns("v_published")
    engine.dispose()
    migrate(database, reader=roles.reader)
    database.close()


def test_views_of_an_older_version_are_replaced(roles: Roles) -> None:
    """Up to revision 0021 all of them were plain."""
    database = Database(roles.making, signer=SIGNER)
    migrate(database)
    roles.does("UPDATE alembic_version SET version_num = '0021'", roles.making)
    for view in ("v_published", *OWN_VIEWS):
        whole = OWN_VIEWS.get(view, "all_published")
        plain = f"DROP VIEW {view}; CREATE VIEW {view} AS SELECT * FROM {whole}"  # noqa: S608
        roles.does(f"{plain}; DROP FUNCTION {view}_rows()", roles.making)
    migrate(database)
    with database.read() as session:
        reading = (
            "SELECT viewname FROM pg_views WHERE definition LIKE '%\\_rows()%' AND schemaname = 'public'"
        )
        assert {*session.scalars(text(reading))} == {"v_published", *OWN_VIEWS}
    assert {*VIEWS} & {*OWN_VIEWS} == set()
    database.close()
