"""A way out for one client that leads to one host: obstore follows redirects, and has no option against it.

It is a proxy in this process. What the client asks for first is noted and refused; from then on others may
be asked, as the services that give out credentials are, until the noted host was, and from then on nobody
else. So wherever the noted host would send the client, it does not get there.
"""

import re
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # pyright: ignore[reportAttributeAccessIssue]

_CONNECT_SECONDS = 10.0

_LONGEST_HEAD = 2**16

_PIECE = 2**16

Place = tuple[str, int]
"""A host and a port."""


class OneHost(ThreadingTCPServer):
    """The proxy, from entering its context to leaving it.

    Args:
        proxies: by scheme, through which this one goes on, and under `no` the hosts for which it does not:
            as `urllib.request.getproxies_environment` tells them.
        most: bytes of one answer, with all that encrypts and frames it, that the client is given.
    """

    daemon_threads = True

    def __init__(self, proxies: Mapping[str, str], most: int) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._proxies, self.most = dict(proxies), most
        self._noted: Place | None = None
        self._noting, self._met = True, False
        self._lock = Lock()
        self.others = set[socket.socket]()

    def __enter__(self) -> "OneHost":
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        for other in [*self.others]:  # one that neither answers nor ends would hold its thread for ever
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    def let_out(self) -> bool:
        """Have the host that was noted be reached from now on; whether there is one."""
        self._noting = False
        return self._noted is not None

    def lets_through(self, place: Place) -> bool:
        """Whether the client may speak with this one now."""
        with self._lock:
            if self._noting:
                self._noted = self._noted or place
                return False
            self._met |= place == self._noted
            return not self._met or place == self._noted

    def next_proxy(self, url: SplitResult) -> SplitResult | None:
        """Return the next proxy on the way to a URL; None if there is none."""
        found = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not found or proxy_bypass_environment(url.netloc, self._proxies):
            return None
        return urlsplit(found)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing is said of what one of the two ends did: the client's error says enough."""


class _Relay(StreamRequestHandler):
    """One connection of the client."""

    server: OneHost  # pyright: ignore[reportIncompatibleVariableOverride]
    rbufsize = 0  # what follows a head is not taken from whoever reads on

    def handle(self) -> None:
        """Let it through to whom it asks for, or refuse it."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = self.rfile.read(1)
            if not piece or len(head) > _LONGEST_HEAD:
                return None
            head += piece
        method, target, rest = head.split(b" ", 2)
        if tunnel := method == b"CONNECT":
            target = b"https://" + target
        url = urlsplit(target.decode("ascii"))
        if not self.server.lets_through((url.hostname or "", url.port or 80)):
            return self._say(HTTPStatus.FORBIDDEN)
        proxy = self.server.next_proxy(url)
        if proxy and proxy.username is not None:
            name = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            rest = _with(rest, b"Proxy-Authorization: Basic " + b64encode(name.encode()))
        if tunnel:
            return self._relay(proxy or url, b" ".join([method, url.netloc.encode(), rest]) if proxy else b"")
        if not proxy:
            target = b"/" + target.split(b"/", 3)[3]
        # One request, as what the client asks for next may be for somebody else.
        head = b" ".join([method, target, _with(rest, b"Connection: close")])
        return self._relay(proxy or url, head + self._body(rest), one=True)

    def _say(self, status: HTTPStatus) -> None:
        self.wfile.write(f"HTTP/1.1 {status} {status.phrase}\r\nContent-Length: 0\r\n\r\n".encode())

    def _body(self, rest: bytes) -> bytes:
        """Read the body whose length the head announces. obstore announces it in no other way."""
        found = re.search(rb"\r\ncontent-length: *(\d+)\r\n", rest, re.IGNORECASE)
        return self.connection.recv(int(found[1]), socket.MSG_WAITALL) if found else b""

    def _relay(self, to: SplitResult, head: bytes, *, one: bool = False) -> None:
        """Pass on a request or say that a tunnel is there, and pass on what comes back.

        Without a request in `head` it is a tunnel. With `one` the client has nothing else to say.
        """
        try:
            other = socket.create_connection((to.hostname or "", to.port or 80), timeout=_CONNECT_SECONDS)
        except OSError:
            return self._say(HTTPStatus.BAD_GATEWAY)
        with other:
            self.server.others.add(other)
            other.settimeout(None)
            if head:
                other.sendall(head)
            else:
                self._say(HTTPStatus.OK)
            back = Thread(target=_pump, args=(other, self.connection, self.server.most), daemon=True)
            back.start()
            if not one:
                _pump(self.connection, other)
            back.join()
            self.server.others.discard(other)
        return None


def _with(rest: bytes, header: bytes) -> bytes:
    """A head's end with one more header."""
    version, _, headers = rest.partition(b"\r\n")
    return b"\r\n".join([version, header, headers])


def _pump(source: socket.socket, target: socket.socket, most: int | None = None) -> None:
    """Pass on what one end sends until it ends, or has sent more than so many bytes."""
    sent = 0
    with suppress(OSError):
        while (most is None or sent <= most) and (piece := source.recv(_PIECE)):
            target.sendall(piece)
            sent += len(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
