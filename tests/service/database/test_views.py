"""Views for SQL: what they tell, how they round, and what the role that reads them cannot see."""

import random
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from sqlalchemy import make_url, select, text, update

from privest_service.database import Base, Database
from privest_service.database.migrate import config, migrate
from privest_service.database.tables import import_all
from privest_service.database.views import OWN_VIEWS, VIEWS
from privest_service.datasets.models import Dataset
from privest_service.jobs.models import Job
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import EPSILON, MU_SQUARED, PROBABILITY, Limits
from privest_service.security.models import ApiKey, Owner
from testing import ROOT
from testing.commands import privest
from testing.roles import Roles
from testing.server import SIGNER
from testing.world import COST, World

PER_ONE = {"mu_squared": MU_SQUARED, "epsilon": EPSILON, "delta": PROBABILITY, "slack": PROBABILITY}


def rows(database: Database, view: str) -> list[dict[str, Any]]:
    with database.read() as session:
        return [dict(row) for row in session.execute(text(f"SELECT * FROM {view}")).mappings()]  # noqa: S608


def exact(value: Any) -> Fraction:
    assert isinstance(value, int | float | Decimal)
    return Fraction(value)


def test_charges_are_told_by_names_and_are_never_less_than_they_are(database: Database) -> None:
    world = World.make(database)
    with database.write() as session:
        session.get_one(Owner, world.owner).name = "Clinic"
        session.get_one(Dataset, world.dataset).name = "Patients"
    kept, given_back = (world.submit(database, key) for key in "ab")
    world.revoke(database)  # which gives back what waits
    told = rows(database, "v_charges")
    assert [(each["movement"], each["owner"], each["dataset"]) for each in told] == [
        (movement, "Clinic", "Patients") for movement in ("debit", "debit", "void", "void")
    ]
    assert {each["question"] for each in told} == {kept, given_back}
    assert {(each["asked_by"], each["asked_by_role"], each["estimate"]) for each in told} == {
        ("x", "analyst", "frechet-mean")
    }
    for each in told:
        sign = 1 if each["movement"] == "debit" else -1
        for name, per_one in PER_ONE.items():
            truth = sign * Fraction(getattr(COST, name), per_one)
            assert truth <= exact(each[name]) <= truth + abs(truth) / 10**15
            assert database.is_sqlite or exact(each[name]) == truth
    assert sum(exact(each["share_of_budget"]) for each in told) == 0


def test_no_cost_is_rounded_down_and_no_limit_up(database: Database) -> None:
    """Seeded numbers of all sizes, in both currencies."""
    world, drawn = World.make(database), random.Random(19)  # noqa: S311
    with database.write() as session:
        account = ledger.owner_account(session, world.owner)
        number, composition = account.id, account.composition
    assert composition == "gdp"
    for place in range(60):
        composition = ("gdp", "basic")[place % 2]
        limits = {name: drawn.randrange(1, 2 ** drawn.randrange(1, 61)) for name in PER_ONE}
        spent = {name: drawn.choice((0, limit, drawn.randrange(limit + 1))) for name, limit in limits.items()}
        values = {f"{name}_limit": limit for name, limit in limits.items()}
        values |= {f"{name}_spent": amount for name, amount in spent.items()}
        with database.write() as session:
            change = update(Account).where(Account.id == number)
            session.execute(change.values(composition=composition, **values))
        (told,) = (each for each in rows(database, "v_budgets") if each["scope"] == "owner")
        for name, per_one in PER_ONE.items():
            limit, amount = Fraction(limits[name], per_one), Fraction(spent[name], per_one)
            assert limit * (1 - Fraction(1, 10**15)) <= exact(told[f"{name}_limit"]) <= limit
            assert amount <= exact(told[f"{name}_spent"]) <= amount * (1 + Fraction(1, 10**15))
        counted = ("mu_squared", "slack") if composition == "gdp" else ("epsilon", "delta")
        share = max(Fraction(spent[name], limits[name]) for name in counted)
        step = Fraction(21, 10**7)  # two millionths: of a float one may be off by hardly anything
        assert share <= exact(told["share_spent"]) <= share + step
        assert 1 - share - step <= exact(told["share_left"]) <= 1 - share


