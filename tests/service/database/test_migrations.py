"""Migrations: the tree and the models agree, and any number of processes may start at once."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from privest_service.acts.models import SERVICE, Act
from privest_service.acts.service import seal_history
from privest_service.database import Base, Database, now
from privest_service.database.migrate import config, migrate
from privest_service.database.tables import import_all
from privest_service.datasets.models import Dataset
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.ledger import charges, entries, renewals
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.renewals import Renewal
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Charge, Limits
from privest_service.notices import service as notices
from privest_service.notices.models import Channel, Delivery
from privest_service.notices.schemas import NewWebhook
from privest_service.security.keys import SCOPES, as_text
from privest_service.security.models import ApiKey, Owner, SignIn
from privest_service.security.service import issue_key
from testing.books import Books
from testing.processes import clean, forked_with
from testing.server import HANG_GUARD, SIGNER
from testing.world import World


@pytest.fixture(scope="module")
def _preloaded() -> Iterator[None]:
    with forked_with(__name__):
        yield


@pytest.fixture
def empty(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a database without any table."""
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    return request.getfixturevalue("postgres")(f"empty_{crc32(request.node.nodeid.encode())}", "template1")


def _differences(database: Database) -> list[Any]:
    import_all()
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, Base.metadata)


def _checks(database: Database) -> dict[str, set[str]]:
    inspector = inspect(database.engine)
    return {
        table: {check["name"] or "" for check in inspector.get_check_constraints(table)}
        for table in Base.metadata.tables
    }


