"""What one caller may hold of the service at a time, and that a second one is served beside it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from privest_service import limits
from privest_service.limits import LONG, THREADS, ChargeLine, Limit, Limiter, in_thread
from privest_service.problems import TooManyRequests, Unavailable
from testing.attackers import ATTACKS, beside
from testing.processes import forked_with
from testing.server import HANG_GUARD, Server

_SLOWER = 100.0
"""How many times longer a second caller may wait than when alone, which is some 2.5 ms: so 250 ms."""

FEW = Limit("things", 2, 3)


@pytest.fixture
def backend() -> str:
    """No database counts this."""
    return "sqlite"


def test_each_has_a_share_and_all_together_no_more_than_there_is() -> None:
    limiter = Limiter()
    with limiter.hold(FEW, "ann"), limiter.hold(FEW, "ann"):
        with pytest.raises(TooManyRequests) as own, limiter.hold(FEW, "ann"):
            pass
        assert own.value.headers == {"Retry-After": "1"}
        with limiter.hold(FEW, "bob"):
            with pytest.raises(Unavailable) as everybodys, limiter.hold(FEW, "bob"):
                pass
            assert everybodys.value.headers == {"Retry-After": "5"}
            with limiter.hold_if_free(FEW, "cid") as free:
                assert not free
            with limiter.hold(FEW, "admin"):  # who may have to stop the others
                pass
        with limiter.hold_if_free(FEW, "cid") as free:
            assert free
    assert not limiter._held


def test_amounts_are_counted_and_given_back_after_a_fault() -> None:
    limiter = Limiter(largest_body=10)
    with limiter.hold_if_free(Limit("none", 0, 0), "ann") as free:
        assert not free
    with limiter.hold(limiter.bodies, "ann", 39), limiter.hold(limiter.bodies, "ann", 1):
        assert limiter._held[limiter.bodies, "ann"] == 40
    with pytest.raises(KeyError), limiter.hold(limiter.bodies, "ann", 40):
        raise KeyError
    assert not limiter._held


def test_a_caller_holds_few_threads_and_others_go_on() -> None:
    async def use() -> None:
        limiter, go_on, begun = Limiter(), threading.Event(), list[str]()

        async def call(who: str) -> None:
            with limiter.on_behalf_of(who):
                await in_thread(lambda: begun.append(who) or go_on.wait(HANG_GUARD))

        greedy = [asyncio.create_task(call("ann")) for _ in range(4 * THREADS)]
        while begun.count("ann") < THREADS:
            await asyncio.sleep(0.01)
        other = asyncio.create_task(call("bob"))
        while "bob" not in begun:
            await asyncio.sleep(0.01)
        assert begun.count("ann") == THREADS
        go_on.set()
        await asyncio.gather(*greedy, other)
        assert begun.count("ann") == 4 * THREADS

    asyncio.run(use())


def test_strangers_hold_few_threads_and_wait_for_them_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits._STRANGERS_SECONDS == 10  # as docs/limits.md says
    monkeypatch.setattr(limits, "_STRANGERS_SECONDS", 0.1)

    async def use() -> None:
        limiter, go_on, begun = Limiter(), threading.Event(), list[int]()

        def look(number: int) -> int:
            begun.append(number)
            go_on.wait(HANG_GUARD)
            return number

        first = [asyncio.create_task(limiter.recognise(look, number)) for number in range(limits._STRANGERS)]
        while len(begun) < len(first):
            await asyncio.sleep(0.01)
        late = await asyncio.gather(
            *(limiter.recognise(look, 100) for _ in range(20)), return_exceptions=True
        )
        assert {type(each) for each in late} == {Unavailable}
        with limiter.on_behalf_of("ann"):
            assert await in_thread(lambda: 7) == 7  # callers who are known go on
        go_on.set()
        assert await asyncio.gather(*first) == list(range(limits._STRANGERS))  # however long they took
        assert 100 not in begun
        assert await limiter.recognise(look, 101) == 101

    asyncio.run(use())


def _answered_without_a_body(server: Server, path: str, *fields: str, seconds: float = HANG_GUARD) -> bytes:
    """What comes after a head that promises a body, of which no byte is ever sent."""
    where = urlsplit(server.url)
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *fields, "", ""]
    with socket.create_connection((where.hostname, where.port), timeout=seconds) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return connection.recv(65536)


JSON = ("Content-Type: application/json", "Content-Length: 1000")


def test_a_charge_waits_for_others_of_its_owners_in_order_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, ran, held, go = ChargeLine(), list[int](), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go.wait(HANG_GUARD)

    async def main() -> None:
        first = asyncio.create_task(line.run(["ada", "a", "b"], hold))
        await asyncio.to_thread(held.wait, HANG_GUARD)
        monkeypatch.setattr(limits, "_LOCK_SECONDS", 0.0)
        with pytest.raises(Unavailable):
            await line.run(["ben", "b"], lambda: ran.append(0))
        monkeypatch.undo()
        assert not first.done()
        later = [
            asyncio.create_task(line.run([who, "b"], lambda at=at: ran.append(at)))
            for at, who in enumerate(("ben", "cleo", "dan"), 1)
        ]
        await line.run(["ben's friend", "c"], lambda: ran.append(9))  # another owner's
        await asyncio.sleep(0)
        later[1].cancel()  # its client is gone
        await asyncio.sleep(0)
        assert ran == [9]
        go.set()
        await asyncio.gather(first, *later, return_exceptions=True)
        await line.run(["ada", "b"], lambda: ran.append(4))

    asyncio.run(main())
    assert ran == [9, 1, 3, 4]


def test_a_charge_waits_for_no_thread_that_its_caller_holds() -> None:
    """Else a caller whose threads are busy would keep all others of its owners waiting."""
    line, limiter, go = ChargeLine(), Limiter(), threading.Event()

    async def main() -> None:
        with limiter.on_behalf_of("ada", LONG):  # of whose threads there is one
            slow = asyncio.create_task(in_thread(go.wait, HANG_GUARD))
            await asyncio.sleep(0)
            await asyncio.wait_for(line.run(["ada", "a"], lambda: None), HANG_GUARD)
            go.set()
            assert await slow

    asyncio.run(main())


@pytest.mark.parametrize(
    "path", ["/v1/estimates/frechet-mean", "/v1/estimates/robust-pca/plan", "/v1/datasets", "/v1/owners"]
)
def test_of_strangers_and_of_those_who_may_not_no_byte_is_read(server: Server, path: str) -> None:
    assert _answered_without_a_body(server, path, *JSON).startswith(b"HTTP/1.1 401")
    nobody = f"Authorization: Bearer {server.admin.key}x"
    assert _answered_without_a_body(server, path, nobody, *JSON).startswith(b"HTTP/1.1 401")
    owner = server.owner()
    issued = owner.post(f"/v1/owners/{owner.id}/keys", json={"scopes": ["data"]}).json()["key"]
    told = _answered_without_a_body(server, "/v1/owners", f"Authorization: Bearer {issued}", *JSON)
    assert told.startswith(b"HTTP/1.1 403")


def test_bodies_beyond_a_callers_share_are_refused_unread(server: Server) -> None:
    owner, other = server.owner(), server.owner()
    largest, where = 2**20, urlsplit(server.url)
    path, promise = "/v1/estimates/frechet-mean/plan", ("Content-Type: application/json",)

    def told(key: str, seconds: float = HANG_GUARD) -> bytes:
        fields = (f"Authorization: Bearer {key}", *promise, f"Content-Length: {largest}")
        return _answered_without_a_body(server, path, *fields, seconds=seconds)

    with ExitStack() as held:
        for length in (f"Content-Length: {largest}", "Transfer-Encoding: chunked") * 2:
            slow = held.enter_context(
                socket.create_connection((where.hostname, where.port), timeout=HANG_GUARD)
            )
            fields = [
                f"POST {path} HTTP/1.1",
                "Host: x",
                f"Authorization: Bearer {owner.key}",
                *promise,
                length,
            ]
            slow.sendall("\r\n".join([*fields, "Expect: 100-continue", "", ""]).encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 100")  # the body is waited for: it has its place
        assert told(owner.key).startswith(b"HTTP/1.1 429")
        assert owner.get("/v1/me").status_code == 200
        with pytest.raises(TimeoutError):
            told(other.key, 1.0)  # whose body is waited for


def test_the_uploads_of_a_page_are_for_whoever_is_signed_in(server: Server) -> None:
    promise = ("Content-Type: multipart/form-data; boundary=x", "Content-Length: 1000000")
    told = _answered_without_a_body(server, "/dashboard/datasets/new", *promise)
    assert told.startswith(b"HTTP/1.1 303")
    assert b"/dashboard/sign-in" in told


@pytest.fixture(scope="module")
def _preloaded() -> Iterator[None]:
    with forked_with("testing.attackers"):
        yield


@pytest.mark.few(1)
@pytest.mark.usefixtures("_preloaded")
@pytest.mark.parametrize("name", ["bodies_of_strangers", "bodies", "exports"])
def test_a_second_caller_is_served_beside_an_attack(server: Server, name: str) -> None:
    second, ratios = server.analyst(), list[float]()
    for _ in range(3):  # other work on the machine may begin between what is compared
        idle, attacked = beside(ATTACKS[name](server), server, second)
        ratios.append(attacked / idle)
        if ratios[-1] < _SLOWER:
            break
    assert min(ratios) < _SLOWER


@pytest.mark.prove
@pytest.mark.parametrize("name", ATTACKS)
def test_a_second_caller_is_served_beside_every_attack(
    start_server: Callable[..., Server], name: str
) -> None:
    server = start_server()
    second = server.analyst()
    idle, attacked = beside(ATTACKS[name](server), server, second)
    assert attacked < _SLOWER * idle
