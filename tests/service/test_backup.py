"""Backups of a service that is at work, and what is made of them: nothing that was spent is spent again."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from privest_service.cli import main
from privest_service.database import Database, now
from privest_service.datasets.models import Dataset
from privest_service.datasets.store import Store
from privest_service.jobs.models import Job
from privest_service.ledger.models import Account
from privest_service.security.models import Owner
from privest_service.settings import Settings
from testing.server import (
    ADMIN_KEY,
    Caller,
    Server,
    books_balance,
    private_key_pem,
    problem,
    slow_rows,
    spd,
    worker_on,
)
from testing.world import COST, World

WORKS: dict[str, object] = {"epsilon": 0.05, "reuse": False, "wait": 0}


class Site:
    """Where a service lives: its keys, and the database and the directory that it may lose."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], str]) -> None:
        self.directory, self._patch, self._read = directory, monkeypatch, read
        self.database_url, self.data_dir = "", directory

    def move(self, database_url: str, data_dir: str) -> None:
        """Move to another database and another directory."""
        self.database_url, self.data_dir = database_url, self.directory / data_dir
        settings = {
            "admin_key": ADMIN_KEY,
            "data_dir": self.data_dir,
            "database_url": database_url,
            "secret_file": self.directory / "secret",
            "signing_key_file": self.directory / "signing.pem",
        }
        for name, value in settings.items():
            self._patch.setenv(f"PRIVEST_{name.upper()}", str(value))

    @contextmanager
    def service(self) -> Iterator[Server]:
        """Run the service, and kill it at the end."""
        server = Server(self.directory, self.database_url, data_dir=self.data_dir)
        try:
            yield server
        finally:
            server.kill()

    def privest(self, *arguments: object) -> tuple[int, str]:
        """What a command exits with, and says."""
        status = main([str(argument) for argument in arguments])
        return status, self._read()


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Site]:
    before = os.umask(0o022)  # as most have it; commands that run in this process change it
    yield Site(tmp_path, monkeypatch, lambda: "".join(capsys.readouterr()))
    os.umask(before)


def with_new_key(server: Server, owner: Caller) -> Caller:
    """An owner whose keys open nothing any more."""
    problem(Caller(server, owner.id, owner.key).get("/v1/datasets"), 401, "unauthenticated")
    made = server.admin.post(f"/v1/owners/{owner.id}/keys")
    return Caller(server, owner.id, made.json()["key"])


def saved_at_work(site: Site, name: str, owner: Caller, dataset: str) -> None:
    """A backup, made while queries are charged."""
    with ThreadPoolExecutor(1) as pool:
        saving, charged = pool.submit(site.privest, "backup", site.directory / name), 0
        while not saving.done() or charged < 3:
            assert owner.estimate(dataset, **WORKS).status_code == 202
            charged += 1
    assert saving.result()[0] == 0, saving.result()
    files = {path.name for path in (site.directory / name).iterdir()}
    assert files == {"backup.json", "ledger.db", "rows", "incoming", "permits"}


