"""A mail server for tests, which keeps what it gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread


class _Server(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.got = list[str]()


class _Session(StreamRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            command = line.upper()[:4]
            self.server.got.append(line.decode())
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                while (line := self.rfile.readline()) != b".\r\n":
                    self.server.got.append(line.decode())
            refused = command == b"RCPT" and b"nobody" in line
            self.wfile.write(b"550 no\r\n" if refused else b"250 ok\r\n")  # to QUIT, too, which is wrong
            if command == b"QUIT":
                return


@contextmanager
def mailbox() -> Iterator[tuple[str, list[str]]]:
    """Run a mail server on this machine that refuses nobody but `nobody`: its URL, and the lines it gets."""
    with _Server() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"smtp://127.0.0.1:{server.server_address[1]}", server.got
        server.shutdown()