def test_a_migrated_database_equals_the_models(empty: str) -> None:
    database = Database(empty)
    migrate(database)
    assert _differences(database) == []
    declared = {
        name: {str(c.name) for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        for name, table in Base.metadata.tables.items()
    }
    assert _checks(database) == declared
    database.close()


def test_an_upgrade_changes_nothing_the_second_time(database: Database) -> None:
    before = inspect(database.engine).get_table_names()
    migrate(database)
    assert inspect(database.engine).get_table_names() == before
    assert _differences(database) == []


def test_a_downgrade_leaves_nothing_and_can_be_undone(empty: str) -> None:
    database = Database(empty)
    migrate(database)
    command.downgrade(config(database), "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    migrate(database)
    assert _differences(database) == []
    database.close()


def test_a_downgrade_forgets_no_promise(database: Database) -> None:
    """A budget that was promised for its lifetime could be raised and renewed without an end after one."""
    world = World.make(database)
    with database.write() as session:
        renewals.set_renewal(session, world.owner, Renewal(None, "lifetime", 3, None))
    with pytest.raises(RuntimeError, match="promises"):
        command.downgrade(config(database), "0012")


def test_channels_of_owners_outlive_those_of_analysts(database: Database) -> None:
    world = World.make(database)
    with database.write() as session:
        for role, holder in (("owner", world.owner), ("analyst", world.analyst)):
            told = NewWebhook(kind="webhook", url="https://example.org", events=["question.ended"])
            notices.add(session, holder, told, b"s" * 32, role)  # pyright: ignore[reportArgumentType]
            notices.notify(session, holder, "question.ended", {})
    command.downgrade(config(database), "0013")
    command.upgrade(config(database), "head")
    with database.read() as session:
        (kept,) = session.scalars(select(Channel))
        (waiting,) = session.scalars(select(Delivery))
        assert (kept.owner_id, kept.analyst_id, waiting.channel_id) == (world.owner, None, kept.id)
    assert _differences(database) == []
    for holders in ({}, {"owner_id": world.owner, "analyst_id": world.analyst}):
        with pytest.raises(DBAPIError), database.write() as session:
            session.add(Channel(id="chn_1", kind="webhook", sealed="", events="", **holders))


def test_what_was_done_before_there_was_a_record_is_told_as_far_as_it_is_known(database: Database) -> None:
    world = World.make(database)
    with database.write() as session:
        session.get_one(Dataset, world.dataset).name = "Patients"
        session.get_one(Owner, world.owner).frozen_by = "admin"
        ledger.open_window(session, world.owner)
        issue_key(session, "analyst", world.analyst, ("read",))
    world.revoke(database)
    command.downgrade(config(database), "0010")
    command.upgrade(config(database), "head")
    seal_history(database)
    seal_history(database)
    with database.read(snapshot=True) as session:
        report = verify(lines(session), [SIGNER.public_key])
        acts = session.scalars(select(Act).order_by(Act.chain, Act.seq)).all()
    assert report.faults == []
    told = [(act.kind, act.subject, act.known_since) for act in acts if act.chain == world.owner]
    assert told[-1] == ("history.sealed", None, None)
    assert sorted(told[:-1]) == sorted(
        (kind, subject, "migrated")
        for kind, subject in (
            *(("owner.created", world.owner), ("budget.set", world.owner), ("key.issued", world.owner)),
            *(("budget.renewed", world.owner), ("budget.frozen", world.owner)),
            *(("dataset.made", world.dataset), ("grant.made", world.dataset)),
            ("grant.revoked", world.dataset),
        )
    )
    of_service = [act.kind for act in acts if act.chain == SERVICE]
    assert of_service == ["analyst.created", "key.issued", "key.issued", "history.sealed"]
    assert {(act.role, act.principal, act.key) for act in acts if act.known_since} == {(None, None, None)}
    assert {act.signature == "" for act in acts if act.known_since} == {True}


def test_sums_of_entries_from_before_are_those_that_they_would_have_had(database: Database) -> None:
    books = Books(database)
    account = books.open(Limits("basic", 10, 10, 0, 0))
    first, *_ = (books.reserve({account: Charge(1, 2, 2**61, 4)}) for _ in range(3))
    with database.write() as session:
        charges.void(session, first)
    with database.read() as session:
        told = _sums(session)
    assert [row[2:] for row in told if row[0] == account] == [
        (0, 0, 0, 0, 0),
        (1, 2, 2**61, 4, 1),
        (2, 4, 2**62, 8, 2),
        (3, 6, 2**62, 12, 3),
        (2, 4, 2**62, 8, 2),
    ]
    with database.write() as session:
        ledger.lose(session, books.owner)
    with database.read() as session:
        told = _sums(session)
    command.downgrade(config(database), "0003")
    command.upgrade(config(database), "head")
    with database.read() as session:
        assert _sums(session) == told
        assert session.scalar(select(Account.queries).where(Account.id == account)) == 2
    assert books.faults() == []
    if not database.is_sqlite:  # what knows nothing of sums can write no entry
        columns = inspect(database.engine).get_columns("entries")
        assert {each["name"]: each["default"] for each in columns if each["name"] in entries.SUMS_AFTER} == (
            dict.fromkeys(entries.SUMS_AFTER)
        )
    with pytest.raises(DBAPIError, match=r"only added to|refuses|permission"), database.write() as session:
        session.execute(update(Entry).values(queries=7))


def test_whoever_was_frozen_stays_so(database: Database) -> None:
    frozen, other = Books(database), Books(database)
    with database.write() as session:
        ledger.set_frozen(session, frozen.owner, True, by="admin")
        ledger.open_window(session, frozen.owner)
    command.downgrade(config(database), "0007")
    with database.read() as session:
        told = session.execute(text("SELECT owner_id, accounts.window FROM accounts WHERE frozen")).all()
    assert list(map(tuple, told)) == [(frozen.owner, 2)]
    command.upgrade(config(database), "head")
    with database.read() as session:
        assert session.get_one(Owner, frozen.owner).frozen_by == "owner"  # nobody had noted whose it was
        assert session.get_one(Owner, other.owner).frozen_by is None


def test_what_knows_nothing_of_scopes_finds_no_key_that_has_few(database: Database) -> None:
    in_an_hour = now() + timedelta(hours=1)
    with database.write() as session:
        made = {
            "few": issue_key(session, "owner", "own_1", ["read"])[0].id,
            "ends": issue_key(session, "owner", "own_1", expires_at=in_an_hour)[0].id,
            "whole": issue_key(session, "owner", "own_1")[0].id,
        }
        for digest, scopes in (("a", "read"), ("b", as_text(SCOPES))):
            session.add(
                SignIn(
                    digest=digest,
                    role="owner",
                    principal_id="own_1",
                    key=made["whole"],
                    scopes=scopes,
                    expires_at=in_an_hour,
                )
            )
    command.downgrade(config(database), "0006")
    command.upgrade(config(database), "head")
    with database.read() as session:
        found = {key.id: key for key in session.scalars(select(ApiKey))}
        assert session.scalars(select(SignIn.digest)).all() == ["b"]
    assert [name for name, key in made.items() if found[key].revoked_at is None] == ["whole"]
    assert found[made["whole"]].scopes.split() == list(SCOPES)
    if not database.is_sqlite:  # what knows nothing of scopes can issue none
        for table in ("api_keys", "sessions"):
            columns = {each["name"]: each for each in inspect(database.engine).get_columns(table)}
            assert columns["scopes"]["default"] is None


def test_what_was_counted_by_its_rows_goes_on_together(database: Database) -> None:
    with database.write() as session:
        owner, _ = create_owner(session, "x", Limits.of(1.0, 1e-5, "gdp"))
        for place, (name, rows, lineage) in enumerate([("a", "1", "a"), ("b", "2", "b"), ("c", "1", "a")]):
            made = now() + timedelta(seconds=place)
            session.add(
                Dataset(
                    id=name,
                    owner_id=owner.id,
                    kind="points",
                    dataset_schema="{}",
                    n=2,
                    fingerprint=rows,
                    lineage=lineage,
                    created_at=made,
                )
            )
        session.flush()
        for lineage in ("a", "b"):
            ledger.ensure_account(session, owner.id, "dataset", lineage)
    command.downgrade(config(database), "0007")
    assert _subjects(database) == ["1", "2"]
    command.upgrade(config(database), "head")
    assert _subjects(database) == ["a", "b"]
    with database.read() as session:
        found = session.execute(select(Dataset.id, Dataset.lineage).order_by(Dataset.id)).all()
    assert [tuple(row) for row in found] == [("a", "a"), ("b", "b"), ("c", "a")]
    # Counted apart although the rows are the same: of that the former tables know nothing.
    with database.write() as session:
        session.execute(update(Dataset).where(Dataset.id == "b").values(fingerprint="1"))
    with pytest.raises(RuntimeError, match="not counted by their rows"):
        command.downgrade(config(database), "0007")


def _subjects(database: Database) -> list[str]:
    with database.read() as session:
        order = select(Account.subject).where(Account.scope == "dataset").order_by(Account.subject)
        return list(session.scalars(order))


def _sums(session: Session) -> list[tuple[int, ...]]:
    columns = (Entry.account_id, Entry.seq, *(getattr(Entry, name) for name in entries.SUMS_AFTER))
    return [tuple(row) for row in session.execute(select(*columns).order_by(Entry.account_id, Entry.seq))]


def _migrate(url: str, start: Any, results: Any) -> None:
    database = Database(url)
    start.wait(HANG_GUARD)
    try:
        migrate(database)
        results.put("done")
    except Exception as error:
        results.put(repr(error))
    database.close()


@pytest.mark.few(1)
@pytest.mark.usefixtures("_preloaded")
@pytest.mark.parametrize(
    ("backend", "made_by"), [("sqlite", "base"), ("postgresql", "base"), ("postgresql", "0003")]
)
def test_processes_that_start_together_migrate_once(empty: str, made_by: str) -> None:
    database = Database(empty)
    command.upgrade(config(database), made_by)
    database.close()
    start, results = clean.Barrier(3), clean.Queue()
    processes = [clean.Process(target=_migrate, args=(empty, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [results.get(timeout=HANG_GUARD) for _ in processes] == ["done"] * 3
    for process in processes:
        process.join(HANG_GUARD)
    database = Database(empty)
    assert _differences(database) == []
    database.close()


def test_the_differences_would_be_seen(new_database: Callable[[str], str], backend: str) -> None:
    database = Database(new_database(backend))
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE analysts ADD COLUMN extra INTEGER")
    assert _differences(database)
    database.close()
