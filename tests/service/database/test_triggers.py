"""What the database itself refuses, whoever asks: records changed or gone, jobs that go back."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from privest_service.database import Database
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from testing.world import UNCHARGED, World, claimed

CHANGES = {
    "entries": ("mu_squared = 1", "kind = 'void'", "hash = hash"),
    "job_transitions": ("state = 'voided'", "at = at"),
    "mechanisms": ("content = '{}'",),
    "idempotency_keys": ("body_digest = ''", "reused = reused"),
    "decisions": ("approved = approved", "reason = ''"),
    "accounts": (),
    "acts": ("reason = 'x'", "hash = hash"),
    "act_chains": (),
    "jobs": (),
}
STATES = (
    *("requested", "reserved", "claimed", "committed", "failed", "voided"),
    *("denied", "expired", "withdrawn"),
)
STEPS = {
    *(("requested", after) for after in ("reserved", "denied", "expired", "withdrawn")),
    ("reserved", "claimed"),
    ("reserved", "voided"),
    ("claimed", "committed"),
    ("claimed", "failed"),
}


def _refused(database: Database, command: str) -> None:
    # Only a guard may be the reason, and neither a foreign key nor a CHECK.
    words = "only added to|never deleted|forward only|refuses|permission denied"
    with pytest.raises(DBAPIError, match=words), database.write() as session:
        session.execute(text(command))


@pytest.fixture
def worlds(database: Database) -> dict[str, World]:
    """One for each state, by the state of its job."""
    made = dict[str, World]()
    for state in STATES:
        world = made[state] = World.make(database, approval=state in UNCHARGED)
        job = world.submit(database, "one")
        if state == "denied":
            world.decide(database, job, "deny")
        elif state == "withdrawn":
            world.withdraw(database, job)
        elif state == "expired":
            with database.write() as session:
                assert jobs.move(session, Job.id == job, "requested", "expired")
        elif state == "requested":
            continue
        elif state == "voided":
            world.revoke(database)
        elif state != "reserved":
            assert claimed(database) == job
        if state in ("committed", "failed"):
            world.end(database, job, "{}" if state == "committed" else None)
        if state == "reserved":  # out of the queue's way
            with database.write() as session:
                session.execute(
                    text("UPDATE jobs SET created_at = '2999-01-01' WHERE id = :job"), {"job": job}
                )
    assert {state: world.check(database) for state, world in made.items()} == {s: s for s in STATES}
    return made


def test_records_are_neither_changed_nor_deleted(database: Database, worlds: dict[str, World]) -> None:
    for table, changes in CHANGES.items():
        for change in changes:
            _refused(database, f"UPDATE {table} SET {change}")  # noqa: S608
        _refused(database, f"DELETE FROM {table}")  # noqa: S608
        if not database.is_sqlite:
            _refused(database, f"TRUNCATE {table} CASCADE")
    for state, world in worlds.items():
        assert world.check(database) == state


def test_sqlite_replaces_no_record(database: Database, worlds: dict[str, World]) -> None:
    """INSERT OR REPLACE would delete without a DELETE."""
    if not database.is_sqlite:
        pytest.skip("PostgreSQL has no such statement")
    for table in CHANGES:
        _refused(database, f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")  # noqa: S608
    for state, world in worlds.items():
        assert world.check(database) == state


def test_jobs_go_forward_only(database: Database, worlds: dict[str, World]) -> None:
    for before, world in worlds.items():
        for after in STATES:
            if before == after or (before, after) in STEPS:
                continue
            result = "'{}'" if after == "committed" else "NULL"
            _refused(
                database,
                f"UPDATE jobs SET state = '{after}', result = {result} WHERE owner_id = '{world.owner}'",  # noqa: S608
            )
        assert world.check(database) == before


def test_an_answer_and_its_receipt_stay(database: Database, worlds: dict[str, World]) -> None:
    for change in ("result = '[]'", "receipt = '{}'", "receipt = NULL"):
        _refused(
            database,
            f"UPDATE jobs SET {change} WHERE owner_id = '{worlds['committed'].owner}'",  # noqa: S608
        )
    assert worlds["committed"].check(database) == "committed"
