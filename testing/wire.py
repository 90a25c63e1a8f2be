"""A wire between a client and a service: it notes what goes over it, delays it, or breaks."""

import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_ANSWER = re.compile(rb"POST (/v1/sites/questions/\w+/answers/\d+)\?")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(eq=False)
class Wire:
    """All connections to a service by one address.

    Attributes:
        url: by which the service is called through this.
        delay: seconds that all bytes take, either way.
        there: where the service is; another one may come in its place.
        asked: what callers sent, a connection each.
        told: what came back.
    """

    there: tuple[str, int]
    url: str = ""
    delay: float = 0.0
    asked: list[bytearray] = field(default_factory=list[bytearray])
    told: list[bytearray] = field(default_factory=list[bytearray])
    _open: list[socket.socket] = field(default_factory=list[socket.socket])

    def lead_to(self, url: str) -> None:
        """Have connections made from here on lead to another address."""
        self.there = _address(url)

    def cut(self) -> None:
        """Break all connections that there are now, at once and without a word."""
        for end in self._open[:]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @property
    def all(self) -> bytes:
        """What went over it, either way."""
        return b"\n".join(map(bytes, [*self.asked, *self.told]))

    def requests(self, pattern: bytes) -> list[bytes]:
        """First lines of requests that a pattern is found in."""
        lines = re.findall(rb"(?:GET|POST|PUT|DELETE) /\S* HTTP/1.1", b"\n".join(map(bytes, self.asked)))
        return [line for line in lines if re.search(pattern, line)]

    def answers(self) -> dict[str, list[bytes]]:
        """The noisy answers that were sent whole, by their paths, each as often as it was sent."""
        found = defaultdict[str, list[bytes]](list)
        for sent in map(bytes, self.asked):
            for head in _ANSWER.finditer(sent):
                end = sent.find(b"\r\n\r\n", head.start()) + 4
                length = _LENGTH.search(sent, head.start(), max(end, 0))
                if length is not None and len(sent) >= end + int(length[1]):
                    found[head[1].decode()].append(sent[end : end + int(length[1])])
        return dict(found)

    def carry(self, caller: socket.socket) -> None:
        """Carry what a caller says to the service, and back."""
        try:
            service = socket.create_connection(self.there)
        except OSError:
            caller.close()
            return
        self._open += [caller, service]
        for source, target, notes in ((caller, service, self.asked), (service, caller, self.told)):
            notes.append(bytearray())
            threading.Thread(target=self._pass, args=(source, target, notes[-1]), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, notes: bytearray) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                notes += piece
                if self.delay:
                    time.sleep(self.delay)
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


@contextmanager
def wired(url: str, delay: float = 0.0) -> Iterator[Wire]:
    """A wire to a service, by an address of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        wire = Wire(_address(url), f"http://127.0.0.1:{listening.getsockname()[1]}", delay)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    caller = listening.accept()[0]
                    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    wire.carry(caller)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield wire
        finally:
            wire.cut()
