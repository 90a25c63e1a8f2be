"""Sites that are odd without a lie: wrong clocks, ledgers of yesterday, twins, and hubs that forget."""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from privest_service.backup import backup, restore
from privest_service.database import tables
from privest_service.datasets.models import Dataset
from privest_service.datasets.store import Store
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs.models import Job, SitePart
from privest_service.ledger.service import set_frozen
from privest_service.ledger.units import Limits
from privest_service.settings import Settings
from privest_service.sites import connector as connector_module
from testing.hubs import taking_in
from testing.server import ADMIN_KEY, SIGNER, SIGNERS_KEY, until
from testing.stepped_sites import Clock, Site, Together
from testing.world import SCHEMA_TEXT

CAP = Limits.of(1.0, 1e-5, "gdp")


@pytest.fixture
def them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Together:
    monkeypatch.setattr(connector_module, "_PATIENCE", 0.0)
    monkeypatch.setattr(tables, "datetime", Clock)
    return Together(tmp_path, CAP)


def ended(them: Together, number: int = 0) -> str:
    """The state in which a question ends."""
    job = them.ask(number)

    def over() -> bool:
        them.turn()
        return them.is_over(job)

    until(over)
    return them.state(job)


def reasons(them: Together) -> set[str]:
    """What sites told of questions that they refused."""
    with them.database.read() as session:
        return {str(told) for told in session.scalars(select(SitePart.reason)) if told}


def holds(site: Site) -> bool:
    """Whether a site's ledger verifies."""
    with site.database.read() as session:
        return verify(lines(session, site.world.owner), [SIGNER.public_key]).faults == []


@pytest.mark.few(1)
@pytest.mark.parametrize("off", [timedelta(days=400), -timedelta(days=400), timedelta(hours=3)])
def test_no_clock_is_held_against_another(them: Together, off: timedelta) -> None:
    them.sites[0].clock = off
    assert ended(them) == "committed"
    assert all(site.spent() > 0 and holds(site) for site in them.sites)
    with them.sites[0].database.read() as session:
        made = session.scalars(select(Job.created_at)).all()
    assert all(abs(moment - tables.now() - off) < timedelta(hours=1) for moment in made)  # it was wrong


def _copied(site: Site, copy: Path, *, back: bool = False) -> None:
    """Save a site's database, or put it back as it was, while the site is down."""
    file = site.file
    site.database.close()
    with closing(sqlite3.connect(file)) as whole:
        whole.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in ("-wal", "-shm"):
        Path(f"{file}{name}").unlink(missing_ok=True)
    shutil.copy(copy if back else file, file if back else copy)


@pytest.mark.parametrize("when", ["accepted", "begun"])
def test_a_site_that_does_not_remember_a_question_does_not_run_it(
    them: Together, tmp_path: Path, when: str
) -> None:
    """A ledger of before the charge: no answer leaves, and nobody waits for ever."""
    first, second = them.sites
    _copied(first, tmp_path / "saved.db")
    job = them.ask(0)
    first.turn()
    if when == "begun":
        second.turn()
        assert them.state(job) == "claimed"
    assert first.spent() > 0
    _copied(first, tmp_path / "saved.db", back=True)
    first.start()
    assert first.spent() == 0

    def over() -> bool:
        them.turn()
        return them.state(job) not in ("reserved", "claimed")

    until(over)
    assert them.state(job) == {"accepted": "voided", "begun": "failed"}[when]
    assert reasons(them) == {"The site does not know this question any more."}
    assert not any(part == them.parts(job)[0].id for part, _ in first.wire.sent)
    assert (first.spent(), holds(first)) == (0, True)
    until(lambda: them.turn() or them.is_over(job))
    assert ended(them, 1) == "committed"


def _settings(site: Site, folder: Path) -> Settings:
    """Settings of a service with a site's database, whose dataset has a file of rows."""
    for name in ("secret", "key"):
        (folder / name).write_bytes(SIGNERS_KEY)
    rows = Store(folder).path(site.world.owner, site.world.dataset)
    rows.parent.mkdir(exist_ok=True)
    np.save(rows, site.rows)
    return Settings(
        admin_key=SecretStr(ADMIN_KEY),
        data_dir=folder,
        database_url=f"sqlite:///{site.file}",
        secret_file=folder / "secret",
        signing_key_file=folder / "key",
    )


def test_a_restored_site_has_spent_all_that_it_may_have_forgotten(them: Together, tmp_path: Path) -> None:
    first, second = them.sites
    assert ended(them, 0) == "committed"
    settings = _settings(first, tmp_path)
    under_way = them.ask(1)
    first.turn()  # it is charged there, and asked about after the restore
    assert backup(settings, tmp_path / "backup") == 1
    until(lambda: them.turn() or them.is_over(under_way))
    assert (them.state(under_way), ended(them, 2)) == ("committed", "committed")  # what is forgotten

    where = {"database_url": f"sqlite:///{tmp_path / 'restored.db'}"}
    assert restore(settings.model_copy(update=where), tmp_path / "backup") == []
    first.move(tmp_path / "restored.db")
    sent, spent = len(first.wire.sent), second.spent()
    assert (first.spent(), holds(first)) == (CAP.mu_squared, True)
    assert ended(them, 3) == "voided"
    with first.database.write() as session:
        set_frozen(session, first.world.owner, False, by="owner")
    assert ended(them, 4) == "voided"  # there is nothing left to be spent
    (told,) = reasons(them)  # the same words of a freeze and of a budget
    assert "An owner's budget, another cap or a freeze does not." in told
    assert (len(first.wire.sent), second.spent()) == (sent, spent)
    assert (first.spent(), holds(first)) == (CAP.mu_squared, True)


def test_a_question_under_a_schema_that_the_hub_changed_is_refused_for_nobody(them: Together) -> None:
    changed = json.dumps(json.loads(SCHEMA_TEXT) | {"radius": 0.5})
    with them.database.write() as session:
        session.execute(update(Dataset).values(dataset_schema=changed))
    assert ended(them) == "voided"
    assert reasons(them) == {"The site came to another plan than the hub."}
    assert [site.spent() for site in them.sites] == [0, 0]
    with them.database.write() as session:
        session.execute(update(Dataset).values(dataset_schema=SCHEMA_TEXT))
    assert ended(them, 1) == "committed"


def test_a_second_site_with_an_owners_key_takes_no_question_twice(them: Together, tmp_path: Path) -> None:
    """It has another dataset, and refuses questions about the first one's: they end, and it runs none."""
    twin = Site(tmp_path / "twin.db", them.sites[0].wire, CAP)
    them.sites.append(twin)
    states = [ended(them, number) for number in range(2)]
    assert set(states) <= {"failed", "voided"}
    assert (twin.spent(), taking_in(twin.database, twin.world).waiting()) == (0, [])
    assert all(len(noises) == 1 for noises in them.sites[0].wire.sent.values())
    them.sites.remove(twin)
    assert ended(them, 2) == "committed"
