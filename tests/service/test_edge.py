"""The edge of a running service: what comes over the wire and is no request, and who takes their time."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from testing.server import HANG_GUARD, Caller, Server, cpu_seconds, problem, until

MB = 2**20


@pytest.fixture
def backend() -> str:
    """None of this comes as far as a database."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner()


@contextmanager
def wire(server: Server) -> Iterator[socket.socket]:
    """A bare connection."""
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=HANG_GUARD) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """What comes until the service closes."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass  # as it had not read all that was sent
    return found


def arrives(connection: socket.socket, what: bytes) -> None:
    """Read on until something comes."""
    found = b""
    while what not in found:
        piece = connection.recv(65536)
        assert piece, found
        found += piece


def head(path: str = "/v1/estimates/frechet-mean", method: str = "POST", **fields: Any) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin1")


def told(raw: bytes) -> tuple[int, dict[str, Any]]:
    """Status and problem of the only answer on a connection."""
    start, _, body = raw.partition(b"\r\n\r\n")
    line, *fields = start.decode("latin1").split("\r\n")
    kinds = [field.partition(": ")[2] for field in fields if field.lower().startswith("content-type")]
    assert kinds == ["application/problem+json"], raw[:300]
    document = json.loads(body)
    assert document["status"] == int(line.split()[1])
    return document["status"], document


def memory(server: Server) -> int:
    """Memory of the web process, in bytes."""
    return psutil.Process(server.process.pid).memory_info().rss


@contextmanager
def bounded(server: Server, more: int = 60 * MB) -> Iterator[None]:
    """What the web process keeps afterwards is little, and it answers as before."""
    before = memory(server)
    yield
    assert memory(server) - before < more
    server.wait_until_ready()


# What is no request

MESSAGES: dict[str, tuple[bytes, int]] = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", 400),
    "no version": (b"GET /healthz\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "a path beyond ASCII": (b"GET /v1/\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a blank before a colon": (b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "NUL in a header": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", 400),
    "a long path": (head("/" + "a" * 70_000, "GET"), 431),
    "a long header": (head("/healthz", "GET", X="a" * 70_000), 431),
    "many headers": (head("/healthz", "GET", **{f"X{i}": "a" for i in range(10_000)}), 431),
    "a head without an end": (b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 300_000, 431),
    "two lengths": (
        head().replace(b"Host", b"Content-Length: 4\r\nContent-Length: 5\r\nHost") + b"abcde",
        400,
    ),
    "a length below zero": (head(Content_Length=-1), 400),
    "a length beyond all": (head(Content_Length=10**30), 400),
    "a length in words": (head(Content_Length="many"), 400),
    "a length and chunks": (head(Content_Length=4, Transfer_Encoding="chunked") + b"0\r\n\r\n", 400),
    "chunks and a length": (head(Transfer_Encoding="chunked", Content_Length=0) + b"0\r\n\r\n", 400),
    "an unknown encoding of the transfer": (head(Transfer_Encoding="xchunked"), 501),
    "two encodings of the transfer": (head(Transfer_Encoding="identity, chunked"), 501),
    "chunks that are none": (
        head(Transfer_Encoding="chunked", Content_Type="application/json") + b"-1\r\n\r\n",
        400,
    ),
}


def test_what_is_no_request_is_refused_at_once_and_the_connection_closed(server: Server) -> None:
    smuggled = head("/v1/owners", "GET")
    with bounded(server):
        for name, (message, status) in MESSAGES.items():
            with wire(server) as connection:
                connection.sendall(message + smuggled)
                raw = all_of(connection)
                assert raw.count(b"HTTP/1.1 ") == 1, (name, raw)  # nothing after it is taken for a request
                assert told(raw)[0] == status, name
                assert b"x" * 20 not in raw
        log = server.log.read_text()
    assert "Traceback" not in log


def test_old_and_odd_requests_that_are_some(server: Server, owner: Caller) -> None:
    with wire(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert all_of(connection).startswith(b"HTTP/1.1 200")  # and closed
    for method in ("BREW", "TRACE", "CONNECT", "get"):
        with wire(server) as connection:
            connection.sendall(head("/v1/datasets", method, Connection="close"))
            assert told(all_of(connection))[0] == 405, method
    with wire(server) as connection:  # several at once are answered in their order
        connection.sendall(head("/healthz", "GET") * 3 + head("/nothing", "GET", Connection="close"))
        raw = all_of(connection)
        assert [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]] == [200, 200, 200, 404]
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade, close", "Sec_WebSocket_Key": "eA=="}
    with wire(server) as connection:
        connection.sendall(head("/v1/datasets", "GET", **upgrade))
        assert told(all_of(connection))[0] == 401


# What requests hold

BODIES: dict[str, bytes] = {
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "half of a surrogate pair": b'{"name": "\\ud800"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"name":' * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "a huge number": b'{"name": "x", "budget": {"epsilon": 1' + b"0" * 200_000 + b', "delta": 1e-5}}',
    "a number beyond float64": b'{"name": "x", "budget": {"epsilon": 1e999, "delta": 1e-5}}',
    "NaN": b'{"name": "x", "budget": {"epsilon": NaN, "delta": 1e-5}}',
    "Infinity": b'{"name": "x", "budget": {"epsilon": Infinity, "delta": 1e-5}}',
    "minus Infinity": b'{"name": "x", "budget": {"epsilon": 1, "delta": -Infinity}}',
    "a field twice": b'{"name": "x", "name": "x", "budget": {"epsilon": 1, "delta": 1e-5}}',
    "a field of a part twice": b'{"name": "x", "budget": {"epsilon": 1, "epsilon": 1, "delta": 1e-5}}',
    "a field twice, spelt otherwise": b'{"name": "x", "n\\u0061me": "y"}',
    "many fields": json.dumps(dict.fromkeys(map(str, range(60_000)))).encode(),
    "many fields of a part": json.dumps({"budget": dict.fromkeys(map(str, range(60_000)))}).encode(),
}


def test_schemas_whose_faults_have_no_end(server: Server, owner: Caller) -> None:
    labelled = {"kind": "labelled", "features": ["a"], "label": "y", "classes": ["0", "1"]}
    with bounded(server, 60 * MB):
        for name, facts in {
            "categories": dict.fromkeys(map(str, range(80_000)), 0),
            "mean": [""] * 200_000,
            "scale": [""] * 200_000,
            "features": [0] * 200_000,
        }.items():
            about = {"inline": {"schema": labelled | {name: facts}, "rows": [[1, 0]] * 5}}
            body = {"dataset": about, "privacy": {"epsilon": 1}}
            before = cpu_seconds(server)
            answer = owner.post("/v1/estimates/logistic-regression/plan", json=body)
            assert len(problem(answer, 422, "invalid").get("faults", [])) <= 20, name
            assert cpu_seconds(server) - before < 2, name


def test_bodies_that_are_read_in_two_ways_or_for_long(server: Server, owner: Caller) -> None:
    kind = {"Content-Type": "application/json"}
    with bounded(server, 40 * MB):
        for name, body in BODIES.items():
            before = cpu_seconds(server)
            answer = server.admin.post("/v1/owners", content=body, headers=kind)
            assert len(problem(answer, 422, "invalid").get("faults", [])) <= 20, name
            assert cpu_seconds(server) - before < 2, name
    twice = '{"kind": "vectors", "dim": 2, "norm_bound": 1, "norm_bound": 9}'
    for answer in (
        owner.upload(b"1,2\n3,4\n", twice, name="rows.csv"),
        owner.post("/v1/datasets", content=f'{{"uri": "a:b", "schema": {twice}}}', headers=kind),
    ):
        assert "twice" in problem(answer, 422, "invalid")["faults"][0]["rule"]


def test_names_that_are_no_utf_8(server: Server, owner: Caller) -> None:
    problem(owner.get("/v1/datasets/%ff%fe"), 404, "not-found")
    problem(owner.get("/v1/datasets/%ed%a0%80"), 404, "not-found")
    problem(owner.get(f"/v1/owners/{owner.id}/ledger?cursor=%ff"), 422, "invalid")
    raw = {"Idempotency-Key": b"\xff\x9f", "Content-Type": b"application/json"}
    body = b'{"dataset": {"id": "x"}, "privacy": {"epsilon": 1}}'
    answer = owner.post("/v1/estimates/frechet-mean", content=body, headers=raw)  # pyright: ignore
    problem(answer, 422, "invalid")


def test_an_origin_that_is_no_address_is_another_site(owner: Caller) -> None:
    for origin in ("http://[", "http://[x]", "http://]"):
        page = owner.get("/dashboard", headers={"Origin": origin})
        assert page.headers["location"] == "/dashboard/sign-in", origin
        entered = owner.post("/dashboard/sign-in", data={"key": owner.key}, headers={"Origin": origin})
        assert entered.status_code == 403, origin


def test_packed_bodies_are_not_unpacked(server: Server, owner: Caller) -> None:
    for packing in ("gzip", "br", "gzip, identity"):
        heads = {"Content-Encoding": packing, "Content-Type": "application/json"}
        answer = owner.post("/v1/estimates/frechet-mean/plan", content=b"\x1f\x8b" * 1000, headers=heads)
        problem(answer, 415, "unsupported-media-type")
    heads["Content-Encoding"] = "identity"
    problem(owner.post("/v1/estimates/frechet-mean/plan", content=b"{}", headers=heads), 422, "invalid")


# Bodies that are longer than they may be, or than they say

FORM = {"Content_Type": "multipart/form-data; boundary=y"}
START = b'--y\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
MANY = b"10000\r\n" + b"a" * 65536 + b"\r\n"


def test_no_body_takes_more_memory_or_disk_than_it_may(server: Server, owner: Caller) -> None:
    incoming = server.data_dir / "incoming"
    own = {"Authorization": f"Bearer {owner.key}"}
    with bounded(server, 30 * MB):
        for size in (10**9, 10**18):
            with wire(server) as connection:  # at its word, before any of it
                connection.sendall(head(Content_Length=size, Content_Type="application/json", **own))
                assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        for fields in ({"Content_Type": "application/json"}, {"Content_Type": "text/plain"}):
            with wire(server) as connection:  # and without end
                connection.sendall(head(Transfer_Encoding="chunked", **fields, **own))
                for _ in range(40):  # 2.5 MB of 1
                    connection.sendall(MANY)
                assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        with wire(server) as connection:
            connection.sendall(head("/v1/datasets", Transfer_Encoding="chunked", **FORM, **own))
            connection.sendall(b"%x\r\n%s\r\n" % (len(START), START))
            for _ in range(300 * 16):  # 300 MB of 256
                connection.sendall(MANY)
            assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        with wire(server) as connection:  # many parts of a form, and no file
            part = b'--y\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a" * 100 + b"\r\n"
            body = part * 20_000 + b"--y--\r\n"
            connection.sendall(head("/v1/datasets", Content_Length=len(body), **FORM, **own) + body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 422")
    assert until(lambda: not [each for each in incoming.iterdir() if not each.name.startswith("pymp-")])


# Who takes their time


def _trickle(connection: socket.socket, first: bytes, rest: bytes) -> bytes:
    """Send something, and then bytes one by one until it is answered."""
    latest = time.monotonic() + HANG_GUARD
    connection.sendall(first)
    connection.settimeout(0.25)
    found, pieces = b"", iter(rest)
    while time.monotonic() < latest:
        try:
            piece = connection.recv(65536)
            found += piece
            if not piece:
                return found
        except TimeoutError:
            pass
        except ConnectionResetError:
            return found
        try:
            connection.sendall(bytes(islice(pieces, 1)))
        except (BrokenPipeError, ConnectionResetError):
            return found
    raise AssertionError("it is waited for still")


def _holds(server: Server, connection: socket.socket) -> bool:
    """Whether the service has its end of a connection still."""
    held = psutil.Process(server.process.pid).net_connections("tcp")
    return any(each.raddr and each.raddr.port == connection.getsockname()[1] for each in held)


@pytest.mark.costly
def test_nobody_is_waited_for_for_ever(start_server: Callable[..., Server]) -> None:
    server = start_server(patience=1.5)
    owner = server.owner()
    own = {"Authorization": f"Bearer {owner.key}", "Content_Type": "application/json"}
    drip = b"a" * 1000
    sent = head(Content_Length=500_000, **own)
    cases: dict[str, tuple[bytes, int | None]] = {
        "says nothing": (b"", 408),
        "a head byte by byte": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", 408),
        "the second head byte by byte": (head("/healthz", "GET") + b"GET /healthz HTTP/1.1\r\nX: ", 408),
        "a body byte by byte": (sent, 408),
        "chunks byte by byte": (head(Transfer_Encoding="chunked", **own) + b"fffff\r\n", 408),
        "an upload byte by byte": (
            head("/v1/datasets", Content_Length=500_000, **own | FORM) + START,
            408,
        ),
        "a body that was answered": (head("/nowhere", Content_Length=500_000), None),
    }
    entered = httpx.post(f"{server.url}/dashboard/sign-in", data={"key": owner.key})
    cookie = entered.headers["set-cookie"].partition(";")[0]
    with bounded(server), ThreadPoolExecutor(len(cases)) as pool, ExitStack() as stack:
        idle = [stack.enter_context(wire(server)) for _ in range(200)]
        answers = {
            name: pool.submit(
                _trickle,
                stack.enter_context(wire(server)),
                first,
                b"" if name == "says nothing" else drip,
            )
            for name, (first, _) in cases.items()
        }
        stream = stack.enter_context(wire(server))
        stream.sendall(head("/dashboard/events", "GET", Cookie=cookie))
        arrives(stream, b"event: changed")
        reader = stack.enter_context(wire(server))
        for _ in range(300):  # 45 MB of answers, none of which is read
            reader.sendall(head("/openapi.json", "GET"))
        for name, (_, status) in cases.items():
            raw = answers[name].result()
            if status:
                assert told(raw[raw.rindex(b"HTTP/1.1") :])[0] == status, (name, raw)
            else:
                assert raw.startswith(b"HTTP/1.1 404"), (name, raw)
        for connection in idle:
            assert b" 408 " in all_of(connection)[:20]
        until(lambda: not _holds(server, reader))
        # Whoever waits for us, and not we for it, is left alone.
        owner.patch(f"/v1/owners/{owner.id}/budget", json={"frozen": True})
        arrives(stream, b"event: changed")
    assert "Traceback" not in server.log.read_text()
