"""Brings a database to the present schema, once, however many processes start together."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

from privest_service.database.engine import Database

RELEASES = {"0.1.0": "0010"}
"""Revision of the tables of each former release, to which `privest migrate --back-to` leads."""

_REASONS = {
    "42501": "The database's tables are not those of this version, and its role may not make them. "
    "Run `privest migrate` with PRIVEST_MIGRATION_URL, as docs/databases.md describes.",
    "42704": "A role that PRIVEST_DATABASE_URL or PRIVEST_READING_ROLE names does not exist. "
    "Create it first.",
    "2BP01": "Others made views that read those of this service, which are made anew. Drop theirs, run "
    "`privest migrate`, and make them again.",
}
"""What to say when PostgreSQL reports a missing privilege, no such role, or what stands on a view."""


def _tree() -> Path:
    """The Alembic tree: inside the package once installed, beside it in a checkout.

    The checkout comes first: an editable install leaves a stale copy in the package.
    """
    here = Path(__file__).resolve().parents[1]
    checkout = here.parents[1] / "migrations"
    return checkout if (checkout / "env.py").exists() else here / "migrations"


def config(database: Database) -> Config:
    """Alembic's configuration for this database."""
    configuration = Config()
    configuration.set_main_option("script_location", str(_tree()))
    configuration.attributes["engine"] = database.engine
    return configuration


@cache
def head() -> str:
    """The revision for which this code is made."""
    found = ScriptDirectory(str(_tree())).get_current_head()
    assert found is not None  # noqa: S101 - there are some
    return found


def is_current(database: Database) -> bool:
    """Whether the database has the newest revision.

    Raises:
        ValueError: the database's role may not even ask.
    """
    with _told(), database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() == head()


def require_current(database: Database) -> None:
    """Look whether the tables are those of this code.

    Raises:
        ValueError: they are not, or the database's role may not even ask.
    """
    if not is_current(database):
        raise ValueError(
            "The database is of another version than this program. "
            "Run `privest migrate` first, or take the version that made it."
        )


def migrate(database: Database, role: str | None = None, reader: str | None = None) -> None:
    """Upgrade to the newest revision, under a lock (see migrations/env.py).

    The database is opened by the role that owns the tables. Another role, if named, is granted what the
    service does, and a reader, if named, the views.

    Raises:
        ValueError: the database's role may not make tables, or there is no such other role.
    """
    configuration = config(database)
    configuration.attributes |= {"role": role, "reader": reader}
    with _told():
        command.upgrade(configuration, "head")


@contextmanager
def _told() -> Iterator[None]:
    """Say in words what is wrong with the roles."""
    try:
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state not in _REASONS:
            raise
        raise ValueError(_REASONS[state]) from None
