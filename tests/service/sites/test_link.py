"""How a site's noisy answers get to its hub: drawn once, sent until they arrive, at public moments."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from privest_service.bounded_http import UnfitAnswerError
from privest_service.estimates import worker
from privest_service.sites import link
from privest_service.sites.link import Exchange, Hub, Link, OverError, UnreachableError
from privest_service.sites.schemas import LARGEST_LIST, SiteDecided, SiteQuestions
from privest_service.sites.tasks import join_job
from testing.hostile import IN_BUFFERS, PIECE, Counted, answering, endless, flooding, packed
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


def to_a_hub(answer: Callable[[httpx.Request], httpx.Response]) -> Link:
    """A connection to a hub that answers so."""
    there = Link(Hub("http://127.0.0.1:9", "key"))
    transport = httpx.MockTransport(answer)
    there._http = httpx.Client(base_url="http://hub", headers=there._http.headers, transport=transport)
    return there


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


def test_what_the_hub_ends_is_over() -> None:
    for status, error in (
        (409, OverError),
        (404, OverError),
        (503, UnreachableError),
        (429, UnreachableError),
    ):
        body = endless()
        there = to_a_hub(lambda _, status=status, body=body: httpx.Response(status, stream=body))
        with pytest.raises(error):
            there.call("GET", "/v1/sites/questions")
        assert body.taken == 0


def test_a_hub_is_reached_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    monkeypatch.setenv("no_proxy", "near.example.org")
    assert Hub.through_proxies("https://far.example.org", "k").proxy == "http://proxy.example.org:3128"
    assert Hub.through_proxies("https://near.example.org", "k").proxy is None
    assert "secret" not in repr(Hub("https://far.example.org", "secret"))


def test_a_key_goes_through_no_proxy_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert Hub.through_proxies("http://127.0.0.1:8000", "k").proxy is None


def test_no_more_of_a_hubs_answer_is_read_than_a_site_takes() -> None:
    body = endless()
    there = to_a_hub(lambda _: httpx.Response(200, stream=body))
    with pytest.raises(UnfitAnswerError):
        there.asked(SiteQuestions, "GET", "/v1/sites/questions")
    assert body.taken == LARGEST_LIST + PIECE


def test_a_hub_that_sends_without_end_is_broken_off() -> None:
    """The buffers of a real connection hold some more than is read."""
    with flooding() as flood:
        there = Hub(flood.url, "key").link()
        with pytest.raises(UnfitAnswerError):
            there.asked(SiteQuestions, "GET", "/v1/sites/questions")
        there.close()
    assert flood.sent[0] < LARGEST_LIST + IN_BUFFERS


def test_a_compressed_answer_is_refused_unread() -> None:
    body, asked = Counted(packed({"questions": [], "mark": ""})), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=body)

    with pytest.raises(UnfitAnswerError):
        to_a_hub(answer).asked(SiteQuestions, "GET", "/v1/sites/questions")
    assert (asked, body.taken) == (["identity"], 0)


QUESTION: dict[str, Any] = {
    "job": "job_x",
    "dataset": "ds_x",
    "kind": "frechet-mean",
    "place": 0,
    "state": "asked",
    "asked": {},
    "plan": "0" * 64,
    "seed": 7,
    "versions": {},
}
DEEP = b'{"questions": [], "mark": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"job": "j" * 41},
        {"job": "job\0x"},
        {"dataset": "d" * 41},
        {"kind": "k" * 101},
        {"place": 100},
        {"place": 10**4000},
        {"state": "over"},
        {"plan": "0" * 65},
        {"seed": 2**48},
        {"versions": {"x": "v" * 101}},
        {"versions": {str(number): "1" for number in range(51)}},
    ],
)
def test_each_field_of_a_question_is_bounded(otherwise: dict[str, Any]) -> None:
    def listed(question: dict[str, Any]) -> SiteQuestions:
        document = {"questions": [question], "mark": ""}
        there = to_a_hub(lambda _: answering(content=document))
        return there.asked(SiteQuestions, "GET", "/v1/sites/questions")

    assert listed(QUESTION).questions[0].seed == 7
    with pytest.raises(UnfitAnswerError):
        listed(QUESTION | otherwise)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"questions": [], "mark": "m" * 65}).encode(),
        json.dumps({"questions": [QUESTION] * 1001, "mark": ""}).encode(),
        DEEP,
        DEEP.replace(b'"mark": ', b'"mark": "", "more": '),
        b"",
        b"no JSON",
    ],
)
def test_a_list_of_questions_is_bounded(body: bytes) -> None:
    there = to_a_hub(lambda _: answering(content=body))
    with pytest.raises(UnfitAnswerError) as refused:
        there.asked(SiteQuestions, "GET", "/v1/sites/questions")
    assert len(str(refused.value)) < 100


def test_what_became_of_a_question_is_one_of_few_words() -> None:
    there = to_a_hub(lambda _: answering(content={"state": "x" * 10**6}))
    with pytest.raises(UnfitAnswerError):
        there.asked(SiteDecided, "POST", "/v1/sites/questions/job_x/decision", {"decision": "accept"})


@pytest.mark.parametrize("length", [0, 8, 15, 17, 24, None])
def test_a_sum_has_exactly_the_length_of_the_answer(length: int | None) -> None:
    body = endless() if length is None else Counted(b"\0" * length)
    exchange = Exchange(to_a_hub(lambda _: httpx.Response(200, stream=body)), "job_x", lambda _: None)
    with pytest.raises(ValueError, match="sum is refused"):
        exchange("gradient", np.zeros(2))
    assert body.taken <= PIECE


def test_a_hub_that_holds_no_answer_back_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that takes its time is asked again at once, and others after a pause."""
    clock, asked = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def answer(_: httpx.Request) -> httpx.Response:
        asked.append(clock[0])
        if len(asked) > 12:
            return answering(content=np.zeros(2).tobytes())
        clock[0] += 20.0 if len(asked) > 9 else 0.01
        return answering(503 if len(asked) == 5 else 202)

    monkeypatch.setattr(link, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    exchange = Exchange(to_a_hub(answer), "job_x", lambda _: None)
    assert np.array_equal(exchange("gradient", np.ones(2)), np.zeros(2))
    pauses = np.diff(asked)
    assert np.allclose(pauses[:9], [0.05, 0.2, *[1.0] * 7])
    assert np.allclose(pauses[9:], 20.0)


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
