"""The way back to a former release; tests/deploy/test_upgrade.py goes it with that release's own code."""

from datetime import timedelta
from pathlib import Path

import pytest

from privest_service.database import Database
from privest_service.database.migrate import is_current
from privest_service.ledger import renewals
from privest_service.ledger.renewals import Renewal
from privest_service.rollback import go_back
from privest_service.settings import Settings
from testing.claims import claim_next
from testing.history import signing_key
from testing.server import ADMIN_KEY
from testing.world import World


@pytest.fixture
def settings(database: Database, database_url: str, tmp_path: Path) -> Settings:
    (tmp_path / "secret").write_bytes(b"x" * 32)
    return Settings(
        admin_key=ADMIN_KEY,  # pyright: ignore[reportArgumentType]
        data_dir=tmp_path / "data",
        database_url=database_url,
        secret_file=tmp_path / "secret",
        signing_key_file=signing_key(tmp_path),
    )


def test_what_was_promised_since_bars_the_way(database: Database, settings: Settings) -> None:
    world = World.make(database)
    with database.write() as session:
        renewals.set_renewal(session, world.owner, Renewal(None, "lifetime", 3, None))
    world.submit(database, "k")
    with pytest.raises(ValueError, match=r"would not keep.* promises .*restore the backup"):
        go_back(settings, "0.1.0")
    assert is_current(database)
    assert world.check(database) == "voided"


def test_nobody_goes_back_while_a_job_runs(database: Database, settings: Settings) -> None:
    world, other = World.make(database), World.make(database)
    world.submit(database, "k")
    with database.write() as session:
        assert claim_next(session, timedelta(minutes=1))
    other.submit(database, "k")
    with pytest.raises(ValueError, match="Stop the service first"):
        go_back(settings, "0.1.0")
    assert other.check(database) == "reserved"  # nothing was changed


def test_a_lost_job_ends_charged_on_the_way_back(database: Database, settings: Settings) -> None:
    world = World.make(database)
    world.submit(database, "k")
    with database.write() as session:
        assert claim_next(session, timedelta(minutes=-1))
    assert go_back(settings, "0.1.0") == 0
    assert not is_current(database)


def test_there_are_ways_to_releases_alone(settings: Settings) -> None:
    with pytest.raises(ValueError, match=r"no way back to 7\. Choose one of 0\.1\.0"):
        go_back(settings, "7")
