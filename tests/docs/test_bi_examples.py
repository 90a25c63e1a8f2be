"""Examples for Superset and dbt: their queries run under the reading role, and dbt where it can be had."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import yaml
from jinja2 import Environment, StrictUndefined
from sqlalchemy import make_url

from privest_service.database import Database
from privest_service.database.migrate import migrate
from testing import ROOT
from testing.roles import Roles
from testing.server import SIGNER
from testing.world import World

DBT, SUPERSET = ROOT / "examples/dbt", ROOT / "examples/superset"

pytestmark = pytest.mark.parametrize("backend", ["postgresql"])


@pytest.fixture
def roles(database_url: str) -> Iterator[Roles]:
    """A database where an answer of two numbers is published for SQL as `patients`."""
    made = Roles(database_url)
    database = Database(made.making, signer=SIGNER)
    migrate(database, reader=made.reader)
    world = World.make(database)
    job = world.submit(database, "a")
    database.close()
    for statement in (
        "UPDATE grants SET publish = true",
        "INSERT INTO publications VALUES"  # noqa: S608
        f" ('patients', '{world.analyst}', '{job}', true, 300000000, 1, 0.5, now(), now(), null)",
        "INSERT INTO published_values VALUES ('patients', 0, 'age', 'mean', 50, 49, 51, null),"
        " ('patients', 1, 'born', 'mean', -7000, -7100, -6900, 'days since 1970-01-01')",
    ):
        made.does(statement, made.making)
    yield made
    made.drop()


def found(roles: Roles, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(roles.reading) as connection:
        cursor = connection.execute(query)  # pyright: ignore
        return [
            dict(zip([each.name for each in cursor.description or ()], row, strict=True)) for row in cursor
        ]


def test_supersets_dataset_has_the_columns_that_its_query_has(roles: Roles) -> None:
    database = yaml.safe_load((SUPERSET / "databases/Privest.yaml").read_text())
    dataset = yaml.safe_load((SUPERSET / "datasets/Privest/patients.yaml").read_text())
    rows = found(roles, dataset["sql"])
    assert [row["item"] for row in rows] == ["age", "born"]
    assert [each["column_name"] for each in dataset["columns"]] == list(rows[0])
    assert dataset["main_dttm_col"] in rows[0]
    for metric in dataset["metrics"]:
        found(roles, f"SELECT {metric['expression']} FROM ({dataset['sql']}) AS told GROUP BY item, measure")  # noqa: S608
    assert dataset["database_uuid"] == database["uuid"]
    assert make_url(database["sqlalchemy_uri"]).query["sslmode"] == "verify-full"
    assert not any(database[name] for name in ("allow_ctas", "allow_cvas", "allow_dml", "allow_file_upload"))
    assert database["extra"] == {}, "Superset 6.1 imports no database without it"
    assert yaml.safe_load((SUPERSET / "metadata.yaml").read_text())["type"] == "SqlaTable"


def test_dbts_model_reads_what_its_source_names(roles: Roles) -> None:
    told = yaml.safe_load((DBT / "models/sources.yml").read_text())
    (source,), (model,) = told["sources"], told["models"]
    (table,) = source["tables"]
    names = {(source["name"], table["name"]): f"{source['schema']}.{table['name']}"}
    text = (DBT / f"models/{model['name']}.sql").read_text()
    query = Environment(undefined=StrictUndefined, autoescape=False).from_string(text)  # noqa: S701 - it is SQL
    (row,) = found(roles, query.render(source=lambda *of: names[of]))
    assert (row["item"], row["half_width"], str(row["epsilon"])) == ("age", 1.0, "0.3")
    assert {each["name"] for each in model["columns"]} <= set(row)
    (first, *_) = found(roles, f"SELECT * FROM {table['name']}")  # noqa: S608
    assert {each["name"] for each in table["columns"]} <= set(first)


@pytest.mark.prove
def test_dbt_builds_a_table_of_it(roles: Roles) -> None:
    """In its own locked environment, under the roles that its page makes."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv/bin"))
    if uv is None:
        pytest.skip("dbt runs in an environment that uv makes")
    at, role = make_url(roles.superuser), f"dbt_{roles.database}"
    page = (DBT / "README.md").read_text().split("```sql\n")[1].split("```")[0]
    page = page.replace("privest_read", roles.reader).replace(
        "DATABASE privest ", f"DATABASE {roles.database} "
    )
    for statement in (
        page.replace("ROLE dbt ", f"ROLE {role} ").replace(" dbt;", f" {role};").strip().split("\n")
    ):
        roles.does(statement, roles.superuser)
    environment = os.environ | {
        "PRIVEST_DBT_HOST": str(at.query.get("host", at.host)),
        "PRIVEST_DBT_PORT": str(at.port or at.query.get("port", 5432)),
        "PRIVEST_DBT_USER": role,
        "PRIVEST_DBT_PASSWORD": "…",
        "PRIVEST_DBT_DATABASE": roles.database,
        "PRIVEST_DBT_SSLMODE": "disable",
        "DBT_TARGET_PATH": f"/tmp/{role}/target",  # noqa: S108
        "DBT_LOG_PATH": f"/tmp/{role}/logs",  # noqa: S108
    }
    command = [uv, "run", "--quiet", "--locked", "--project", DBT, "dbt", "build", "--profiles-dir", DBT]
    try:
        for _ in range(2):
            done = subprocess.run(
                [*command, "--project-dir", DBT], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "ERROR=0" in done.stdout
        with psycopg.connect(roles.superuser) as connection:
            told = connection.execute(
                "SELECT item, value, half_width FROM analytics.patient_means"
            ).fetchall()
        assert told == [("age", 50.0, 1.0)]
    finally:
        roles.does(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}", roles.superuser)
        shutil.rmtree(f"/tmp/{role}", ignore_errors=True)  # noqa: S108
