"""What a site takes of a hub that lies: nothing that it did not plan itself, and each question once."""

import pytest
from sqlalchemy import select

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import BudgetExceeded
from privest_service.sites.taking import RefusedError, Taking
from testing.hubs import LIES, planned, question, taking_in
from testing.world import World


@pytest.fixture
def world(database: Database) -> World:
    return World.make(database)


@pytest.fixture
def taking(database: Database, world: World) -> Taking:
    return taking_in(database, world)


def _spent(database: Database, world: World) -> int:
    with database.read() as session:
        return ledger.owner_account(session, world.owner).mu_squared_spent


def test_a_question_is_charged_at_the_price_of_the_sites_own_plan(
    database: Database, world: World, taking: Taking
) -> None:
    taking.take(question(world))
    part = planned().parts[0]
    assert _spent(database, world) == Charge.of(part.target, part.cost).mu_squared
    job = taking.job_of("job_at_the_hub")
    assert job is not None
    assert job.state == "reserved"


def test_no_worker_has_it_until_all_sites_have_accepted(
    database: Database, world: World, taking: Taking
) -> None:
    taking.take(question(world))
    job = taking.job_of("job_at_the_hub")
    assert job is not None
    with database.write() as session:
        assert jobs.next_waiting(session) is None
    taking.begin(job)
    with database.write() as session:
        waiting = jobs.next_waiting(session)
        assert waiting is not None
        assert waiting.id == job.id


def test_the_same_question_again_is_charged_once(database: Database, world: World, taking: Taking) -> None:
    taking.take(question(world))
    spent = _spent(database, world)
    for _ in range(3):
        taking.take(question(world))
    assert _spent(database, world) == spent
    with database.read() as session:
        assert len(session.scalars(select(JointRun)).all()) == 1
        assert len(session.scalars(select(Job).where(Job.part_of.is_(None))).all()) == 1


@pytest.mark.few(12)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_charges_nobody(
    database: Database, world: World, taking: Taking, lie: str
) -> None:
    with pytest.raises(RefusedError):
        taking.take(LIES[lie](question(world)))
    assert _spent(database, world) == 0
    assert taking.job_of("job_at_the_hub") is None


def test_an_owner_is_in_one_run_of_the_hub_at_a_time(
    database: Database, world: World, taking: Taking
) -> None:
    """Else what the hub asks in one run would follow from answers of another that is not over."""
    names = ("job_one", "job_two")
    for name in names:
        taking.take(question(world, job=name))
    first, second = (taking.job_of(name) for name in names)
    assert first is not None
    assert second is not None

    def waits() -> str | None:
        with database.write() as session:
            found = jobs.next_waiting(session)
            return found and found.id

    taking.begin(first)
    taking.begin(second)
    assert waits() == first.id
    with database.write() as session:
        jobs.move(session, Job.id == first.id, "reserved", "claimed")
    taking.begin(second)
    assert waits() is None
    with database.write() as session:
        jobs.fail(session, first.id)
    taking.begin(second)
    assert waits() == second.id


def test_what_was_revoked_is_not_taken(database: Database, world: World, taking: Taking) -> None:
    assert list(taking.offered()) == [world.dataset]
    world.revoke(database)
    assert taking.offered() == {}
    with pytest.raises(RefusedError):
        taking.take(question(world))


def test_a_question_that_the_hub_asks_no_more_is_given_back(
    database: Database, world: World, taking: Taking
) -> None:
    taking.take(question(world))
    ((job, hub_job),) = taking.waiting()
    assert hub_job == "job_at_the_hub"
    taking.give_back(job)
    assert _spent(database, world) == 0
    assert taking.waiting() == []


def test_what_a_worker_has_is_not_given_back(database: Database, world: World, taking: Taking) -> None:
    taking.take(question(world))
    job = taking.job_of("job_at_the_hub")
    assert job is not None
    with database.write() as session:
        jobs.move(session, Job.id == job.id, "reserved", "claimed")
    spent = _spent(database, world)
    taking.give_back(job)
    assert _spent(database, world) == spent > 0


def test_a_cap_refuses_in_the_words_that_the_hub_may_read(
    database: Database, world: World, taking: Taking
) -> None:
    with database.write() as session:
        dataset = session.get_one(Dataset, world.dataset)
        datasets.put_grant(session, dataset, world.analyst, Limits.of(0.05, 1e-5, "gdp"))
    with pytest.raises(BudgetExceeded) as refused:
        taking.take(question(world))
    assert refused.value.scope == "analyst"
    assert "0.1" in str(refused.value.detail)
    assert _spent(database, world) == 0
