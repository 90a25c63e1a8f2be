"""Answers of another party that are longer than anybody should read, and count how much was."""

import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PIECE = 2**16
"""Bytes that are given at a time."""


class Counted(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is given in pieces, and counts the bytes that were taken."""

    def __init__(self, body: bytes, times: int = 1) -> None:
        self.body, self.times, self.taken = body, times, 0

    def _pieces(self) -> Iterator[bytes]:
        for _ in range(self.times):
            for start in range(0, len(self.body), PIECE):
                piece = self.body[start : start + PIECE]
                self.taken += len(piece)
                yield piece

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces():
            yield piece


def endless() -> Counted:
    """A body of more bytes than any machine holds, without a declared length."""
    return Counted(b" " * PIECE, 10**9)


def packed(document: object, size: int = 50 * 2**20) -> bytes:
    """A small compressed body, which becomes a document and so many blanks."""
    return gzip.compress(json.dumps(document).encode() + b" " * size)


def answering(status: int = 200, content: bytes | object = b"") -> httpx.Response:
    """An answer that is a stream, as those of the network are; what is not bytes is written as JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return httpx.Response(status, stream=Counted(body))


@dataclass
class Flood:
    """A web server whose answer has no end, and what became of its answers.

    Attributes:
        url: of the server.
        sent: bytes of each answer that went into the connection, until the other side closed it.
    """

    url: str = ""
    sent: list[int] = field(default_factory=list[int])


IN_BUFFERS = 64 * 2**20
"""More bytes than buffers of a connection hold: what was sent beyond them was read."""


@contextmanager
def flooding(headers: dict[str, str] | None = None) -> Iterator[Flood]:
    """Run a server that answers with up to 4 GiB of blanks, under these headers."""
    flood = Flood()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            sent = 0
            with suppress(OSError):
                while sent < 2**32:
                    self.wfile.write(b" " * PIECE)
                    sent += PIECE
            flood.sent.append(sent)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parameter's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    flood.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield flood
    finally:
        server.shutdown()
        server.server_close()  # joins the threads of all answers
