"""A small reverse proxy, as tests put it before a service: it takes a path off, and says for whom it asks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from testing.server import HANG_GUARD


@contextmanager
def proxied(url: str, below: str = "", *, proto: str = "http", strip: bool = True) -> Iterator[str]:
    """The address of a proxy before a service.

    Args:
        url: of the service.
        below: path that the proxy has, and that it takes off unless told not to.
        proto: by which it says that it was asked.
        strip: whether it does.
    """

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            said = self.headers.get("x-forwarded-for")
            heads = dict(self.headers.items()) | {
                "Host": urlsplit(url).netloc,
                "X-Forwarded-Host": self.headers["host"],
                "X-Forwarded-Proto": proto,
                "X-Forwarded-For": ", ".join(filter(None, [said, self.client_address[0]])),
                "Connection": "close",
            }
            behind = HTTPConnection(urlsplit(url).netloc, timeout=HANG_GUARD)
            behind.request(self.command, self.path.removeprefix(below if strip else ""), sent, heads)
            answer = behind.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.end_headers()
            try:
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
            except OSError:
                pass  # whoever asked is gone
            finally:
                behind.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parameter's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{below}"
    finally:
        server.shutdown()
        server.server_close()
