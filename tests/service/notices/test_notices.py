"""Notices: signed, in order, once, whatever the other end does; and only to where they may go."""

import json
import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import select

from privest_service.database import Database, now
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge, Limits
from privest_service.notices import deliverer, sending, service
from privest_service.notices.deliverer import Deliverer
from privest_service.notices.models import Channel, Delivery
from privest_service.notices.schemas import NEW_CHANNEL, CreatedChannel
from privest_service.notices.sending import NotSentError
from privest_service.settings import Settings
from testing import ROOT
from testing.books import Books
from testing.hostile import IN_BUFFERS
from testing.mailbox import mailbox
from testing.server import ADMIN_KEY, HANG_GUARD, Server, problem, until


class Receiver(ThreadingHTTPServer):
    """A webhook's other end: answers as it was told, then with 204, and keeps what it got."""

    daemon_threads = True

    def __init__(self, *answers: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.got = list(answers), list[tuple[dict[str, str], str]]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook?a=1"

    def __enter__(self) -> "Receiver":
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def notices(self) -> list[dict[str, Any]]:
        """The bodies that came."""
        return [json.loads(body) for _, body in self.got]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        assert self.path == "/hook?a=1"
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is told."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings under which this machine may be reached."""
    (tmp_path / "secret").write_bytes(b"s" * 32)
    (tmp_path / "notices").mkdir()
    return Settings(
        admin_key=ADMIN_KEY,  # pyright: ignore[reportArgumentType]
        data_dir=tmp_path,
        secret_file=tmp_path / "secret",
        notice_networks=["127.0.0.0/8"],  # pyright: ignore[reportArgumentType]
        notice_dir=tmp_path / "notices",
    )


def channel(books: Books, settings: Settings, **told: Any) -> CreatedChannel:
    """A channel of an owner."""
    with books.database.write() as session:
        return service.add(session, books.owner, NEW_CHANNEL.validate_python(told), settings.secret)


def notify(books: Books, number: int) -> None:
    """One notice, in a transaction of its own."""
    with books.database.write() as session:
        service.notify(session, books.owner, "budget.renewed", {"window": number})


def nowhere(*_: object) -> None:
    """No object store."""
    raise NotSentError


def view(books: Books) -> Any:
    """The first channel of an owner."""
    with books.database.read() as session:
        return service.channels(session, books.owner)[0]


@contextmanager
def later(seconds: float, *modules: Any) -> Iterator[None]:
    """Have it be later."""
    with pytest.MonkeyPatch.context() as patched:
        for module in modules or (service,):
            patched.setattr(module, "now", lambda: now() + timedelta(seconds=seconds))
        yield


def documented() -> Callable[..., bool]:
    """The recipe by which a receiver checks a webhook, as docs/notices.md has it."""
    text = (ROOT / "docs/notices.md").read_text()
    (recipe,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "def genuine" in block]
    found: dict[str, Any] = {}
    exec(recipe, found)  # noqa: S102 - our own page
    return found["genuine"]


def test_a_webhook_is_told_genuine_by_the_recipe_and_forged_or_replayed_is_not(
    database: Database, settings: Settings
) -> None:
    books = Books(database)
    with Receiver() as receiver:
        made = channel(books, settings, kind="webhook", url=receiver.url)
        notify(books, 2)
        assert Deliverer(database, settings, nowhere).deliver_one()
    ((headers, body),) = receiver.got
    told = json.loads(body)
    assert (told["type"], told["owner"], told["facts"]) == ("budget.renewed", books.owner, {"window": 2})
    assert told["id"] == headers["webhook-id"]
    secret, seen = str(made.secret), set[str]()
    genuine = documented()
    other = "whsec_" + b64encode(b"o" * 32).decode()
    for change in (
        {"body": body.replace('"window":2', '"window":3').encode()},
        {"headers": headers | {"webhook-id": "ntc_other"}},
        {"headers": headers | {"webhook-timestamp": str(int(time.time()) + 1)}},
        {"headers": headers | {"webhook-signature": "v1,AAAA"}},
        {"headers": {}},
        {"secret": other},
    ):
        given = {"headers": headers, "body": body.encode(), "secret": secret} | change
        assert not genuine(**given, seen=set())
    old = headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 3600)}
    assert not genuine(old, body.encode(), secret, seen)
    assert genuine(headers, body.encode(), secret, seen)
    assert not genuine(headers, body.encode(), secret, seen)  # once more
    with database.read() as session:
        kept = session.scalars(select(Channel)).one()
        assert not any(receiver.url in str(value) or secret in str(value) for value in vars(kept).values())


