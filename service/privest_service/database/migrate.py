"""Brings a database to the present schema, once, however many processes start together."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from privest_service.database.engine import Database


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


def head(database: Database) -> str:
    """The revision for which this code is made."""
    found = ScriptDirectory.from_config(config(database)).get_current_head()
    assert found is not None  # noqa: S101 - there are some
    return found


def is_current(database: Database) -> bool:
    """Whether the database has the newest revision."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision() == head(database)


def migrate(database: Database) -> None:
    """Upgrade to the newest revision, under a lock (see migrations/env.py)."""
    command.upgrade(config(database), "head")
