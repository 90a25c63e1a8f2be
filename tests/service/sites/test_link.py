"""How a site's noisy answers get to its hub: drawn once, sent until they arrive, at public moments."""

import json
from typing import Any

import httpx
import numpy as np
import pytest

from privest_service.estimates import worker
from privest_service.sites import link
from privest_service.sites.link import Exchange, Hub, Link, OverError, UnreachableError
from privest_service.sites.tasks import join_job
from testing.hubs import planned
from testing.world import KIND


class Broken:
    """A connection that breaks so many times before each answer, and then gives twice what it was given."""

    def __init__(self, times: int) -> None:
        self.times, self.left, self.sent = times, times, list[tuple[str, bytes]]()

    def call(self, _: str, path: str, **content: Any) -> httpx.Response:
        self.sent.append((path, content["content"]))
        self.left -= 1
        if self.left >= 0:
            if self.left % 2:
                return httpx.Response(202)
            raise UnreachableError
        self.left = self.times
        return httpx.Response(200, content=(2 * np.frombuffer(content["content"], "<f8")).tobytes())


def test_the_same_bits_are_sent_until_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link.time, "sleep", lambda _: None)
    broken, left = Broken(5), list[float]()
    exchange: Any = Exchange(broken, "job_x", left.append)  # pyright: ignore[reportArgumentType]
    answers = [np.array([0.1, -np.pi]), np.array([[1e-300], [3.0]])]
    for answer in answers:
        assert np.array_equal(exchange("gradient", answer), 2 * answer)
    paths = [f"/v1/sites/questions/job_x/answers/{number}" for number in range(2)]
    assert [path for path, _ in broken.sent] == [paths[0]] * 6 + [paths[1]] * 6
    assert {content for _, content in broken.sent} == {answer.tobytes() for answer in answers}
    # Once for each answer, however often that is sent: so the time tells of one computation alone.
    assert len(left) == 2
    exchange.end()
    assert left == sorted(set(left))  # each counts from when the last sum came
    assert len(left) == 3


def test_what_the_hub_ends_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Link(Hub("http://127.0.0.1:9", "key"))
    for status, error in (
        (409, OverError),
        (404, OverError),
        (503, UnreachableError),
        (429, UnreachableError),
    ):
        answer = httpx.Response(status)
        monkeypatch.setattr(there._http, "request", lambda *_, answer=answer, **__: answer)
        with pytest.raises(error):
            there.call("GET", "/v1/sites/questions")
    there.close()


def test_a_hub_is_reached_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    monkeypatch.setenv("no_proxy", "near.example.org")
    assert Hub.through_proxies("https://far.example.org", "k").proxy == "http://proxy.example.org:3128"
    assert Hub.through_proxies("https://near.example.org", "k").proxy is None
    assert "secret" not in repr(Hub("https://far.example.org", "secret"))


@pytest.mark.parametrize("breaks_off_at", ["use_up", "gate_of"])
def test_a_run_that_breaks_off_ends_at_a_public_moment(
    monkeypatch: pytest.MonkeyPatch, breaks_off_at: str
) -> None:
    ends = list[float]()

    def broken(*_: Any) -> None:
        raise KeyError

    monkeypatch.setattr(worker, "use_up", lambda _: None)
    monkeypatch.setattr(worker, breaks_off_at, broken)
    monkeypatch.setattr(worker, "public_end", lambda took: ends.append(took) or took)
    terms = json.dumps({"place": 0, "seed": 7, "hub_job": "job_x"})
    plan, hub = KIND.plans.dump_json(planned()).decode(), Hub("http://127.0.0.1:9", "key").as_json()
    with pytest.raises(KeyError):
        join_job(KIND.name, plan, terms, hub, "token", "path")
    assert len(ends) == 1
