"""How often anybody may call: the same for all keys of one principal, and nobody for what others do."""

import time
from collections.abc import Callable

import httpx
import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from privest_service.database import Database
from privest_service.problems import TooManyRequests
from privest_service.security import rate_limit
from privest_service.security.models import SignIn
from privest_service.security.principals import Principal
from privest_service.security.rate_limit import RateLimiter
from privest_service.settings import Settings
from testing.server import PLAIN, Caller, Server, problem


@pytest.fixture
def backend() -> str:
    """No database counts requests."""
    return "sqlite"


def _waits(answer: httpx.Response, seconds: int) -> None:
    told = int(answer.headers["retry-after"])
    assert 0 < told <= seconds
    assert f"in {told} s" in problem(answer, 429, "too-many-requests")["detail"]


def test_all_keys_of_one_principal_count_together(start_server: Callable[..., Server]) -> None:
    server = start_server(rate_limit="6/minute")
    owner, other = server.owner(), server.owner()
    again = Caller(server, owner.id, owner.post(f"/v1/owners/{owner.id}/keys").json()["key"])
    budget = f"/v1/owners/{owner.id}/budget"
    with httpx.Client(base_url=server.url, verify=PLAIN) as browser:
        assert browser.post("/dashboard/sign-in", data={"key": owner.key}).status_code == 303
        answers = [caller.get(budget) for caller in (owner, again) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
        _waits(answers[-1], 60)
        _waits(owner.estimate("ds_x"), 60)
        # A page is a request, too, and so is signing in, which writes a session.
        refused = browser.get("/dashboard"), browser.post("/dashboard/sign-in", data={"key": owner.key})
        for page in refused:
            assert page.status_code == 429
            assert int(page.headers["retry-after"]) > 0
            assert "Try again in" in page.text
    database = Database(server.database_url)
    with database.read() as session:
        assert len(session.scalars(select(SignIn)).all()) == 1
    database.close()
    assert other.get("/v1/datasets").status_code == 200
    assert {server.admin.get(budget).status_code for _ in range(10)} == {200}
    assert {httpx.get(f"{server.url}/healthz").status_code for _ in range(10)} == {200}


def test_whatever_a_caller_asks_for_is_counted(start_server: Callable[..., Server]) -> None:
    """A call that ends its own key, which needs no scope, and one that ends a session are counted, too."""
    server = start_server(rate_limit="6/minute")
    owner, other = server.owner(), server.owner()
    own = owner.get(f"/v1/owners/{owner.id}/keys").json()["keys"][0]["id"]
    answers = [owner.delete(f"/v1/owners/{other.id}/keys/{own}") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [404] * 5 + [429]
    _waits(answers[-1], 60)
    with httpx.Client(base_url=server.url, verify=PLAIN) as browser:
        assert browser.post("/dashboard/sign-in", data={"key": other.key}).status_code == 303
        left = [browser.post("/dashboard/sign-out") for _ in range(6)]  # without the form's token: refused
    assert [answer.status_code for answer in left] == [left[0].status_code] * 5 + [429]
    assert left[0].status_code != 429


def test_whoever_guesses_is_counted_by_address_and_no_key_of_ours_refused(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    owner = server.owner()
    with httpx.Client(base_url=server.url, verify=PLAIN) as client:

        def ask(key: str) -> httpx.Response:
            return client.get("/v1/datasets", headers={"Authorization": f"Bearer {key}"})

        answers = [ask("administrator-1") for _ in range(60)]
        while answers[-1].status_code == 401:  # 60 in a minute: on a busy machine more of them fit in
            answers.append(ask("administrator-1"))
        assert len(answers) > 60
        assert [answer.status_code for answer in answers] == [401] * (len(answers) - 1) + [429]
        _waits(answers[-1], 60)
        # As one could guess on where the right guess is still told, that is not told either.
        assert ask(server.admin.key).status_code == 429
        assert client.post("/dashboard/sign-in", data={"key": server.admin.key}).status_code == 429
        assert ask(owner.key).status_code == 200
        assert client.post("/dashboard/sign-in", data={"key": owner.key}).status_code == 303
        revoked = ask(f"{owner.key[:-1]}x")
        assert revoked.status_code == 429
    server.wait_until_ready()


def test_a_time_later_it_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, ada, clock = RateLimiter("2/second"), Principal("analyst", "anl_1"), [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    counter.count(ada)
    counter.count(ada)
    with pytest.raises(TooManyRequests) as refused:
        counter.count(ada)
    assert refused.value.headers == {"Retry-After": "1"}
    clock[0] += 1.01
    counter.count(ada)


def test_a_counter_that_fails_refuses_nobody_and_is_told_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counter, clock = RateLimiter("1/minute"), [100.0]

    def fail(*_: object) -> bool:
        raise ConnectionError("the storage is away")

    monkeypatch.setattr(counter._limiter, "hit", fail)
    monkeypatch.setattr(counter._limiter, "test", fail)
    monkeypatch.setattr(rate_limit.time, "monotonic", lambda: clock[0])
    with capture_logs() as told:
        for second in (0, 1, 59, 60, 61):
            clock[0] = 100.0 + second
            counter.count(Principal("analyst", "anl_1"))
            counter.check_failures("203.0.113.7")
            counter.guessed_wrong("203.0.113.7")
    assert [each["event"] for each in told] == ["requests are not counted"] * 2


@pytest.mark.parametrize("limit", ["", "many", "-1/minute", "600", "600/fortnight"])
def test_a_limit_that_is_none_is_refused_at_the_start(limit: str) -> None:
    with pytest.raises(ValueError, match="600/minute"):
        Settings(admin_key="0123456789abcdef", rate_limit=limit)  # pyright: ignore
