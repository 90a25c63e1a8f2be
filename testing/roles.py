"""Databases on PostgreSQL with roles of their own, as deployments have them."""

import psycopg
from sqlalchemy import make_url

from testing.postgres import administer

_SERIAL = iter(range(10**6))


class Roles:
    """An empty database with an owner, a role to run under, and one that reads its views."""

    def __init__(self, url: str) -> None:
        at, number = make_url(url), f"{at_name(url)}_{next(_SERIAL)}"
        self.maker, self.runner, self.reader = f"maker_{number}", f"runner_{number}", f"reader_{number}"
        self.database, self._admin = f"roles_{number}", url
        for role in (self.maker, self.runner, self.reader):
            administer(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        administer(url, f"CREATE DATABASE {self.database} OWNER {self.maker}")
        self.making, self.running, self.reading = (
            at.set(username=role, password="x", database=self.database).render_as_string(hide_password=False)  # noqa: S106
            for role in (self.maker, self.runner, self.reader)
        )

    @classmethod
    def as_deployed(cls, url: str, database: str) -> "Roles":
        """The roles of a deployment, by what their names begin with here; whoever asks makes them."""
        made = cls.__new__(cls)
        made._admin, made.database = url, database
        made.maker, made.runner, made.reader = (f"{database}_{does}" for does in ("migrate", "run", "read"))
        made.making, made.running, made.reading = (
            make_url(url).set(username=role, database=database).render_as_string(hide_password=False)
            for role in (made.maker, made.runner, made.reader)
        )
        return made

    @property
    def superuser(self) -> str:
        """The URL of the database under the role that made the cluster."""
        return make_url(self._admin).set(database=self.database).render_as_string(hide_password=False)

    def does(self, statement: str, url: str | None = None) -> None:
        """Run a statement as the role that serves."""
        with psycopg.connect(url or self.running) as connection:
            connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def drop(self) -> None:
        """Leave nothing of it in the cluster, from another database."""
        elsewhere = make_url(self._admin).set(database="postgres").render_as_string(hide_password=False)
        administer(elsewhere, f"DROP DATABASE {self.database} WITH (FORCE)")
        for role in (self.maker, self.runner, self.reader):
            administer(elsewhere, f"DROP ROLE IF EXISTS {role}")


def at_name(url: str) -> str:
    """The name of a database, which is of this worker alone."""
    return make_url(url).database or ""
