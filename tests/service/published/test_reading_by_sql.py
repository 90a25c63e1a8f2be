"""Published answers as BI tools read them: by SQL under the reading role, a thousand times for one charge."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pytest
from sqlalchemy import MetaData, Table, create_engine, make_url, select

from privest_service.published.binary import COLUMNS
from testing.commands import privest
from testing.roles import Roles
from testing.server import Caller, Server

pytestmark = pytest.mark.parametrize("backend", ["postgresql"])

PEOPLE = {"kind": "table", "columns": [{"name": "age", "type": "number", "low": 0, "high": 110}]}


class Published:
    """A service under two roles, with an answer that is published for SQL, and a third role to read it."""

    def __init__(self, roles: Roles, server: Server) -> None:
        self.roles, self.server = roles, server
        self.owner, self.analyst, self.reader = server.owner(), server.analyst(), server.analyst()
        made = self.owner.upload(b"age\n" + b"40\n50\n" * 100, PEOPLE, "people.csv")
        self.dataset = made.json()["id"]
        assert self.owner.grant(self.dataset, self.analyst, publish="allowed").status_code == 200
        self.job = self.ask()
        self.publish()

    def ask(self, **more: Any) -> str:
        told = self.analyst.estimate(self.dataset, epsilon=0.3, columns=["age"], **more).json()
        assert told["state"] == "committed", told
        return told["id"]

    def publish(self, **more: Any) -> None:
        body = {"job": self.job, "readers": [self.reader.id], "sql": True} | more
        assert self.analyst.put("/v1/published/patients", json=body).status_code == 200

    def rows(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.roles.reading) as connection:
            return connection.execute("SELECT * FROM v_published").fetchall()

    def debits(self) -> int:
        return sum(entry["kind"] == "debit" for entry in self.owner.ledger())


@pytest.fixture
def published(database_url: str, tmp_path: Path) -> Iterator[Published]:
    roles = Roles(database_url)
    settings = {"migration_url": roles.making, "database_url": roles.running, "reading_role": roles.reader}
    done = privest(tmp_path, "migrate", **settings)
    assert done.returncode == 0, done.stderr
    server = Server(tmp_path, roles.running)
    try:
        yield Published(roles, server)
    finally:
        server.stop()
        roles.drop()


def cells(reader: Caller) -> dict[str, str]:
    answer = reader.get("/v1/published/patients.csv")
    assert answer.status_code == 200, answer.text
    (row,) = csv.DictReader(io.StringIO(answer.text))
    return row


def test_a_thousand_refreshes_are_one_charge(published: Published) -> None:
    """They come by ADBC, by an engine of SQLAlchemy that reflects the view as Superset does, and by HTTP."""
    told, spent = published.analyst.get(f"/v1/jobs/{published.job}").json(), published.owner.budget()
    (column,) = told["estimate"]["columns"]
    seen = set[tuple[str, float, float, float, str]]()
    with adbc.connect(published.roles.reading) as connection, connection.cursor() as cursor:
        for _ in range(400):
            cursor.execute("SELECT item, value, low, high, receipt FROM v_published WHERE name = 'patients'")
            (row,) = cursor.fetch_arrow_table().to_pylist()
            seen.add(tuple(row.values()))
    engine = create_engine(make_url(published.roles.reading).set(drivername="postgresql+psycopg"))
    view = Table("v_published", MetaData(), autoload_with=engine)
    assert list(view.columns.keys()) == list(COLUMNS)  # those of the files
    wanted = select(*(view.c[name] for name in ("item", "value", "low", "high", "receipt")))
    for _ in range(400):
        with engine.connect() as asked:
            seen.add(tuple(asked.execute(wanted.where(view.c.name == "patients")).one()))
    with engine.connect() as asked:
        price = asked.execute(select(view.c.epsilon, view.c.delta)).one()
    engine.dispose()
    for _ in range(200):
        row = cells(published.reader)
        seen.add((row["item"], *(float(row[name]) for name in ("value", "low", "high")), row["receipt"]))
    assert seen == {("age", column["value"], column["low"], column["high"], published.job)}
    assert [format(each.normalize(), "f") for each in price] == [row["epsilon"], row["delta"]]
    assert published.debits() == 1
    assert published.owner.budget() == spent
    # It asks again when it is told to, which is a second charge.
    assert published.ask() == published.job
    published.job = published.ask(reuse=False)
    published.publish()
    assert published.debits() == 2
    assert cells(published.reader)["receipt"] == published.job
    assert {row[14] for row in published.rows()} == {published.job}


def test_what_is_not_open_is_not_in_the_view(published: Published) -> None:
    assert len(published.rows()) == 1
    published.publish(sql=False)
    assert published.rows() == []
    assert cells(published.reader)
    published.publish()
    grant = f"/v1/datasets/{published.dataset}/grants/{published.analyst.id}"
    for close in (
        lambda: published.owner.delete(grant),
        lambda: published.owner.grant(published.dataset, published.analyst),
    ):
        assert close().status_code in (200, 204)
        assert published.rows() == []
        published.owner.grant(published.dataset, published.analyst, publish="allowed")
        assert len(published.rows()) == 1
    assert published.owner.delete("/v1/published/patients").status_code == 204
    assert published.rows() == []
    # Nor anywhere else: the numbers went.
    with psycopg.connect(published.roles.superuser) as connection:
        assert connection.execute("SELECT count(*) FROM published_values").fetchone() == (0,)
