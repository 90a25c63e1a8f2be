"""Questions of an honest hub to the site of a `World`, and of hubs that lie."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from privest.estimators.federation import Federated
from privest.privacy.accounting import PrivacyTarget
from privest_service.database import Database
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.questions import Asked, AskedPart
from privest_service.ledger.mechanisms import versions
from privest_service.sites.schemas import SiteQuestion
from privest_service.sites.taking import Taking
from testing.world import KIND, SCHEMA_TEXT, World, submissions_on

COUNTS = (50, 70)
TARGET = PrivacyTarget(0.1, 1e-6)


def taking_in(database: Database, world: World) -> Taking:
    """What takes a hub's questions at the site of a world, where its analyst is the hub."""
    submissions = submissions_on(database, 100)
    return Taking(database, submissions.planner, submissions, world.analyst)


def options() -> dict[str, Any]:
    """Options of the question, resolved."""
    request = KIND.request.model_validate({"dataset": {"id": "ds_x"}, "privacy": {"epsilon": 1.0}})
    return KIND.resolved(request, SCHEMA.validate_json(SCHEMA_TEXT).shape(sum(COUNTS)))


def planned() -> Federated[Any]:
    """The plan of the question."""
    schema = SCHEMA.validate_json(SCHEMA_TEXT)
    plan = KIND.plan_for(options(), [(schema.shape(n), TARGET) for n in COUNTS])
    assert isinstance(plan, Federated)
    return plan


def _digest(plan: Any) -> str:
    return hashlib.sha256(KIND.plans.dump_json(plan)).hexdigest()


def question(world: World, **otherwise: Any) -> SiteQuestion:
    """A question of an honest hub, but for what is said otherwise."""
    asked = Asked(options(), {}, tuple(AskedPart(n, TARGET) for n in COUNTS))
    honest = SiteQuestion(
        job="job_at_the_hub",
        dataset=world.dataset,
        kind=KIND.name,
        place=0,
        state="asked",
        asked=json.loads(json.dumps(asdict(asked))),
        plan=_digest(planned()),
        seed=7,
        versions=versions(),
    )
    return honest.model_copy(update=otherwise)


def _other_plan() -> str:
    """The plan with a release of which less than nothing is made: its cost would take that of others off."""
    plan = planned()
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
