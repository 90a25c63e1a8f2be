"""Signing in and out: who gets a session, what a browser keeps of it, and when it ends."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import select, update

from privest_service.database import now
from privest_service.security.models import SignIn
from testing.browser import Visitor
from testing.scenes import Desk, Hospital, books, owner_called
from testing.server import ADMIN_KEY, PLAIN, Server

TWELVE_HOURS = 12 * 3600
AWAY = {"Host": "example.org"}


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def _kept(server: Server, owner_id: str) -> dict[str, SignIn]:
    """The sessions of an owner in the database, by the digests of their ids."""
    with books(server) as database, database.read() as session:
        found = session.scalars(select(SignIn).where(SignIn.principal_id == owner_id))
        return {each.digest: each for each in found}


def _is_out(answer: httpx.Response) -> bool:
    return answer.status_code == 303 and urlsplit(answer.headers["location"]).path == "/dashboard/sign-in"


def test_a_browser_is_led_from_the_front_to_the_pages(site: Server, visit: Callable[..., Visitor]) -> None:
    visitor = visit(site)
    visitor.open("/")
    assert urlsplit(visitor.page.url).path == "/dashboard/sign-in"
    visitor.enter(owner_called(site, "In front").key)
    visitor.open("/")
    assert urlsplit(visitor.page.url).path == "/dashboard"
    assert httpx.get(site.url, headers={"Accept": "application/json"}).status_code == 404


def test_the_key_of_an_owner_opens_its_overview(anna: Hospital, visit: Callable[..., Visitor]) -> None:
    visitor = visit(anna.server)
    answer = visitor.sign_in(anna.owner.key)
    assert answer.status == 200
    assert urlsplit(answer.url).path == "/dashboard"
    assert visitor.page.title() == "Overview · Privest"
    assert visitor.page.locator(".who").inner_text() == "St. Anna Hospital"
    (cookie,) = visitor.context.cookies()
    assert cookie["name"] == "privest-session"
    assert cookie["httpOnly"]
    assert not cookie["secure"]
    assert cookie["sameSite"] == "Lax"
    assert cookie["path"] == "/"
    assert cookie["expires"] - now().timestamp() == pytest.approx(TWELVE_HOURS, abs=120)
    assert anna.owner.key not in cookie["value"]
    assert visitor.page.evaluate("document.cookie") == ""
    assert anna.owner.key not in visitor.page.content()


def test_the_database_keeps_a_session_as_a_hash_and_each_sign_in_is_a_new_one(site: Server) -> None:
    owner = owner_called(site, "Twice")
    first, second = Desk(site, owner.key), Desk(site, owner.key)
    kept = _kept(site, owner.id)
    assert first.cookie != second.cookie
    assert set(kept) == {_digest(first.cookie), _digest(second.cookie)}
    for each in kept.values():
        assert abs(each.expires_at - now() - timedelta(seconds=TWELVE_HOURS)) < timedelta(minutes=2)
    held = {"Cookie": f"privest-session={first.cookie}"}
    again = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": owner.key}, headers=held)
    assert first.cookie not in again.headers["set-cookie"], "a session that was held before is not taken up"
    assert _digest(first.cookie) not in _kept(site, owner.id), "nor does it go on"


def test_away_from_this_machine_the_cookie_is_for_tls_alone(site: Server) -> None:
    owner = owner_called(site, "Behind TLS")
    entered = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": owner.key}, headers=AWAY)
    (morsel,) = SimpleCookie(entered.headers["set-cookie"]).values()
    assert morsel.key == "__Host-privest-session"
    assert morsel["secure"]
    assert morsel["httponly"]
    assert morsel["samesite"].lower() == "lax"
    assert morsel["path"] == "/"
    assert morsel["domain"] == ""
    assert int(morsel["max-age"]) == TWELVE_HOURS
    assert owner.key not in entered.headers["set-cookie"]

    def ask(name: str, host: str) -> httpx.Response:
        headers = {"Host": host, "Cookie": f"{name}={morsel.value}"}
        return httpx.get(f"{site.url}/dashboard", headers=headers)

    assert ask("__Host-privest-session", "example.org").status_code == 200
    assert _is_out(ask("privest-session", "example.org")), "a cookie that another host could have planted"


@pytest.mark.parametrize("key", ["pvo_nothing-that-opens-anything", "", "ключ", "' OR 1=1 --"])
def test_a_wrong_key_opens_nothing_and_is_not_said_again(site: Server, key: str) -> None:
    answer = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": key})
    assert answer.status_code == 401
    assert "This key opens nothing here." in answer.text
    assert not key or key not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_person_reads_that_the_key_was_wrong(site: Server, visit: Callable[..., Visitor]) -> None:
    visitor = visit(site)
    visitor.expects(401)
    assert visitor.sign_in("pvo_no-key").status == 401
    assert visitor.page.get_by_role("alert").inner_text() == "This key opens nothing here."
    assert visitor.page.locator("input[name=key]").input_value() == ""
    assert visitor.context.cookies() == []
    visitor.check_accessibility()


def test_an_address_may_fail_sixty_times_a_minute(site: Server, visit: Callable[..., Visitor]) -> None:
    owner = owner_called(site, "Patient")
    far = {"X-Forwarded-For": "203.0.113.7"}  # which a proxy of this machine may say
    with httpx.Client(verify=PLAIN) as client:
        for _ in range(60):
            refused = client.post(f"{site.url}/dashboard/sign-in", data={"key": "no"}, headers=far)
            assert refused.status_code == 401
    visitor = visit(site)
    visitor.context.set_extra_http_headers(far)
    visitor.expects(429)
    assert visitor.sign_in("no").status == 429
    assert "Try again in" in visitor.page.locator("main").inner_text()
    visitor.check_accessibility()
    assert Desk(site, owner.key).get("").status_code == 200, "nobody else is kept out by that"
    good = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": owner.key}, headers=far)
    assert good.status_code == 303, "nor whoever there holds a key of ours"


def test_whoever_signs_out_is_out_with_every_copy_of_the_cookie(
    site: Server, visit: Callable[..., Visitor]
) -> None:
    owner, visitor = owner_called(site, "Leaving"), visit(site)
    visitor.sign_in(owner.key)
    (cookie,) = visitor.context.cookies()
    copied = {"Cookie": f"privest-session={cookie['value']}"}
    other = Desk(site, owner.key)
    assert httpx.get(f"{site.url}/dashboard", headers=copied).status_code == 200
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.page.wait_for_url("**/dashboard/sign-in")
    assert visitor.context.cookies() == []
    assert _is_out(httpx.get(f"{site.url}/dashboard", headers=copied))
    visitor.open("/dashboard/ledger")
    assert visitor.page.title() == "Sign in · Privest"
    assert other.get("/ledger").status_code == 200, "another session of the same owner goes on"


def test_a_session_ends_with_the_key_that_opened_it(site: Server) -> None:
    owner = owner_called(site, "Rotating")
    second = owner.post(f"/v1/owners/{owner.id}/keys").json()
    ended, stays = Desk(site, second["key"]), Desk(site, owner.key)
    assert ended.get("/ledger").status_code == 200
    revoked = owner.delete(f"/v1/owners/{owner.id}/keys/{second['id']}")
    assert revoked.status_code == 204, revoked.text
    assert _is_out(ended.get("/ledger"))
    assert _is_out(ended.post("/freeze", {"frozen": "yes"}, token=None))
    assert stays.get("/ledger").status_code == 200
    assert not owner.budget()["frozen"]


def test_a_session_that_has_ended_leads_to_the_sign_in(site: Server, visit: Callable[..., Visitor]) -> None:
    owner, visitor = owner_called(site, "Asleep"), visit(site)
    visitor.sign_in(owner.key)
    visitor.page.goto("about:blank")
    with books(site) as database, database.write() as session:
        past = now() - timedelta(seconds=1)
        session.execute(update(SignIn).where(SignIn.principal_id == owner.id).values(expires_at=past))
    visitor.open("/dashboard/ledger")
    assert urlsplit(visitor.page.url).path == "/dashboard/sign-in"
    Desk(site, owner.key)
    assert len(_kept(site, owner.id)) == 1, "sessions that have ended are forgotten at the next sign-in"


def test_the_administrator_comes_to_the_owners(site: Server, visit: Callable[..., Visitor]) -> None:
    visitor = visit(site)
    answer = visitor.sign_in(ADMIN_KEY)
    assert urlsplit(answer.url).path == "/dashboard/admin"
    assert visitor.page.locator(".who").inner_text() == "Administrator"
    with books(site) as database, database.read() as session:
        marks = session.scalars(select(SignIn.key).where(SignIn.role == "admin")).all()
    assert hashlib.sha256(ADMIN_KEY.encode()).hexdigest() not in marks