def test_what_fails_for_a_day_is_tried_more_and_more_rarely_and_arrives_in_order(
    database: Database, settings: Settings
) -> None:
    books, passed, pauses = Books(database), 0.0, list[float]()
    with Receiver(*[500] * 5, 301, *[503] * 25) as receiver:
        channel(books, settings, kind="webhook", url=receiver.url)
        for number in (2, 3):
            notify(books, number)
        errors = set[str]()
        while passed < 86_400 and receiver.answers:
            with later(passed):
                assert Deliverer(database, settings, nowhere).deliver_one()
                told = view(books)
                errors.add(told.last_error)
                assert not Deliverer(database, settings, nowhere).deliver_one()
                pauses.append((told.next_attempt - service.now()).total_seconds())
            passed += pauses[-1] + 1
        assert errors == {
            "It answered 500.",
            "It answered 301: redirects are not followed.",
            "It answered 503.",
        }
        assert [round(pause) for pause in pauses[:4]] == pytest.approx([15, 30, 60, 120], abs=5)
        assert max(pauses) <= 3600
        assert {notice["facts"]["window"] for notice in receiver.notices} == {2}
        assert len({notice["id"] for notice in receiver.notices}) == 1
        receiver.answers.clear()
        with later(passed):
            while Deliverer(database, settings, nowhere).deliver_one():
                pass
        assert [notice["facts"]["window"] for notice in receiver.notices[-2:]] == [2, 3]
    told = view(books)
    assert (told.waiting, told.failures, told.last_error, told.given_up) == (0, 0, None, 0)


