"""The forms for an e-mail address and an object store: what they refuse, and that notices arrive there."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Page, expect

from testing.browser import Visitor
from testing.mailbox import mailbox
from testing.scenes import analyst_called, owner_called
from testing.server import Server, until

Visit = Callable[..., Visitor]


class _Store(ThreadingHTTPServer):
    """A web server that keeps what is put there."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Putting)
        self.kept = dict[str, str]()


class _Putting(BaseHTTPRequestHandler):
    server: _Store

    def do_PUT(self) -> None:
        self.server.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(201)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is told."""


@pytest.fixture
def store() -> Iterator[_Store]:
    """An object store on this machine."""
    with _Store() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def _add(page: Page) -> None:
    page.get_by_role("button", name="Add it").locator("visible=true").click()


def _tried(visitor: Visitor, kind: str) -> None:
    """Have a test sent, and see on the page that it arrived."""
    page = visitor.page
    row = page.get_by_role("row").filter(has_text=kind)
    row.get_by_role("button", name="Try ").click()
    until(lambda: _fares(visitor, kind))
    expect(row).to_contain_text("arrives last")


def _fares(visitor: Visitor, kind: str) -> bool:
    visitor.open("/dashboard/notices")
    return "arrives" in visitor.page.get_by_role("row").filter(has_text=kind).inner_text()


@pytest.mark.costly
def test_an_e_mail_address_and_an_object_store_are_added_by_hand(
    tmp_path: Path, new_database: Callable[[str], str], visit: Visit, store: _Store
) -> None:
    with mailbox() as (url, got):
        site = Server(tmp_path, new_database("sqlite"), mail_server=url)
        try:
            owner, visitor = owner_called(site, "Told"), visit(site)
            config = {"kind": "object-store", "url": f"http://127.0.0.1:{store.server_port}/records"}
            made = {"name": "records", **config, "options": {"allow_http": True}}
            assert site.admin.post("/v1/connections", json=made).status_code == 201
            page = visitor.page
            visitor.enter(owner.key)
            visitor.open("/dashboard/notices")
            # Who has no connection is offered none.
            expect(page.get_by_text("An object store")).to_have_count(0)
            assert site.admin.put(f"/v1/connections/records/owners/{owner.id}").status_code == 204
            _mail(visitor)
            told = "".join(got)
            assert "dpo@example.org" in told
            assert "Subject: Privest: test" in told
            _store(visitor)
            # As a witness it gets the ends of all chains, too.
            kept = until(lambda: len(store.kept) > 1 and dict(store.kept))
            sent = {path: json.loads(body) for path, body in kept.items()}
            assert sorted(each["type"] for each in sent.values()) == ["ledger.heads", "test"]
            assert all(path.startswith("/records/") and each["id"] in path for path, each in sent.items())
            mail = page.get_by_role("row").filter(has_text="E-mail")
            expect(mail).to_contain_text("a new window opens")
            expect(mail).not_to_contain_text("a question waits")
            expect(page.get_by_role("row").filter(has_text="Object store")).to_contain_text("every day")
            # Where a channel leads is nowhere on the page.
            assert "dpo@example.org" not in page.content()
            visitor.check_accessibility()
            visitor.picture("notices-added")
        finally:
            site.stop()


@pytest.mark.costly
def test_an_analyst_has_a_program_told_when_its_questions_end(site: Server, visit: Visit) -> None:
    analyst, visitor = analyst_called(site, "Told of ends"), visit(site)
    page = visitor.page
    visitor.enter(analyst.key)
    visitor.open("/dashboard/answers")
    page.get_by_role("link", name="told when one ends").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Alerts")
    for unknown in ("An e-mail address", "An object store", "Be a witness", "Tell it when", "Budget"):
        expect(page.get_by_text(unknown)).to_have_count(0)
    visitor.check_accessibility()
    visitor.picture("analyst-alerts-empty")
    visitor.expects(422)
    page.get_by_text("A webhook: a program of yours is told").click()
    page.get_by_label("Address").fill("https://me:secret@example.org/")
    _add(page)
    expect(page.locator("#why-url")).to_contain_text("has no name or password in it")
    page.get_by_label("Address").fill("https://127.0.0.1/hook")
    _add(page)
    expect(page.get_by_role("status")).to_contain_text("whsec_")
    visitor.open("/dashboard/notices")
    row = page.get_by_role("row").filter(has_text="Webhook")
    expect(row).to_contain_text("a question of mine ends")
    row.get_by_role("button", name="Try ").click()
    path = f"/v1/analysts/{analyst.id}/channels"
    until(lambda: analyst.get(path).json()["channels"][0]["failures"])
    visitor.open("/dashboard/notices")
    expect(row).to_contain_text("Its address is not allowed")
    visitor.check_accessibility()
    visitor.picture("analyst-alerts")
    row.get_by_text("Remove").first.click()
    row.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("Nowhere yet.")).to_be_visible()


def _mail(visitor: Visitor) -> None:
    """Add an address, after one that no mail could reach."""
    page = visitor.page
    visitor.expects(422)
    visitor.open("/dashboard/notices")
    page.get_by_text("An e-mail address").click()
    page.get_by_label("Address").locator("visible=true").fill("o'neill@example.org")
    page.get_by_label("a question waits for my approval").locator("visible=true").uncheck()
    _add(page)
    expect(page.locator("#why-to")).to_have_text("Must be an e-mail address.")
    field = page.get_by_label("Address").locator("visible=true")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("a question waits for my approval").locator("visible=true")).not_to_be_checked()
    visitor.check_accessibility()
    field.fill("dpo@example.org")
    _add(page)
    expect(page.get_by_role("status")).to_contain_text("E-mail added.")
    _tried(visitor, "E-mail")


def _store(visitor: Visitor) -> None:
    """Add the connection as a witness alone, after a form that would have nothing sent there."""
    page = visitor.page
    page.get_by_text("An object store").click()
    events = page.locator("form:visible input[name=events]")
    for box in events.all():
        box.uncheck()
    _add(page)
    expect(page.locator("#why-events")).to_have_text("Choose something to be sent.")
    expect(page.get_by_label("Connection").locator("visible=true")).to_have_value("records")
    page.get_by_label("Be a witness").locator("visible=true").select_option("day")
    _add(page)
    expect(page.get_by_role("status")).to_contain_text("Object store added.")
    _tried(visitor, "Object store")