def test_what_has_no_limit_is_no_budget_and_caps_are_told_by_names(database: Database) -> None:
    world = World.make(database)
    assert [each["scope"] for each in rows(database, "v_budgets")] == ["owner"]
    with database.write() as session:
        for account in session.scalars(select(Account).where(Account.scope != "owner")):
            ledger.set_cap(session, account.id, Limits.of(0.5, 1e-6, "gdp"))
        session.get_one(Owner, world.owner).frozen_by = "admin"
        ledger.open_window(session, world.owner)
    told = rows(database, "v_budgets")
    assert sorted((each["scope"], each["window"], bool(each["is_present"])) for each in told) == sorted(
        (scope, window, window == 2) for scope in ("owner", "dataset", "analyst") for window in (1, 2)
    )
    assert all(each["is_frozen"] for each in told)
    assert {each["scope"]: (each["dataset_id"], each["analyst_id"]) for each in told} == {
        "owner": (None, None),
        "dataset": (world.dataset, None),
        "analyst": (world.dataset, world.analyst),
    }


def test_jobs_and_acts_are_told_with_times_and_without_answers(database: Database) -> None:
    world = World.make(database)
    waiting = world.submit(database, "a")
    (job,) = rows(database, "v_jobs")
    assert (job["job"], job["state"], job["ended_at"], bool(job["is_dummy"])) == (
        waiting,
        "reserved",
        None,
        False,
    )
    world.revoke(database)
    (job,) = rows(database, "v_jobs")
    assert job["state"] == "voided"
    assert str(job["ended_at"]) >= str(job["asked_at"])
    acts = {each["act"]: each for each in rows(database, "v_acts")}
    assert acts["grant.made"]["owner"] == "x"
    assert acts["grant.made"]["subject_id"] == world.dataset
    assert acts["analyst.created"]["owner"] is None
    columns = {name for view in VIEWS for each in rows(database, view) for name in each}
    assert not columns & {
        "result",
        "receipt",
        "plan",
        "spec_digest",
        "tag",
        "fingerprint",
        "details",
        "key",
        "digest",
    }


def test_views_are_the_same_whatever_the_rows_are(database: Database) -> None:
    """All that a row decides in these tables is exchanged."""
    world = World.make(database)
    world.submit(database, "a")
    before = {view: rows(database, view) for view in VIEWS}
    with database.write() as session:
        session.execute(update(Dataset).values(fingerprint="of other rows"))
        session.execute(update(Job).values(receipt="another", analyst_receipt="another"))
    assert {view: rows(database, view) for view in VIEWS} == before
    with database.write() as session:  # and the comparison is no blind one
        session.execute(update(Dataset).values(name="another"))
    assert {view: rows(database, view) for view in VIEWS} != before


def test_views_stand_in_the_way_of_no_migration(database: Database) -> None:
    """A later migration may drop a column that views read; a version below this one has none of them."""
    before = _defined(database)
    assert set(before) == {*VIEWS} if database.is_sqlite else {*VIEWS, *OWN_VIEWS}
    command.downgrade(config(database), "-1")
    assert _defined(database) == {}
    command.upgrade(config(database), "head")
    assert _defined(database) == before


def _defined(database: Database) -> dict[str, str]:
    found = (
        "SELECT name, sql FROM sqlite_master WHERE type = 'view'"
        if database.is_sqlite
        else "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema()"
    )
    with database.read() as session:
        return {each[0]: each[1] for each in session.execute(text(found))}


