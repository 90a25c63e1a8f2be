"""Planning beside others: what a free plan may take, who goes first, and no plan is faster for another's."""

import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

import psutil
import pytest

from privest.data.metadata import DatasetMetadata, LabelledMetadata, PointsMetadata, VectorsMetadata
from privest.privacy.accounting import PrivacyTarget
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.service import Planner
from privest_service.problems import Invalid, TooManyRequests
from testing.server import HANG_GUARD, Server, problem, spd

VECTORS = VectorsMetadata(20_000, 6)
POINTS = PointsMetadata(20_000, {"name": "spd", "dim": 3}, radius=1.0)
LABELLED = LabelledMetadata(20_000, ("a", "b"), "y", ("0", "1"), 1.0, (0.0, 0.0), (1.0, 1.0))

QUERIES: dict[str, tuple[str, DatasetMetadata, dict[str, Any]]] = {
    "batches of a mean": ("frechet-mean", POINTS, {"solver": "rsgd"}),
    "loops of a mean": ("frechet-mean", POINTS, {"solver": "rsvrg"}),
    "a mean": ("frechet-mean", POINTS, {}),
    "batches of a subspace": ("robust-pca", VECTORS, {"rank": 2, "solver": "sgd-reaper"}),
    "batches of a classifier": ("logistic-regression", LABELLED, {"batch_size": 200, "solver": "hb"}),
    "a classifier": ("logistic-regression", LABELLED, {"solver": "hb-opt"}),
    "a saddle-free classifier": ("logistic-regression", LABELLED, {"solver": "spider", "loss": "savage"}),
}


def query(caller_id: str, name: str, epsilon: float = 1.0, datasets: int = 1) -> ResolvedQuery:
    """A caller's query, about so many datasets of equal public facts."""
    kind, shape, options = QUERIES[name]
    target = PrivacyTarget(epsilon, 1e-6)
    about = tuple(QueryTarget(f"ds_{place}", "ow_1", shape, target) for place in range(datasets))
    return ResolvedQuery(caller_id, KINDS[kind], about, options)


def at_once(_: str, function: Callable[..., str], *args: Any, **__: Any) -> str:
    """Make a plan in this process, as a planning process makes it."""
    return function(*args)


def calls_of(planner: Planner, asked: ResolvedQuery) -> Counter[str]:
    """How often each function of the service and its core is called to make a plan."""
    counted = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("privest"):
            counted[f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        planner.make_plan(asked)
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("name", QUERIES)
def test_no_plan_is_faster_because_another_caller_asked_the_same(name: str) -> None:
    planner = Planner(at_once)
    planner.make_plan(query("an_other", name, epsilon=3.0))  # what is loaded once
    first = calls_of(planner, query("an_1", name))
    assert calls_of(planner, query("an_2", name)) == first
    if KINDS[QUERIES[name][0]].certificates(QUERIES[name][2]):
        assert calls_of(planner, query("an_1", name)).total() < first.total()  # kept for this caller


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("batches of a mean", {}, 24),
        ("batches of a subspace", {}, 24),
        ("batches of a classifier", {"solver": "hb-opt"}, 3),
    ],
)
def test_a_free_plan_is_limited_in_its_work(name: str, options: dict[str, Any], most: int) -> None:
    priorities = list[str]()

    class Begun(Exception):  # noqa: N818 - no error
        pass

    def begin(*_: Any, priority: str) -> str:
        priorities.append(priority)
        raise Begun

    def asked(datasets: int) -> ResolvedQuery:
        made = query("an_1", name, datasets=datasets)
        return ResolvedQuery(made.caller_id, made.kind, made.about, made.options | options)

    planner = Planner(begin)
    with pytest.raises(Begun):
        planner.make_plan(asked(most))
    with pytest.raises(Invalid) as refused:
        planner.make_plan(asked(most + 1))
    told = str(refused.value.detail)
    assert f"from {most + 1} datasets" in told
    assert f"at most {most}. Plan it for fewer datasets" in told
    with pytest.raises(Begun):
        planner.make_plan(asked(100), free=False)
    assert priorities == ["free", "charged"]


