"""The connector beside a hub that lies: its answers are bounded, and it is not asked too often."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import delete

from privest_service.bounded_http import UnfitAnswerError
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.datasets.models import Grant
from privest_service.sites import connector
from privest_service.sites.connector import Connector
from privest_service.sites.link import Hub, Link
from testing.hostile import answering
from testing.hubs import taking_in
from testing.server import SIGNER
from testing.world import World

HUB = Hub("http://127.0.0.1:9", "key")
MARK = "m" * 64

Answer = Callable[[httpx.Request], httpx.Response]


class Stopping:
    """Stands for the event that ends a connector: time passes while it is waited for, up to an hour."""

    def __init__(self, last: float) -> None:
        self.now, self.last = 0.0, last

    def is_set(self) -> bool:
        return self.now >= self.last

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'site.db'}", signer=SIGNER)
    migrate(database)
    yield database
    database.close()


def connected(
    database: Database, answer: Answer, monkeypatch: pytest.MonkeyPatch, *, offers: bool = False
) -> Connector:
    """The connector of a site to a hub that answers so."""
    link = Link(HUB)
    link._http = httpx.Client(base_url="http://hub", transport=httpx.MockTransport(answer))
    monkeypatch.setattr(Hub, "link", lambda _: link)
    world = World.make(database)
    if not offers:
        with database.write() as session:
            session.execute(delete(Grant).where(Grant.analyst_id == world.analyst))
    return Connector(HUB, taking_in(database, world))


def kept(it: Connector, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a connector go on for so many seconds of its own clock."""
    clock: Any = Stopping(seconds)
    it._stopping = clock
    monkeypatch.setattr(connector, "time", SimpleNamespace(monotonic=lambda: clock.now))
    it._keep()


def test_a_hub_that_answers_at_once_is_asked_ten_times_a_second(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked to hold its answer back where there is nothing new; the mark changes each time."""
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/datasets":
            return answering(content={"datasets": [], "next": None})
        asked.append(request.url.params["mark"])
        return answering(content={"questions": [], "mark": f"mark-{len(asked)}"})

    kept(connected(database, answer, monkeypatch), 5.0, monkeypatch)
    assert 45 <= len(asked) <= 55
    assert asked[:3] == ["", "mark-1", "mark-2"]


def test_a_mark_that_is_too_long_is_not_sent_back_and_the_site_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/datasets":
            return answering(content={"datasets": [], "next": None})
        asked.append(request.url.params["mark"])
        return answering(content={"questions": [], "mark": MARK + "m" * (len(asked) == 2)})

    kept(connected(database, answer, monkeypatch), 3.0, monkeypatch)
    assert set(asked) == {"", MARK}
    assert len(asked) > 5


@pytest.mark.parametrize("size", [0, 1])
def test_a_list_of_datasets_without_end_is_broken_off(
    database: Database, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(connector, "MOST_OFFERED", 100)
    pages = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        pages.append(request.url.params.get("cursor", ""))
        listed = [{"id": f"ds_{len(pages)}", "at_site": f"ds_{len(pages)}"}] * size
        return answering(content={"datasets": listed, "next": f"{len(pages)}"})

    it = connected(database, answer, monkeypatch)
    with pytest.raises(UnfitAnswerError, match="more than 100 datasets"):
        it._offer(it._hub.link())
    assert len(pages) == 101


def test_a_dataset_that_the_hub_refuses_does_not_keep_back_the_site(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was allowed once may be refused by a newer hub. It is offered once in each connection."""
    asked, offered = list[str](), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/datasets":
            return answering(content={"datasets": [], "next": None})
        if request.method == "PUT":
            offered.append(request.url.path)
            return httpx.Response(422)
        asked.append(request.url.path)
        return answering(content={"questions": [], "mark": f"mark-{len(asked)}"})

    kept(connected(database, answer, monkeypatch, offers=True), 2.0, monkeypatch)
    assert len(asked) > 5
    assert len(offered) == 1
