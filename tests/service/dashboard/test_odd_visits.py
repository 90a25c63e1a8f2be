"""What nobody asks by good will: odd input, too many streams, pages that lag, or would say things twice."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from testing.browser import Visitor
from testing.scenes import Desk, Hospital, analyst_called, answered, books, dataset_called, owner_called
from testing.server import ADMIN_KEY, HANG_GUARD, Caller, Server, cpu_seconds, until

Visit = Callable[..., Visitor]

_DEEP = "[" * 50_000

_VISITS = (
    "/ledger?window=&before=",
    "/ledger?window=0",
    "/ledger?before=-1",
    "/ledger?before=99999999999999999999",
    "/ledger?text=job_%00",
    "/ledger?text=%ED%A0%80",
    "/ledger?text=%23999999999999999999999999",
    "/ledger?state=nonsense",
    "/ledger/0",
    "/ledger/-9223372036854775808",
    "/ledger/9223372036854775807",
    "/ledger/99999999999999999999",
    "/ledger/2?window=2147483648",
    "/answers?before=%00",
    "/answers/%00",
    "/datasets/%00",
    "/what-if?dataset={dataset}&epsilon=5e-324",
    "/what-if?dataset={dataset}&epsilon=1e308",
    "/what-if?dataset={dataset}&epsilon=nan",
    "/what-if?dataset={dataset}&epsilon=inf",
    "/what-if?dataset={dataset}&epsilon=0.5&delta=0",
    "/what-if?dataset={dataset}&epsilon=0.5&delta=-0",
    "/what-if?dataset={dataset}&epsilon=0.5&kind=nonsense",
    "/what-if?dataset={dataset}&epsilon=0.5&rank=0",
    f"/what-if?dataset={{dataset}}&epsilon=0.5&options={'[' * 19_000}",
    "/what-if?dataset={dataset}&epsilon=0.5&options=" + '{"a":' * 3_000,
    "/what-if?dataset={dataset}&epsilon=0.5&options=[1]",
    '/what-if?dataset={dataset}&epsilon=0.5&options={"steps": 1e400}',
    "/what-if?dataset=%00&epsilon=0.5",
    "/analysts?analyst=%00",
    "/keys?before=%00",
    "/keys?before=key_none",
)

_FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/analysts", {"dataset": "\0", "analyst": "\0"}),
    ("/analysts", {"dataset": "{dataset}", "analyst": "\0"}),
    ("/analysts", {"dataset": "{dataset}", "analyst": "anl_1", "epsilon": _DEEP}),
    ("/analysts/revoke", {"dataset": "\0", "analyst": "\0"}),
    ("/what-if", {"question": "\0"}),
    ("/what-if", {"question": "dataset=%00&epsilon=0.5"}),
    ("/what-if", {"question": "dataset={dataset}&epsilon=1e400", "key": "\0"}),
    ("/what-if", {"question": "dataset={dataset}&epsilon=0.1", "key": "\0"}),
    ("/budget", {"epsilon": "1e400", "delta": "\0", "sure": "yes"}),
    ("/budget/renew", {"replaces": "1e400", "sure": "yes"}),
    ("/keys", {"scopes": "\0", "days": "1e400"}),
    ("/keys/revoke", {"key": "\0"}),
    ("/published/withdraw", {"name": "\0"}),
    ("/published/withdraw", {"name": "no_such_table"}),
    ("/ledger/verify", {"keys": "no key, and \0"}),
    ("/datasets/new", {"kind": "nonsense"}),
    ("/datasets/new", {"kind": "vectors", "dim": _DEEP}),
    ("/datasets/new", {"kind": "points", "manifold": "sphere", "dim": "2", "center": _DEEP}),
    ("/datasets/new", {"kind": "labelled", "features": "a", "label": "b", "classes": "0,1", "mean": _DEEP}),
    ("/datasets/new", {"kind": "json", "schema": _DEEP}),
    ("/datasets/new", {"kind": "json", "schema": "\0"}),
)


@pytest.fixture
def served(server: Server) -> tuple[Server, Caller, str, Desk]:
    """An owner of one dataset, on each database."""
    owner = owner_called(server, "Patient")
    return server, owner, dataset_called(owner, "Some rows"), Desk(server, owner.key)


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_whatever_is_sent_gets_an_answer_in_words(served: tuple[Server, Caller, str, Desk]) -> None:
    server, owner, dataset, desk = served
    begun = len(server.log.read_text())
    answers = {path: desk.get(path.replace("{dataset}", dataset)) for path in _VISITS}
    for path, form in _FORMS:
        sent = {name: value.replace("{dataset}", dataset) for name, value in form.items()}
        answers[f"{path} {form}"[:200]] = desk.post(path, sent)
    # Multipart that is none, by whoever.
    for head, body in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=y", b"x"),
        (
            "multipart/form-data; boundary=y",
            b"".join(
                b'--y\r\nContent-Disposition: form-data; name="%d"\r\n\r\n\r\n' % i for i in range(1100)
            ),
        ),
    ):
        content: Any = {"content": body, "headers": {"content-type": head}}
        answers[f"sign-in {head} {len(body)}"] = httpx.post(f"{server.url}/dashboard/sign-in", **content)
    for sent, answer in answers.items():
        assert answer.status_code < 500, (sent, answer.status_code)
        assert "<main" in answer.text, sent
        assert "Content-Security-Policy" in answer.headers, sent
    as_admin = Desk(server, ADMIN_KEY)
    assert as_admin.get("/admin?after=%00").status_code == 422
    assert owner.budget()["queries"] == 0
    assert "a page failed" not in server.log.read_text()[begun:]


def test_streams_of_an_owner_are_few(served: tuple[Server, Caller, str, Desk]) -> None:
    server, owner, _, desk = served
    cookies = {"privest-session": desk.cookie}
    with (
        httpx.Client(base_url=server.url, cookies=cookies, timeout=HANG_GUARD) as client,
        ExitStack() as stack,
    ):
        opened = [
            stack.enter_context(client.stream("GET", "/dashboard/events")).status_code for _ in range(14)
        ]
        assert opened == [200] * 12 + [429] * 2
    other = owner_called(server, "Another")
    assert Desk(server, other.key).get("").status_code == 200
    assert owner.budget()["queries"] == 0


def test_a_stream_without_a_session_ends_for_good(site: Server) -> None:
    answer = httpx.get(f"{site.url}/dashboard/events", headers={"Accept": "text/event-stream"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_one_ledger_is_verified_once_at_a_time(site: Server, anna: Hospital) -> None:
    import threading

    desk, statuses = Desk(site, anna.owner.key), list[int]()
    token = desk.token
    threads = [
        threading.Thread(target=lambda: statuses.append(desk.post("/ledger/verify", token=token).status_code))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}
    assert 200 in statuses


# Cookies


@pytest.mark.costly
def test_a_proxy_that_hides_its_name_changes_nothing_about_the_cookie(site: Server) -> None:
    owner = owner_called(site, "Behind a proxy")
    outside = {"Origin": "https://data.example", "Sec-Fetch-Site": "same-origin"}
    entered = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": owner.key}, headers=outside)
    assert entered.headers["set-cookie"].startswith("__Host-privest-session=")
    assert "Secure" in entered.headers["set-cookie"]
    held = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(f"{site.url}/dashboard", headers=held).status_code == 200


def test_old_browsers_say_by_their_origin_where_a_form_is_from(site: Server) -> None:
    owner = owner_called(site, "Lured")
    for origin, status in (("https://evil.example", 403), (site.url, 303)):
        entered = httpx.post(
            f"{site.url}/dashboard/sign-in", data={"key": owner.key}, headers={"Origin": origin}
        )
        assert entered.status_code == status


def test_a_new_session_takes_the_place_of_the_one_before(site: Server) -> None:
    owner = owner_called(site, "Twice")
    first = Desk(site, owner.key)
    held = {"privest-session": first.cookie}
    again = httpx.post(f"{site.url}/dashboard/sign-in", data={"key": owner.key}, cookies=held)
    assert again.status_code == 303
    assert httpx.get(f"{site.url}/dashboard", cookies=held).status_code == 303


# Pages that lag behind


def test_a_change_before_the_page_listened_is_shown(site: Server, visit: Visit) -> None:
    owner = owner_called(site, "Early")
    visitor = visit(site)
    visitor.enter(owner.key)
    page = visitor.page

    def frozen_meanwhile(route: Any) -> None:
        assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
        route.continue_()

    page.route("**/dashboard.js*", frozen_meanwhile)
    visitor.open("/dashboard")
    expect(page.get_by_text("Your budget is frozen.")).to_be_visible()
    expect(page.get_by_role("button", name="End the freeze")).to_be_visible()


@pytest.mark.costly
def test_a_part_in_use_is_renewed_once_it_is_left(site: Server, visit: Visit) -> None:
    owner = owner_called(site, "Reading")
    visitor = visit(site)
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    page = visitor.page
    expect(page.locator("#live")).to_be_visible()
    page.locator("table.entries a").first.focus()
    assert owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True}).status_code == 200
    expect(page.get_by_role("button", name="End the freeze")).to_be_visible()
    assert page.get_by_text("Your budget is frozen.").count() == 0  # what is read stays as it is
    page.evaluate("document.activeElement.blur()")
    expect(page.get_by_text("Your budget is frozen.")).to_be_visible()


def test_no_page_that_answers_a_form_asks_again_by_itself(site: Server, visit: Visit) -> None:
    owner = owner_called(site, "Once")
    dataset = dataset_called(owner, "Rows of once")
    visitor = visit(site)
    visitor.enter(owner.key)
    visitor.open("/dashboard/ledger")
    page, sent = visitor.page, list[str]()
    page.on("request", lambda request: sent.append(f"{request.method} {request.url}"))
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("The whole ledger is sound")).to_be_visible()
    assert page.locator("body[data-events]").count() == 0
    answered(owner, dataset)
    assert [each for each in sent if each.startswith("POST")] == [f"POST {site.url}/dashboard/ledger/verify"]


def test_pages_that_nobody_looks_at_hold_no_connection(site: Server, visit: Visit) -> None:
    owner = owner_called(site, "Many tabs")
    visitor = visit(site)
    visitor.enter(owner.key)
    visitor.open("/dashboard")
    page = visitor.page
    expect(page.locator("#live")).to_be_visible()
    turn = "Object.defineProperty(document, 'visibilityState', {value: '%s', configurable: true});"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(turn % "hidden")
    expect(page.locator("#live")).to_be_hidden()
    page.evaluate(turn % "visible")
    expect(page.locator("#live")).to_be_visible()


# What is told


def test_a_cap_on_the_rows_is_told_before_it_refuses(site: Server) -> None:
    owner = owner_called(site, "Capped")
    dataset = dataset_called(owner, "Capped rows")
    cap = {"epsilon": 0.05, "delta": 1e-6}
    assert owner.put(f"/v1/datasets/{dataset}/cap", json=cap).status_code == 200
    told = Desk(site, owner.key).get(f"/what-if?dataset={dataset}&epsilon=0.5&delta=1e-6").text
    assert "by the cap on this dataset" in told
    assert "The budget covers this" not in told


def test_false_sums_show_at_the_entry(site: Server) -> None:
    owner = owner_called(site, "False sums")
    dataset = dataset_called(owner, "Rows of false sums")
    answered(owner, dataset)
    desk = Desk(site, owner.key)
    assert "✗" not in desk.get("/ledger/2").text
    with books(site) as database, database.write() as session:
        (kept,) = session.execute(
            text("SELECT sql FROM sqlite_master WHERE name = 'entries_no_update'")
        ).one()
        session.execute(text("DROP TRIGGER entries_no_update"))
        session.execute(
            text(
                "UPDATE entries SET mu_squared_spent = 0 WHERE seq = 2 AND account_id IN "
                "(SELECT id FROM accounts WHERE owner_id = :owner AND scope = 'owner')"
            ),
            {"owner": owner.id},
        )
        session.execute(text(kept))
    page = desk.get("/ledger/2").text
    assert re.search(
        r"✗.{1,200}The sums that each of them bears are right.{1,40}does not hold", page, re.DOTALL
    )


def test_an_owner_with_many_names_for_the_same_rows_waits_no_longer(site: Server) -> None:
    owner = owner_called(site, "Many names")
    for i in range(12):
        dataset = dataset_called(owner, f"{i} " + "W" * 190)
    with books(site) as database, database.write() as session:  # as if each were declared to hold them
        session.execute(
            text(
                "UPDATE datasets SET lineage = (SELECT lineage FROM datasets WHERE id = :one) "
                "WHERE owner_id = :owner"
            ),
            {"one": dataset, "owner": owner.id},
        )
    answered(owner, dataset)
    desk = Desk(site, owner.key)
    before = cpu_seconds(site)
    page = desk.get("")
    assert "and 11 others with the same rows" in page.text
    assert cpu_seconds(site) - before < 2


def test_an_analyst_is_told_by_name_once_granted(site: Server) -> None:
    owner, analyst = owner_called(site, "Naming"), analyst_called(site, "Noor <b>Haddad</b>")
    dataset = dataset_called(owner, "Named rows")
    desk = Desk(site, owner.key)
    granted = desk.post("/analysts", {"dataset": dataset, "analyst": analyst.id})
    assert granted.status_code == 303
    told = until(lambda: desk.get("/analysts").text)
    assert "Noor &lt;b&gt;Haddad&lt;/b&gt;" in told
    assert "<b>Haddad" not in told