def test_what_commands_write_is_for_their_user_alone(
    site: Site, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "signing.pem").write_bytes(private_key_pem())
    copy, made = tmp_path / "copy", tmp_path / "made"
    copy.mkdir()
    url = f"sqlite:///{made}/privest.db"
    for database, command in (
        (new_database("sqlite"), ("backup", copy)),
        (url, ("migrate",)),
        (url, ("restore", copy)),
    ):
        site.move(database, "made")
        os.umask(0o022)
        assert site.privest(*command)[0] == 0
    found = [*copy.rglob("*"), *made.rglob("*")]
    assert {path.name for path in found} >= {"privest.db", "ledger.db", "backup.json"}
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_nothing_that_was_spent_is_spent_again_whichever_database_is_lost(
    site: Site, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    site.move(new_database("sqlite"), "first")
    with site.service() as server:
        owner, other, analyst = server.owner(epsilon=20.0), server.owner(), server.analyst()
        dataset, slow = owner.dataset(), owner.dataset(spd(175, dim=33), slow_rows()[1])
        deleted = owner.dataset(spd(60, seed=1))
        owner.grant(dataset, analyst, epsilon=1.0, delta=1e-5)
        assert owner.delete(f"/v1/datasets/{deleted}").status_code == 204
        answered = owner.estimate(dataset, key="answered").json()
        assert owner.put("/v1/published/mean", json={"job": answered["id"], "sql": True}).status_code == 200
        assert analyst.estimate(dataset, epsilon=0.5).json()["state"] == "committed"
        claimed = owner.estimate(slow, key="claimed", steps=1000, wait=0).json()["id"]
        worker_on(server, owner, slow)
        reserved = owner.estimate(dataset, key="reserved", epsilon=0.2, wait=0).json()["id"]
        saved_at_work(site, "backup", owner, dataset)
        since = owner.estimate(dataset, key="since", epsilon=3.0, wait=0).json()["id"]
        heads = owner.get(f"/v1/owners/{owner.id}/ledger/heads").text

    shutil.rmtree(site.data_dir)
    site.move(new_database("postgresql"), "second")
    assert site.privest("restore", tmp_path / "backup")[0] == 0
    assert site.privest("verify-ledger")[0] == 0
    status, words = site.privest("restore", tmp_path / "backup")
    assert (status, "not empty" in words) == (2, True)
    (tmp_path / "heads.json").write_text(heads)
    status, words = site.privest("verify-ledger", "--heads", tmp_path / "heads.json")
    assert (status, "does not go through its head" in words) == (1, True)  # charges since are missing

    with site.service() as server:
        owner = with_new_key(server, owner)
        for each, limit in ((owner, 20.0), (with_new_key(server, other), 1.0)):
            budget = each.budget()
            assert (budget["frozen"], budget["remaining"]["epsilon"]) == (True, 0)
            assert budget["spent"]["epsilon"] == pytest.approx(limit, rel=1e-6)
            assert each.ledger()[0]["kind"] == "loss"
        # What was published is not: it may have been withdrawn since.
        problem(owner.get("/v1/published/mean"), 404, "not-found")
        (act,) = owner.get("/v1/acts", params={"kind": "answer.withdrawn"}).json()["acts"]
        assert (act["role"], act["subject"]) == ("service", answered["id"])
        # What was answered stays so; what was under way, perhaps answered since, is not done again.
        assert owner.estimate(dataset, key="answered").json() == answered
        assert owner.estimate(slow, key="claimed", steps=1000).json()["state"] == "failed"
        assert owner.estimate(dataset, key="reserved", epsilon=0.2).json()["state"] == "failed"
        states = [owner.get(f"/v1/jobs/{job}").json().get("state") for job in (claimed, reserved, since)]
        assert states == ["failed", "failed", None]
        listed = owner.get("/v1/datasets").json()["datasets"]
        assert {each["id"] for each in listed} == {dataset, slow}
        problem(owner.estimate(dataset, epsilon=0.01), 409, "account-frozen")
        # The owner ends the freeze, and then renews: its data answer again.
        budget = f"/v1/owners/{owner.id}/budget"
        assert owner.patch(budget, json={"frozen": False}).status_code == 200
        problem(owner.estimate(dataset, epsilon=0.01), 409, "budget-exceeded")
        assert owner.patch(budget, json={"window": "new", "epsilon": 30.0}).status_code == 200
        assert owner.estimate(dataset, epsilon=0.3).json()["state"] == "committed"
        assert owner.dataset(spd(60, seed=2))  # numbers go on after those that were copied
        assert books_balance(server)
        page = server.admin.get(f"/v1/owners/{owner.id}/ledger?window=1")
        assert page.json()["entries"][0]["kind"] == "loss"
        saved_at_work(site, "again", owner, dataset)

    site.move(new_database("sqlite"), "third")
    assert site.privest("restore", tmp_path / "again")[0] == 0
    assert site.privest("verify-ledger")[0] == 0
    database, store = Database(site.database_url), Store(site.data_dir)
    with database.read() as session:
        accounts = session.scalars(select(Account).where(Account.scope == "owner")).all()
        assert sorted(each.window for each in accounts if each.owner_id == owner.id) == [1, 2]
        assert set(session.scalars(select(Owner.frozen_by))) == {"owner"}
        assert all(each.mu_squared_spent == each.mu_squared_limit for each in accounts)
        limits = {(each.owner_id, each.window): each.mu_squared_limit for each in accounts}
        for each in session.scalars(select(Account)):  # of which those of rows and grants have no limit
            assert each.mu_squared_spent <= limits[each.owner_id, each.window]
        assert set(session.scalars(select(Job.state))) == {"committed", "failed"}
        for each in session.scalars(select(Dataset).where(Dataset.deleted_at.is_(None))):
            assert store.path(each.owner_id, each.id).exists()
    database.close()


def test_what_is_no_whole_backup_of_this_service_is_refused(
    site: Site, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "signing.pem").write_bytes(private_key_pem())
    site.move(new_database("sqlite"), "first")
    database = Database(site.database_url, signer=Settings().signer)  # pyright: ignore[reportCallIssue]
    world = World.make(database)
    store = Store(site.data_dir)
    store.path(world.owner, "x").parent.mkdir()
    backup = tmp_path / "backup"
    assert "are missing" in refused(site, "backup", backup)
    assert "not empty" in refused(site, "backup", backup)
    shutil.rmtree(backup)
    store.path(world.owner, world.dataset).write_bytes(b"rows")
    earlier = tmp_path / "earlier"
    assert site.privest("backup", earlier)[0] == 0
    world.submit(database, "k")
    assert site.privest("backup", backup)[0] == 0

    site.move(new_database("sqlite"), "second")
    manifest = (backup / "backup.json").read_text()
    (backup / "backup.json").unlink()
    assert "does not hold a whole backup" in refused(site, "restore", backup)
    (backup / "backup.json").write_text(manifest)
    (tmp_path / "secret").write_bytes(b"another".ljust(32))
    assert "PRIVEST_SECRET_FILE" in refused(site, "restore", backup)
    (tmp_path / "secret").write_bytes(bytes(32))
    first_key = Settings().signer.public_key  # pyright: ignore[reportCallIssue]
    (tmp_path / "signing.pem").write_bytes(private_key_pem())
    status, words = site.privest("restore", backup)
    assert (status, "a key that was not given" in words) == (1, True)
    assert "Give the end of each other one" in refused(site, "restore", backup, "--key", first_key)
    first_key += f"={now().isoformat()}"
    whole = (backup / "ledger.db").read_bytes()
    shutil.copy(earlier / "ledger.db", backup)
    status, words = site.privest("restore", backup, "--key", first_key)
    assert (status, "does not go through its head" in words) == (1, True)
    assert "does not end where the backup says" in words
    (backup / "ledger.db").write_bytes(whole)
    with sqlite3.connect(backup / "ledger.db") as ledger:
        ledger.execute("UPDATE accounts SET mu_squared_spent = 0")
    status, words = site.privest("restore", backup, "--key", first_key)
    assert (status, "is not the sum of the entries" in words) == (1, True)
    with sqlite3.connect(backup / "ledger.db") as ledger:
        ledger.execute(f"UPDATE accounts SET mu_squared_spent = {COST.mu_squared}")  # noqa: S608
    restored = Database(site.database_url)
    with restored.read() as session:
        assert not session.scalars(select(Account)).all()  # refusals leave nothing
    assert site.privest("restore", backup, "--key", first_key)[0] == 0
    assert site.privest("verify-ledger", "--key", first_key)[0] == 0


def refused(site: Site, *arguments: object) -> str:
    """What a command says that does nothing."""
    status, words = site.privest(*arguments)
    assert status == 2
    return words
