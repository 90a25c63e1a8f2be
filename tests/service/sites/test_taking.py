"""What a site takes of a hub that lies: nothing that it did not plan itself, and each question once."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from sqlalchemy import select

from privest.estimators.federation import Federated
from privest.privacy.cost import PrivacyTarget
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.joint import Asked, AskedPart
from privest_service.estimates.planning import Planner
from privest_service.estimates.service import Submissions
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import versions
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import BudgetExceeded
from privest_service.sites.schemas import SiteQuestion
from privest_service.sites.taking import RefusedError, Taking
from testing.world import KIND, SCHEMA_TEXT, World, never

COUNTS = (50, 70)
TARGET = PrivacyTarget(0.1, 1e-6)


@pytest.fixture
def world(database: Database) -> World:
    return World.make(database)


@pytest.fixture
def taking(database: Database, world: World) -> Taking:
    planner = Planner(never)
    submissions = Submissions(database, planner, lambda: None, b"", 100)
    return Taking(database, planner, submissions, world.analyst)


def _options() -> dict[str, Any]:
    request = KIND.request.model_validate({"dataset": {"id": "ds_x"}, "privacy": {"epsilon": 1.0}})
    return KIND.resolved(request, SCHEMA.validate_json(SCHEMA_TEXT).shape(sum(COUNTS)))


def _planned(options: dict[str, Any], target: PrivacyTarget = TARGET) -> Federated[Any]:
    schema = SCHEMA.validate_json(SCHEMA_TEXT)
    plan = KIND.plan_for(options, [(schema.shape(n), target) for n in COUNTS])
    assert isinstance(plan, Federated)
    return plan


def _digest(plan: Any) -> str:
    return hashlib.sha256(KIND.plans.dump_json(plan)).hexdigest()


def question(world: World, **otherwise: Any) -> SiteQuestion:
    """A question of an honest hub, but for what is said otherwise."""
    options = _options()
    asked = Asked(options, {}, tuple(AskedPart(n, TARGET) for n in COUNTS))
    honest = SiteQuestion(
        job="job_at_the_hub",
        dataset=world.dataset,
        kind=KIND.name,
        place=0,
        state="asked",
        asked=json.loads(json.dumps(asdict(asked))),
        plan=_digest(_planned(options)),
        seed=7,
        versions=versions(),
    )
    return honest.model_copy(update=otherwise)


def _spent(database: Database, world: World) -> int:
    with database.read() as session:
        return ledger.owner_account(session, world.owner).mu_squared_spent


def test_a_question_is_charged_at_the_price_of_the_sites_own_plan(
    database: Database, world: World, taking: Taking
) -> None:
    taking.take(question(world))
    part = _planned(_options()).parts[0]
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


def _other_plan() -> str:
    """The plan with a release of which less than nothing is made: its cost would take that of others off."""
    plan = _planned(_options())
    first, *others = plan.parts
    negative = replace(first.releases[0], count=-5)
    cheaper = replace(first, releases=(*first.releases, negative))
    return _digest(replace(plan, parts=(cheaper, *others)))


def _parts(**first: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(asked: dict[str, Any]) -> dict[str, Any]:
        one, *others = asked["parts"]
        target = one["target"] | {name: first[name] for name in first if name != "n"}
        return asked | {"parts": [{"n": first.get("n", one["n"]), "target": target}, *others]}

    return change


LIES: dict[str, Callable[[SiteQuestion], SiteQuestion]] = {
    "another plan": lambda q: q.model_copy(update={"plan": _other_plan()}),
    "no plan": lambda q: q.model_copy(update={"plan": ""}),
    "another version": lambda q: q.model_copy(update={"versions": q.versions | {"privest": "0.0.0"}}),
    "another place": lambda q: q.model_copy(update={"place": 1}),
    "no place": lambda q: q.model_copy(update={"place": 2}),
    "a place below": lambda q: q.model_copy(update={"place": -1}),
    "another dataset": lambda q: q.model_copy(update={"dataset": "ds_of_others"}),
    "another estimator": lambda q: q.model_copy(update={"kind": "robust-pca"}),
    "no estimator": lambda q: q.model_copy(update={"kind": "rows"}),
    "other options": lambda q: q.model_copy(update={"asked": q.asked | {"options": {"steps": -1}}}),
    "unknown options": lambda q: q.model_copy(update={"asked": q.asked | {"options": {"rows": True}}}),
    "more records": lambda q: q.model_copy(update={"asked": _parts(n=5000)(q.asked)}),
    "a larger epsilon": lambda q: q.model_copy(update={"asked": _parts(epsilon=0.2)(q.asked)}),
    "an epsilon below": lambda q: q.model_copy(update={"asked": _parts(epsilon=-1.0)(q.asked)}),
    "no epsilon": lambda q: q.model_copy(update={"asked": _parts(epsilon=float("nan"))(q.asked)}),
    "no parts": lambda q: q.model_copy(update={"asked": q.asked | {"parts": []}}),
    "nothing": lambda q: q.model_copy(update={"asked": {}}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_charges_nobody(
    database: Database, world: World, taking: Taking, lie: str
) -> None:
    with pytest.raises(RefusedError):
        taking.take(LIES[lie](question(world)))
    assert _spent(database, world) == 0
    assert taking.job_of("job_at_the_hub") is None


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