def test_what_nobody_takes_is_given_up_and_bounded(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(database)
    monkeypatch.setattr(service, "_MOST_WAITING", 3)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    channel(books, settings, kind="webhook", url=f"http://127.0.0.1:{port}/")
    for number in range(5):
        notify(books, number)
    assert (view(books).waiting, view(books).given_up) == (3, 2)
    with later(86_400 * 3 + 60):
        assert Deliverer(database, settings, nowhere).deliver_one()
    told = view(books)
    assert (told.waiting, told.given_up, told.last_error) == (0, 5, "It could not be reached.")
    # A clock that was ahead by years delays nothing.
    with later(86_400 * 3000):
        notify(books, 1)
        assert Deliverer(database, settings, nowhere).deliver_one()
    notify(books, 2)
    assert Deliverer(database, settings, nowhere).deliver_one()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_end_that_hangs_or_drips_is_cut_off(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(StreamRequestHandler):
        def handle(self) -> None:
            try:
                while True:
                    if drips:
                        self.wfile.write(b"H")
                    time.sleep(0.05)
            except OSError:
                ended.append(1)

    drips, ended, books = False, list[int](), Books(database)
    monkeypatch.setattr(sending, "_SILENCE", 0.5)
    monkeypatch.setattr(sending, "_LONGEST", 1.0)
    with ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        channel(books, settings, kind="webhook", url=f"http://127.0.0.1:{server.server_address[1]}/")
        notify(books, 1)
        assert Deliverer(database, settings, nowhere).deliver_one()
        assert view(books).last_error == "It did not answer in time."
        drips = True
        with later(60):
            assert Deliverer(database, settings, nowhere).deliver_one()
        assert view(books).failures == 2
        until(lambda: ended)
        server.shutdown()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_name_that_nobody_looks_up_holds_nobody_up(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, asked, ended = Books(database), list[str](), Event()

    def silent(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        ended.wait(HANG_GUARD)
        raise socket.gaierror

    monkeypatch.setattr(sending, "_SILENCE", 0.1)
    monkeypatch.setattr(sending.socket, "getaddrinfo", silent)
    channel(books, settings, kind="webhook", url="https://silent.example/")
    notify(books, 1)
    try:
        assert Deliverer(database, settings, nowhere).deliver_one()
    finally:
        ended.set()
    assert (asked, view(books).last_error) == (["silent.example"], "It did not answer in time.")


ADDRESSES = [
    ("https", "93.184.216.34", True),
    ("http", "93.184.216.34", False),
    ("https", "2606:2800:220:1:248:1893:25c8:1946", True),
    ("http", "10.1.2.3", True),  # allowed below
    ("https", "10.2.2.3", False),
    ("https", "127.0.0.1", False),
    ("https", "169.254.169.254", False),
    ("https", "192.168.0.1", False),
    ("https", "0.0.0.0", False),  # noqa: S104 - refused
    ("https", "224.0.0.1", False),
    ("https", "100.64.0.1", False),
    ("https", "::1", False),
    ("https", "fe80::1", False),
    ("https", "fd00::1", False),
    ("https", "::ffff:127.0.0.1", False),
    ("https", "2002:7f00:1::", False),
    ("https", "64:ff9b::7f00:1", False),
    ("https", "64:ff9b::5db8:d822", True),
    ("https", "64:ff9b:1::7f00:1", False),  # a translator's of one's own network
    ("https", "::7f00:1", False),
    ("https", "::ffff:0:7f00:1", False),
    ("https", "fec0::1", False),
]


@pytest.mark.parametrize(("scheme", "address", "allowed"), ADDRESSES)
def test_webhooks_reach_public_addresses_and_what_is_allowed(
    scheme: str, address: str, allowed: bool
) -> None:
    networks = [ip_network("10.1.0.0/16")]
    with ExitStack() as stack:
        if not allowed:
            stack.enter_context(pytest.raises(NotSentError, match="not allowed"))
        sending._require_allowed(scheme, [address], networks)
    with pytest.raises(NotSentError):  # one of several that is not allowed is enough
        sending._require_allowed(scheme, [address, "127.0.0.1"], networks)


def test_an_attempt_that_was_killed_is_made_again_under_the_same_id(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(database)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with Receiver() as receiver:
        channel(books, settings, kind="webhook", url=receiver.url)
        notify(books, 1)
        with monkeypatch.context() as patched:
            patched.setattr(deliverer.service, "succeeded", killed)
            with pytest.raises(KeyboardInterrupt):
                Deliverer(database, settings, nowhere).deliver_one()
        assert not Deliverer(database, settings, nowhere).deliver_one()  # leased
        with later(service.LEASE.total_seconds() + 1):
            assert Deliverer(database, settings, nowhere).deliver_one()
            assert not Deliverer(database, settings, nowhere).deliver_one()
    first, second = receiver.notices
    assert first == second


def test_several_replicas_deliver_each_notice_once_and_in_order(
    database: Database, database_url: str, settings: Settings
) -> None:
    books = Books(database)
    others = [Database(database_url, signer=database._info["signer"]) for _ in range(3)]
    with Receiver() as receiver:
        channel(books, settings, kind="webhook", url=receiver.url)
        for number in range(12):
            notify(books, number)

        def deliver(each: Database) -> None:
            while view(books).waiting:
                Deliverer(each, settings, nowhere).deliver_one()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(deliver, others))
    for each in others:
        each.close()
    assert [notice["facts"]["window"] for notice in receiver.notices] == list(range(12))


def test_a_channel_on_which_much_waits_leaves_others_their_turn(
    database: Database, settings: Settings
) -> None:
    """One that had something waiting was tried before all others whose ids came later, for ever."""
    found = [(channel(books, settings, kind="file", name="n").id, books) for books in [Books(database)] * 2]
    (busy, _), (other, books) = sorted(found, key=lambda each: each[0])
    for number in range(5):
        notify(books, number)
    tried = list[str]()
    for _ in range(4):
        with database.write() as session:
            service.test(session, books.owner, busy)
        with database.write() as session:
            attempt = service.claim(session)
            assert attempt is not None
            tried.append(attempt.channel_id)
            service.succeeded(session, attempt)
    assert tried.count(other) == 2


def test_what_fails_for_a_reason_of_our_own_is_tried_more_rarely_too(
    database: Database, settings: Settings
) -> None:
    """It was tried every two minutes for ever, and the owner was told of no failure."""
    books = Books(database)
    channel(books, settings, kind="object-store", connection="store")
    notify(books, 1)

    def broken(*_: object) -> None:
        raise RuntimeError

    assert Deliverer(database, settings, broken).deliver_one()
    assert (view(books).failures, view(books).last_error) == (1, "It could not be delivered.")


def test_files_are_added_to_and_links_are_not_followed(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    books = Books(database)
    channel(books, settings, kind="file", name="witness")
    for number in (1, 2):
        notify(books, number)
        assert Deliverer(database, settings, nowhere).deliver_one()
    file = tmp_path / "notices" / books.owner / "witness.jsonl"
    assert [json.loads(line)["facts"] for line in file.read_text().splitlines()] == [
        {"window": 1},
        {"window": 2},
    ]
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    notify(books, 3)
    assert Deliverer(database, settings, nowhere).deliver_one()
    assert view(books).last_error == "It could not be reached."
    assert (tmp_path / "secret").read_bytes() == b"s" * 32


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_e_mail_has_the_notice_in_words_and_as_it_is(database: Database, settings: Settings) -> None:
    books = Books(database)
    with mailbox() as (url, got):
        given = settings.model_dump() | {"mail_server": url, "notice_networks": ()}
        mailing = Settings.model_validate(given)
        channel(books, settings, kind="mail", to="dpo@example.org")
        notify(books, 7)
        assert Deliverer(database, mailing, nowhere).deliver_one()
        text = "".join(got)
        for expected in ("dpo@example.org", "Subject: Privest: budget.renewed", "window: 7", "notice.json"):
            assert expected in text
        assert view(books).last_error is None
        with_password = mailing.model_copy(
            update={"mail_server": type(mailing.mail_server)(url.replace("//", "//me:secret@"))}
        )
        notify(books, 8)
        assert Deliverer(database, with_password, nowhere).deliver_one()  # no password in clear
        assert "secret" not in "".join(got)
        assert view(books).last_error == "The mail server did not take it."


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_mail_server_that_never_ends_its_reply_is_broken_off(
    database: Database, settings: Settings
) -> None:
    books, sent = Books(database), list[int]()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            there, _ = listening.accept()
            count = 0
            with there, suppress(OSError):
                while count < 2**32:
                    there.sendall(b"220-more follows\r\n" * 4096)
                    count += 18 * 4096
            sent.append(count)

        talking = Thread(target=talk)
        talking.start()
        url = f"smtp://127.0.0.1:{listening.getsockname()[1]}"
        mailing = Settings.model_validate(settings.model_dump() | {"mail_server": url, "notice_networks": ()})
        channel(books, settings, kind="mail", to="dpo@example.org")
        notify(books, 7)
        assert Deliverer(database, mailing, nowhere).deliver_one()
        talking.join()
    assert view(books).last_error == "The mail server did not take it."
    assert sent[0] < IN_BUFFERS


# What is told


def test_marks_freezes_and_windows_are_told_with_what_they_tell_of(
    database: Database, settings: Settings
) -> None:
    books = Books(database)
    channel(books, settings, kind="file", name="all")
    channel(books, settings, kind="file", name="freezes", events=["budget.frozen"])
    with database.write() as session:
        number = ledger.owner_account(session, books.owner).id
        ledger.raise_limits(session, number, Limits("basic", 1000, 1000, 0, 0))
    reserved = [books.reserve({number: Charge(amount, 1, 0, 0)}) for amount in (799, 1, 10, 189)]
    assert len(reserved) == 4
    with database.write() as session:
        ledger.set_frozen(session, books.owner, True, by="admin")
        ledger.open_window(session, books.owner)
    with database.read() as session:
        found = session.execute(select(Delivery.body).order_by(Delivery.created_at, Delivery.id)).scalars()
        told = [(notice["type"], notice["facts"]) for notice in map(json.loads, found)]
    frozen = ("budget.frozen", {"frozen_by": "admin"})
    assert told == [
        ("budget.spent", {"percent": 80, "window": 1, "spent": 0.8}),
        ("budget.spent", {"percent": 95, "window": 1, "spent": 0.999}),
        frozen,
        frozen,
        ("budget.renewed", {"window": 2}),
    ]


# Over HTTP


@pytest.fixture(scope="session")
def notice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def notifying(shared_server: Callable[..., Server], notice_folder: Path) -> Server:
    """A service that sends notices to this machine, and writes them into files."""
    return shared_server(notice_networks="127.0.0.0/8", notice_dir=notice_folder)


def test_an_owner_is_told_that_its_own_questions_ended_and_no_more(notifying: Server) -> None:
    owner, analyst = notifying.owner(), notifying.analyst()
    dataset = owner.dataset()
    assert owner.grant(dataset, analyst).status_code == 200
    with Receiver() as receiver:
        ended = {"kind": "webhook", "url": receiver.url, "events": ["question.ended"]}
        made = owner.post(f"/v1/owners/{owner.id}/channels", json=ended).json()
        assert analyst.estimate(dataset).json()["state"] == "committed"  # of which the owner is told nothing
        first = owner.estimate(dataset).json()
        second = owner.estimate(dataset, epsilon=0.2, reuse=False).json()
        until(lambda: len(receiver.got) == 2)
        for (headers, body), notice, job in zip(receiver.got, receiver.notices, (first, second), strict=True):
            facts = {"question": job["id"], "estimate": "frechet-mean", "state": "committed"}
            assert (notice["type"], notice["facts"]) == ("question.ended", facts)
            assert documented()(headers, body.encode(), made["secret"], set())
            assert set(notice) == {"id", "type", "owner", "at", "facts"}


def test_an_analyst_is_told_that_its_own_questions_ended_and_no_more(notifying: Server) -> None:
    owner, analyst, other = notifying.owner(), notifying.analyst(), notifying.analyst()
    free, asked_first = owner.dataset(), owner.dataset()
    for caller in (analyst, other):
        assert owner.grant(free, caller).status_code == 200
        assert owner.grant(asked_first, caller, approval="required").status_code == 200
    path = f"/v1/analysts/{analyst.id}/channels"
    with Receiver(500) as receiver:
        made = analyst.post(path, json={"kind": "webhook", "url": receiver.url})
        assert made.status_code == 201
        assert (made.json()["events"], made.json()["heads"]) == (["question.ended"], None)
        assert owner.estimate(free).status_code == 200
        assert other.estimate(free).status_code == 200
        first = analyst.estimate(free).json()
        second = analyst.estimate(asked_first, tag="a second").json()
        denied = owner.post(f"/v1/jobs/{second['id']}/decision", json={"decision": "deny", "reason": "no"})
        assert denied.status_code == 200
        until(lambda: analyst.get(path).json()["channels"][0]["failures"])
        assert analyst.post(f"{path}/{made.json()['id']}/test").status_code == 204  # which tries now
        until(lambda: len(receiver.got) == 4)  # the first of them twice
        assert [notice["type"] for notice in receiver.notices[1:]] == ["question.ended"] * 2 + ["test"]
        for (headers, body), notice, job, state in zip(
            receiver.got[1:], receiver.notices[1:], (first, second), ("committed", "denied"), strict=False
        ):
            facts = {"question": job["id"], "estimate": "frechet-mean", "state": state}
            assert notice["facts"] == facts | ({"tag": "a second"} if job is second else {})
            assert set(notice) == {"id", "type", "analyst", "at", "facts"}
            assert notice["analyst"] == analyst.id
            assert documented()(headers, body.encode(), made.json()["secret"], set())


def test_channels_of_analysts_over_http(server: Server) -> None:
    owner, analyst, other = server.owner(), server.analyst(), server.analyst()
    path, away = f"/v1/analysts/{analyst.id}/channels", {"kind": "webhook", "url": "https://192.0.2.1/"}
    made = analyst.post(path, json=away).json()["id"]
    for stranger, status in ((other, 404), (owner, 403)):
        assert stranger.get(path).status_code == status
        assert stranger.post(path, json=away).status_code == status
        assert stranger.delete(f"{path}/{made}").status_code == status
        assert stranger.post(f"{path}/{made}/test").status_code == status
    # What is one's own leads to nobody else's.
    assert other.delete(f"/v1/analysts/{other.id}/channels/{made}").status_code == 404
    assert owner.post(f"/v1/owners/{owner.id}/channels/{made}/test").status_code == 404
    assert owner.post(f"/v1/analysts/{analyst.id}/channels", json=away).status_code == 403
    for wrong in (
        {"kind": "file", "name": "x"},
        {"kind": "mail", "to": "dpo@example.org"},
        away | {"heads": "day"},
        away | {"events": ["budget.spent"]},
        away | {"url": "https://me:secret@example.org"},
        away | {"url": "ftp://example.org"},
    ):
        problem(analyst.post(path, json=wrong), 422, "invalid")
    with Receiver() as receiver:  # this machine is no public address, and nobody allowed it
        assert analyst.delete(f"{path}/{made}").status_code == 204
        local = analyst.post(path, json=away | {"url": receiver.url}).json()["id"]
        assert analyst.post(f"{path}/{local}/test").status_code == 204
        told = until(lambda: (found := analyst.get(path).json()["channels"][0])["failures"] and found)
        assert (told["last_error"], receiver.got) == (
            "Its address is not allowed: only https to public addresses is.",
            [],
        )
    assert server.admin.delete(f"{path}/{local}").status_code == 204
    acts = server.admin.get("/v1/acts", params={"kind": "channel.removed"}).json()["acts"][:2]
    assert [(act["subject"], act["details"], act["role"]) for act in acts] == [
        (local, {"analyst": analyst.id}, "admin"),
        (made, {"analyst": analyst.id}, "analyst"),
    ]
    assert owner.get("/v1/acts", params={"kind": "channel.made"}).json()["acts"] == []


def test_channels_over_http(notifying: Server, notice_folder: Path) -> None:
    owner, other, analyst = notifying.owner(1.0, 1e-4, "basic"), notifying.owner(), notifying.analyst()
    path = f"/v1/owners/{owner.id}/channels"
    with Receiver(500) as receiver:
        events = ["budget.spent", "question.requested"]
        made = owner.post(path, json={"kind": "webhook", "url": receiver.url, "events": events}).json()
        assert made["secret"].startswith("whsec_")
        for stranger, status in ((other, 404), (analyst, 403)):
            assert stranger.get(path).status_code == status
            assert stranger.post(path, json={"kind": "file", "name": "x"}).status_code == status
            assert stranger.delete(f"{path}/{made['id']}").status_code == status
            assert stranger.post(f"{path}/{made['id']}/test").status_code == status
        assert other.delete(f"/v1/owners/{other.id}/channels/{made['id']}").status_code == 404
        assert owner.estimate(owner.dataset(), epsilon=0.85, delta=1e-6).status_code == 200
        told = until(lambda: (found := owner.get(path).json()["channels"][0])["failures"] and found)
        assert (told["last_error"], told["waiting"], "secret" in told) == ("It answered 500.", 1, False)
        assert owner.post(f"{path}/{made['id']}/test").status_code == 204  # which tries now
        until(lambda: len(receiver.got) == 3)
        assert [notice["type"] for notice in receiver.notices] == ["budget.spent", "budget.spent", "test"]
        dataset = owner.dataset()
        assert owner.grant(dataset, analyst, approval="required").status_code == 200
        job = analyst.estimate(dataset, epsilon=0.05, delta=1e-6).json()["id"]
        until(lambda: owner.get(path).json()["channels"][0]["waiting"] == 0)
        asked = receiver.notices[-1]
        assert (asked["type"], asked["facts"]["question"]) == ("question.requested", job)
    assert (
        owner.post(path, json={"kind": "file", "name": "heads", "events": [], "heads": "day"}).status_code
        == 201
    )
    file = notice_folder / owner.id / "heads.jsonl"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    (line,) = file.read_text().splitlines()
    kept = owner.get(f"/v1/owners/{owner.id}/ledger/heads").json()
    assert json.loads(line)["facts"]["heads"]["heads"] == kept["heads"]
    for wrong in (
        {"kind": "webhook", "url": "ftp://example.org"},
        {"kind": "webhook", "url": "https://me:secret@example.org"},
        {"kind": "file", "name": "../x"},
        {"kind": "mail", "to": "a@b\r\nBcc: c@d"},
        {"kind": "mail", "to": "dpo@example.org"},  # this service sends none
        {"kind": "pigeon"},
        {"kind": "file", "name": "x", "events": ["everything"]},
    ):
        problem(owner.post(path, json=wrong), 422, "invalid")
    assert owner.delete(f"{path}/{made['id']}").status_code == 204
    assert len(owner.get(path).json()["channels"]) == 1
    for number in range(9):
        assert owner.post(path, json={"kind": "file", "name": f"n{number}"}).status_code == 201
    problem(owner.post(path, json={"kind": "file", "name": "n10"}), 422, "invalid")
