"""Commands of Privest in processes of their own, and a database that one role makes and another serves."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from testing.postgres import administer
from testing.server import ADMIN_KEY, HANG_GUARD, private_key_pem

_SERIAL = iter(range(10**6))


def privest(
    directory: Path, *arguments: object, program: Path | str | None = None, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command on what a `Server` of the same directory keeps there.

    Args:
        directory: of data, secret and signing key; they are made where there are none.
        arguments: of the command.
        program: of another version than this one.
        settings: further PRIVEST_… settings, by their names in lower case.
    """
    if not (directory / "secret").exists():
        (directory / "secret").write_bytes(b"x" * 32)
        (directory / "signing.pem").write_bytes(private_key_pem())
    given = {
        "admin_key": ADMIN_KEY,
        "data_dir": str(directory / "data"),
        "secret_file": str(directory / "secret"),
        "signing_key_file": str(directory / "signing.pem"),
        **settings,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}
    environment |= {f"PRIVEST_{name.upper()}": value for name, value in given.items()}
    told = [str(program or Path(sys.executable).with_name("privest")), *map(str, arguments)]
    return subprocess.run(
        told, env=environment, capture_output=True, text=True, timeout=HANG_GUARD, check=False
    )


class Roles:
    """An empty database with an owner and a role to run under."""

    def __init__(self, url: str) -> None:
        at, number = make_url(url), f"{at_name(url)}_{next(_SERIAL)}"
        self.maker, self.runner, self.database = f"maker_{number}", f"runner_{number}", f"roles_{number}"
        self._admin = url
        for role in (self.maker, self.runner):
            administer(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        administer(url, f"CREATE DATABASE {self.database} OWNER {self.maker}")
        self.making, self.running = (
            at.set(username=role, password="x", database=self.database).render_as_string(hide_password=False)  # noqa: S106
            for role in (self.maker, self.runner)
        )

    def does(self, statement: str, url: str | None = None) -> None:
        """Run a statement as the role that serves."""
        with psycopg.connect(url or self.running) as connection:
            connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def drop(self) -> None:
        """Leave nothing of it in the cluster, from another database."""
        elsewhere = make_url(self._admin).set(database="postgres").render_as_string(hide_password=False)
        administer(elsewhere, f"DROP DATABASE {self.database} WITH (FORCE)")
        for role in (self.maker, self.runner):
            administer(elsewhere, f"DROP ROLE {role}")


def at_name(url: str) -> str:
    """The name of a database, which is of this worker alone."""
    return make_url(url).database or ""
