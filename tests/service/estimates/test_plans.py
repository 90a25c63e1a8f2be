"""Stored plans: those of this version are run to the letter, and jobs of others are given back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.estimates.plans import can_run
from privest_service.jobs.models import Job
from testing.world import World

pytestmark = pytest.mark.either


def unknown_field(plan: Any) -> None:
    plan["tempering"] = 0.5


def unknown_sum(plan: Any) -> None:
    plan["releases"][0]["statistic"] = "sum of squares"


def another_release(plan: Any) -> None:
    plan["releases"][0]["kernel"] = "laplace"


def missing_part(plan: Any) -> None:
    del plan["expected_error"]


def another_size(plan: Any) -> None:
    plan["releases"][0]["size"] += 1


def unknown_space(plan: Any) -> None:
    plan["shape"]["manifold"]["name"] = "klein-bottle"


def space_without_a_name(plan: Any) -> None:
    del plan["shape"]["manifold"]["name"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "change",
    [
        unknown_field,
        unknown_sum,
        another_release,
        missing_part,
        another_size,
        unknown_space,
        space_without_a_name,
    ],
)
def test_a_job_of_another_version_is_given_back_before_it_is_claimed(
    database: Database, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    world, later = World.make(database), World.make(database)
    job, sound = world.submit(database, "k"), later.submit(database, "k")
    with database.write() as session:
        stored = session.get_one(Job, job)
        assert can_run(stored.kind, stored.plan)
        plan = json.loads(stored.plan)
        change(plan)
        stored.plan = json.dumps(plan)
        assert not can_run(stored.kind, stored.plan)
    engine = Engine(database, Store(tmp_path), workers=1, job_timeout=600.0)
    claimed = [engine._claim() for _ in range(2)]
    assert [each and each.job.id for each in claimed].count(sound) == 1
    assert (world.check(database), later.check(database)) == ("voided", "claimed")


def test_a_plan_of_no_estimator_is_not_run() -> None:
    assert not can_run("astrology", "{}")
    assert not can_run("frechet-mean", "{}")