@pytest.mark.parametrize(("name", "calls"), [("a mean", 0), ("batches of a mean", 1)])
def test_a_repeated_plan_asks_no_process_again(name: str, calls: int) -> None:
    called, busy = list[str](), [True]

    def call(_: str, function: Callable[..., str], *args: Any, priority: str) -> str:
        called.append(function.__name__)
        if priority != "idle":
            return function(*args)
        if busy:
            raise TooManyRequests
        return '{"accountant": "x", "epsilon": 0.5, "delta": 1e-06}'

    planner, asked = Planner(call), query("an_1", name)
    plan = planner.make_plan(asked)
    assert planner.second_opinion(asked, plan) is None
    busy.clear()
    told = [planner.second_opinion(asked, planner.make_plan(asked)) for _ in range(2)]
    assert told[0] == told[1] is not None
    assert planner.make_plan(asked).cost == plan.cost
    assert called == ["plan_job"] * calls + ["opinion_job"] * 2  # the first was not answered


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_repeated_plan_follows_every_change(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset, asked = owner.dataset(), {"epsilon": 0.1, "delta": 1e-6}
    owner.grant(dataset, analyst, epsilon=0.5, delta=1e-6)

    def left() -> list[float]:
        return [caller.plan(dataset, **asked).json()["room"]["left"] for caller in (owner, analyst)]

    assert left() == left() == [1.0, 1.0]
    assert analyst.estimate(dataset, **asked).status_code == 200
    first = left()
    assert max(first) < 1.0
    assert server.admin.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 2.0}).status_code == 200
    changed = owner.grant(dataset, analyst, epsilon=0.6, delta=1e-6, approval="required")
    assert changed.status_code == 200, changed.text
    assert all(after > before for after, before in zip(left(), first, strict=True))
    assert analyst.plan(dataset, **asked).json()["approval"] == "required"
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
    problem(analyst.plan(dataset, **asked), 404, "not-found")
    assert owner.plan(dataset, **asked).status_code == 200
    assert owner.delete(f"/v1/datasets/{dataset}").status_code == 204
    problem(owner.plan(dataset, **asked), 404, "not-found")


def processor_times(web: psutil.Process) -> dict[psutil.Process, float]:
    """Seconds that each process of a service has computed so far."""
    found = dict[psutil.Process, float]()
    for worker in web.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[worker] = sum(worker.cpu_times()[:2])
    return found


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_query_is_accepted_while_another_callers_plan_is_being_made(
    shared_server: Callable[..., Server],
) -> None:
    """The other caller's plan is stopped in its process, so that it ends no sooner than the test says so.

    It is long beside what it has computed when it is stopped: a process stopped between two plans may hold
    the lock of the channel on which the other process waits for calls.
    """
    server = shared_server()
    other, caller = server.owner(epsilon=100.0), server.owner()
    theirs = [{"id": other.dataset(spd(400 + place))} for place in range(12)]
    own = caller.dataset()
    web = psutil.Process(server.process.pid)
    before = processor_times(web)

    def plan(place: int) -> int:
        privacy = {"epsilon": 1.0 + place, "delta": 1e-6}
        body = {"dataset": theirs, "privacy": privacy, "solver": "rsvrg"}
        return other.post("/v1/estimates/frechet-mean/plan", json=body).status_code

    with ThreadPoolExecutor(4) as pool:
        plans = [pool.submit(plan, place) for place in range(4)]
        stopped = list[psutil.Process]()
        try:
            while not stopped:
                assert not all(plan.done() for plan in plans)
                for worker, seconds in processor_times(web).items():
                    if not stopped and seconds > before.get(worker, 0.0) + 0.05:
                        worker.suspend()
                        stopped.append(worker)
            answer = caller.estimate(own, solver="rsgd", epsilon=0.5, delta=1e-6, wait=0)
            assert answer.status_code == 202, answer.text
            assert caller.plan(own).json()["second_opinion"] is None  # other work comes first
            assert not all(plan.done() for plan in plans)
        finally:
            for worker in stopped:
                worker.resume()
        assert {plan.result(HANG_GUARD) for plan in plans} == {200}
    assert caller.plan(own, epsilon=0.6).json()["second_opinion"]["epsilon"] > 0
