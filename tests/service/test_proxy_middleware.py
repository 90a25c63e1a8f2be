"""Behind a proxy: addresses as callers know them, and nobody's word about a caller but a trusted proxy's."""

from collections.abc import Callable, Iterator
from http.cookies import Morsel, SimpleCookie
from urllib.parse import urlsplit

import httpx
import pytest

from privest_service.settings import Settings
from testing.reverse_proxy import proxied
from testing.server import ADMIN_KEY, PLAIN, Caller, Server, problem

WRONG = {"key": "administrator-1"}


@pytest.fixture
def backend() -> str:
    """No database knows of proxies."""
    return "sqlite"


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]) -> Iterator[Server]:
    """A service below a path, to which this machine is a proxy."""
    settings = {"root_path": "/apps/privest", "trusted_proxies": "10.0.0.0/8, 127.0.0.1"}
    server = Server(tmp_path_factory.mktemp("below"), new_database("sqlite"), **settings)
    try:
        yield server
    finally:
        server.stop()


def _cookie(answer: httpx.Response) -> Morsel[str]:
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return morsel


@pytest.mark.parametrize("strip", [True, False], ids=["path taken off", "path left"])
def test_all_addresses_are_below_the_path(below: Server, strip: bool) -> None:
    owner = below.owner()
    dataset = owner.dataset()
    with proxied(below.url, "/apps/privest", strip=strip) as outside, httpx.Client(verify=PLAIN) as client:
        assert client.get(f"{outside}/healthz").status_code == 200
        assert client.get(f"{outside}/openapi.json").json()["servers"] == [{"url": "/apps/privest"}]
        answer = client.post(
            f"{outside}/v1/estimates/frechet-mean",
            json={"dataset": {"id": dataset}, "privacy": {"epsilon": 0.01}},
            headers=owner.headers | {"Idempotency-Key": "once"},
        )
        assert answer.headers["location"] == f"/apps/privest/v1/jobs/{answer.json()['id']}"
        found = client.get(
            f"{outside.removesuffix('/apps/privest')}{answer.headers['location']}", headers=owner.headers
        )
        assert found.status_code == 200
        # The framework's own redirects name a host: it is the one that the caller asked.
        moved = client.get(f"{outside}/v1/datasets/", headers=owner.headers)
        assert moved.headers["location"] == f"{outside}/v1/datasets"
        entered = client.post(f"{outside}/dashboard/sign-in", data={"key": owner.key})
        assert entered.headers["location"] == "/apps/privest/dashboard"
        assert (_cookie(entered).key, _cookie(entered)["path"]) == ("privest-session", "/apps/privest")
        assert client.get(f"{outside}/dashboard/ledger").status_code == 200
        problem(client.get(f"{outside}/v1/nothing"), 404, "not-found")


def test_over_tls_the_cookie_is_for_that_path_and_tls_alone(below: Server) -> None:
    owner = below.owner()
    with proxied(below.url, "/apps/privest", proto="https") as outside:
        host = {"Host": "data.example"}
        entered = httpx.post(f"{outside}/dashboard/sign-in", data={"key": owner.key}, headers=host)
        cookie = _cookie(entered)
        assert (cookie.key, cookie["path"]) == ("__Secure-privest-session", "/apps/privest")
        assert cookie["secure"]
        held = host | {"Cookie": f"{cookie.key}={cookie.value}"}
        page = httpx.get(f"{outside}/dashboard", headers=held)
        assert page.status_code == 200
        token = page.text.partition('name="token" value="')[2].partition('"')[0]
        moved = httpx.get(f"{outside}/v1/datasets/", headers=host)
        assert moved.headers["location"] == "https://data.example/apps/privest/v1/datasets"
        # Old browsers tell a form's origin alone: it is that of the pages, as the proxy saw them.
        for origin, status in (("https://evil.example", 403), ("https://data.example", 303)):
            form = {"data": {"token": token}, "headers": held | {"Origin": origin}}
            assert httpx.post(f"{outside}/dashboard/sign-out", **form).status_code == status
        assert httpx.get(f"{outside}/dashboard", headers=held).status_code == 303


def _guesses(url: str, count: int, **headers: str) -> Iterator[int]:
    with httpx.Client(verify=PLAIN) as client:
        for _ in range(count):
            yield client.post(f"{url}/dashboard/sign-in", data=WRONG, headers=headers).status_code


def test_a_trusted_proxy_tells_who_guesses_and_its_callers_cannot(below: Server) -> None:
    from_one = {"X-Forwarded-For": "203.0.113.7"}
    assert set(_guesses(below.url, 60, **from_one)) == {401}
    assert [*_guesses(below.url, 1, **from_one)] == [429]
    for others in ("203.0.113.8", "203.0.113.7, 198.51.100.1"):
        assert [*_guesses(below.url, 1, **{"X-Forwarded-For": others})] == [401], others
    # What the caller wrote before the proxy did, and further proxies behind it, change nothing.
    for same in ("1.2.3.4, 203.0.113.7", "203.0.113.7, 10.1.2.3"):
        assert [*_guesses(below.url, 1, **{"X-Forwarded-For": same})] == [429], same
    with proxied(below.url, "/apps/privest") as outside:
        assert [*_guesses(outside, 1, **from_one)] == [429]  # all of this machine is trusted here
    assert Caller(below, "admin", ADMIN_KEY).get("/v1/datasets").status_code == 200


def test_by_default_nobody_is_believed(start_server: Callable[..., Server]) -> None:
    server = start_server()
    owner = server.owner()
    for i in range(60):
        assert [*_guesses(server.url, 1, **{"X-Forwarded-For": f"203.0.113.{i}"})] == [401]
    assert [*_guesses(server.url, 1, **{"X-Forwarded-For": "203.0.113.99"})] == [429]
    lied = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    moved = httpx.get(f"{server.url}/v1/datasets/", headers=owner.headers | lied)
    assert moved.headers["location"] == f"{server.url}/v1/datasets"
    entered = httpx.post(f"{server.url}/dashboard/sign-in", data={"key": owner.key}, headers=lied)
    assert _cookie(entered).key == "privest-session"
    assert urlsplit(entered.headers["location"]).netloc == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("root_path", "privest"),
        ("root_path", "/privest/"),
        ("root_path", "/"),
        ("root_path", "/a b"),
        ("root_path", "/v1"),
        ("root_path", "/dashboard/x"),
        ("root_path", "//evil.example"),
        ("trusted_proxies", "proxy.example"),
        ("trusted_proxies", "*"),
        ("trusted_proxies", "10.0.0.1/8"),
    ],
)
def test_settings_that_say_nothing_clear_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("PRIVEST_ADMIN_KEY", "0123456789abcdef")
    monkeypatch.setenv(f"PRIVEST_{name.upper()}", value)
    with pytest.raises(ValueError, match=name):
        Settings()  # pyright: ignore