@pytest.fixture
def roles(database_url: str) -> Iterator[Roles]:
    made = Roles(database_url)
    yield made
    made.drop()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_the_reading_role_reads_the_views_and_nothing_else(roles: Roles, tmp_path: Path) -> None:
    settings = {"migration_url": roles.making, "database_url": roles.running, "reading_role": roles.reader}
    done = privest(tmp_path, "migrate", **settings)
    assert done.returncode == 0, done.stderr
    database = Database(roles.making, signer=SIGNER)
    world = World.make(database)
    world.submit(database, "a")
    database.close()
    with psycopg.connect(roles.reading) as connection:
        for view in VIEWS:
            connection.execute(f"SELECT * FROM {view}")  # noqa: S608  # pyright: ignore
        assert connection.execute("SELECT asked_by FROM v_charges").fetchall() == [("x",)]
    import_all()
    for table in (*Base.metadata.tables, "alembic_version"):
        for statement in (
            "SELECT * FROM {}",
            "SELECT count(*) FROM {}",
            "DELETE FROM {}",
            "TRUNCATE {} CASCADE",
        ):
            refused(roles, statement.format(table))
    for table in (*Base.metadata.tables, *VIEWS):
        refused(roles, f"DROP TABLE {table}" if table not in VIEWS else f"DROP VIEW {table}")
        refused(roles, f"GRANT SELECT ON {table} TO PUBLIC", may_warn=table in VIEWS)
    for view in VIEWS:
        refused(roles, f"DELETE FROM {view}")  # noqa: S608
    for statement in (
        f"SET ROLE {roles.maker}",
        f"SET ROLE {roles.runner}",
        "CREATE TABLE more (a integer)",
        "CREATE OR REPLACE VIEW v_charges AS SELECT * FROM api_keys",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
    ):
        refused(roles, statement)
    # Statistics of tables would tell values of columns.
    with psycopg.connect(roles.reading) as connection:
        seen = "SELECT count(*) FROM pg_stats WHERE schemaname = current_schema()"
        assert connection.execute(seen).fetchone() == (0,)


def refused(roles: Roles, statement: str, *, may_warn: bool = False) -> None:
    """Check that PostgreSQL refuses a statement to the reading role, or warns that it granted nothing."""
    known = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)
    try:
        roles.does(statement, roles.reading)
    except known:
        return
    assert may_warn, statement


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_reader_learns_nothing_of_rows_that_a_view_leaves_out(roles: Roles) -> None:
    """A cheap function in a condition would else be called before the view's own, which look for grants."""
    roles.does(f"ALTER DATABASE {roles.database} SET search_path = public", roles.superuser)
    database = Database(roles.making, signer=SIGNER)
    migrate(database, reader=roles.reader)
    world = World.make(database)
    job = world.submit(database, "a")
    database.close()
    roles.does(f"GRANT TEMPORARY ON DATABASE {roles.database} TO {roles.reader}", roles.superuser)
    publication = (
        "INSERT INTO publications VALUES ('hidden', '{}', '{}', true, 1, 1, null, now(), now(), null);"
        "INSERT INTO published_values VALUES ('hidden', 0, 'secret', 'mean', 1.0, null, null, null)"
    )
    roles.does(publication.format(world.analyst, job), roles.making)
    heard = list[str]()
    with psycopg.connect(roles.reading) as connection:
        connection.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
        connection.execute(
            "CREATE FUNCTION pg_temp.tell(x text) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
            " AS 'BEGIN RAISE NOTICE ''%'', x; RETURN true; END'"
        )
        assert connection.execute("SELECT item FROM v_published WHERE pg_temp.tell(name)").fetchall() == []
    assert heard == []


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_role_of_an_owners_name_reads_the_books_of_this_owner_alone(roles: Roles, tmp_path: Path) -> None:
    both = {"migration_url": roles.making, "database_url": roles.running}
    assert privest(tmp_path, "migrate", **both, reading_role=roles.reader).returncode == 0
    database = Database(roles.making, signer=SIGNER)
    first, second = World.make(database), World.make(database)
    for world in (first, second):
        world.submit(database, world.owner)
    database.close()
    page = (ROOT / "docs/bi.md").read_text().split("## One owner's books")[1].split("```")[1]
    statements = page.removeprefix("sql\n").replace("own_7d1b3f5a9c2e4860", first.owner)
    statements = statements.replace("clinic_read", f"clinic_{roles.reader}")
    reading = make_url(roles.reading).set(username=f"clinic_{roles.reader}", password="…")  # noqa: S106

    def seen(view: str) -> set[str]:
        with psycopg.connect(reading.render_as_string(hide_password=False)) as connection:
            found = connection.execute(f"SELECT owner_id FROM {view}")  # noqa: S608  # pyright: ignore
            return {owner for (owner,) in found}

    try:
        roles.does(statements.replace("DATABASE privest", f"DATABASE {roles.database}"), roles.superuser)
        assert privest(tmp_path, "migrate", **both).returncode == 0
        for view, whole in OWN_VIEWS.items():
            assert seen(view) == {first.owner}, view
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                seen(whole)
            with (
                psycopg.connect(roles.reading) as connection,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                connection.execute(f"SELECT * FROM {view}")  # noqa: S608  # pyright: ignore
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            seen("accounts")
        roles.does(f'REVOKE "{first.owner}" FROM clinic_{roles.reader}', roles.superuser)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            seen("v_own_charges")
    finally:
        for role in (f"clinic_{roles.reader}", first.owner):
            roles.does(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"', roles.superuser)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_role_that_had_more_is_left_the_views(roles: Roles, tmp_path: Path) -> None:
    both = {"migration_url": roles.making, "database_url": roles.running}
    assert privest(tmp_path, "migrate", **both).returncode == 0
    refused(roles, "SELECT * FROM v_charges")  # nobody was named
    roles.does(f"GRANT ALL ON api_keys, v_acts TO {roles.reader}", roles.making)
    for _ in range(2):  # there is nothing to migrate
        assert privest(tmp_path, "migrate", **both, reading_role=roles.reader).returncode == 0
        roles.does("SELECT * FROM v_charges", roles.reading)
        refused(roles, "SELECT * FROM api_keys")
        refused(roles, "INSERT INTO v_acts (reason) VALUES ('x')")
    for wrong, why in (
        (roles.runner, "of its own"),
        (roles.maker, "of its own"),
        ("nobody_at_all", "not exist"),
    ):
        done = privest(tmp_path, "migrate", **both, reading_role=wrong)
        assert done.returncode == 2
        assert why in done.stderr
    done = privest(tmp_path, "migrate", reading_role=roles.reader)
    assert done.returncode == 2
    assert "SQLite has no roles" in done.stderr


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_migration_keeps_the_reader(roles: Roles) -> None:
    database = Database(roles.making, signer=SIGNER)
    migrate(database, reader=roles.reader)
    command.downgrade(config(database), "-1")
    refused_at = pytest.raises(psycopg.errors.UndefinedTable)
    with refused_at:
        roles.does("SELECT * FROM v_charges", roles.reading)
    migrate(database, reader=roles.reader)
    roles.does("SELECT * FROM v_charges", roles.reading)
    with database.read() as session:
        assert session.scalar(select(Entry.seq).limit(1)) is None
        assert session.scalar(select(ApiKey.id).limit(1)) is None
    database.close()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_the_page_makes_a_role_that_its_queries_can_be_asked_under(roles: Roles) -> None:
    page = (ROOT / "docs/bi.md").read_text()
    making, _own, _counts, *queries = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [re.findall(r"v_\w+", query) for query in queries] == [[view] for view in VIEWS]
    database = Database(roles.making, signer=SIGNER)
    roles.does(f"DROP ROLE {roles.reader}", roles.superuser)  # the page makes its own
    for statement in (
        making.replace("privest_read", roles.reader)
        .replace("DATABASE privest ", f"DATABASE {roles.database} ")
        .strip()
        .split("\n")
    ):
        roles.does(statement, roles.superuser)
    migrate(database, reader=roles.reader)
    world = World.make(database)
    world.submit(database, "a")
    database.close()
    reading = make_url(roles.superuser).set(username=roles.reader).render_as_string(hide_password=False)
    with psycopg.connect(reading) as connection:
        found = [connection.execute(query).fetchall() for query in queries]  # pyright: ignore
        assert [len(each) for each in found] == [1, 1, 1, 1, 0]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TEMPORARY TABLE more (a integer)")


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_view_of_others_is_not_dropped_and_is_told(roles: Roles) -> None:
    database = Database(roles.making)
    migrate(database, reader=roles.reader)
    for statement in (
        f"CREATE SCHEMA theirs AUTHORIZATION {roles.reader}",
        f"SET ROLE {roles.reader}; CREATE VIEW theirs.weekly AS SELECT * FROM public.v_charges",  # noqa: S608
        "UPDATE alembic_version SET version_num = '0018'",  # another version is to come
    ):
        roles.does(statement, roles.superuser)
    with pytest.raises(ValueError, match="Drop theirs"):
        migrate(database)
    database.close()
    roles.does("SELECT * FROM theirs.weekly", roles.reading)
