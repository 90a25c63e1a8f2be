"""Seconds a round of other carriers: Flower with three SuperNodes, bare gRPC, a bare HTTP long poll.

In each round three clients send a 50×3 array, and all get the mean. Prints one JSON object. Runs in its own
environment (pyproject.toml beside it), and imports nothing of privest.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import grpc
import numpy as np

CLIENTS, SHAPE = 3, (50, 3)
BARE_ROUNDS = 200
BIN = Path(sys.executable).parent
PORT = 49_091
"""Port of the SuperLink; those of the SuperNodes follow."""


class Mean:
    """Answers of all clients in a round, and their mean once all are there."""

    def __init__(self):
        self._all = threading.Barrier(CLIENTS)
        self._given = [b""] * CLIENTS

    def __call__(self, body):
        place = body[0]
        self._given[place] = body[1:]
        self._all.wait()
        mean = np.mean([np.frombuffer(each) for each in self._given], axis=0).tobytes()
        self._all.wait()
        return mean


def rounds_of(call):
    """Median seconds of a round, where `call(place)` makes what sends a client's body and gets the mean."""

    def client(place):
        send, numbers, times = call(place), np.full(SHAPE, float(place)), []
        for _ in range(BARE_ROUNDS):
            begun = time.perf_counter()
            numbers = np.frombuffer(send(bytes([place]) + numbers.tobytes())) + 1
            times.append(time.perf_counter() - begun)
        return median(times)

    with ThreadPoolExecutor(CLIENTS) as clients:
        return max(clients.map(client, range(CLIENTS)))


def over_grpc():
    """Rounds over unary calls."""
    mean = Mean()
    server = grpc.server(ThreadPoolExecutor(2 * CLIENTS))
    handler = grpc.unary_unary_rpc_method_handler(lambda body, _: mean(body))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mean", {"of": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found = rounds_of(lambda _: grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/mean/of"))
    server.stop(None)
    return found


def over_http():
    """Rounds over held back answers to POST, on connections that are kept."""
    mean = Mean()

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_POST(self):
            answer = mean(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def call(_):
        connection = HTTPConnection("127.0.0.1", server.server_port)

        def send(body):
            connection.request("POST", "/", body)
            return connection.getresponse().read()

        return send

    found = rounds_of(call)
    server.shutdown()
    return found


def wait_for(port):
    """Wait until somebody listens, which takes minutes on a busy machine.

    Raises:
        OSError: nobody does.
    """
    latest = time.monotonic() + 300
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > latest:
                raise
            time.sleep(0.2)


def over_flower():
    """Rounds of a Flower app, each message in a process of its own, as a SuperNode runs it by default."""
    with TemporaryDirectory() as home:
        environment = os.environ | {
            "FLWR_HOME": home,
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        Path(home, "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{PORT}"\n'
            "insecure = true\n"
        )
        log = Path(home, "log")
        started = []

        def start(name, *arguments):
            with log.open("ab") as told:
                command = [str(BIN / name), "--insecure", *arguments]
                started.append(
                    subprocess.Popen(  # noqa: S603
                        command, env=environment, stdout=told, stderr=told, start_new_session=True
                    )
                )

        try:
            start(
                "flower-superlink",
                f"--port={PORT}",
                "--disable-runtime-dependency-installation",
            )
            wait_for(PORT)
            for place in range(CLIENTS):
                start("flower-supernode", f"--superlink=127.0.0.1:{PORT}", f"--port={PORT + 1 + place}")
            app = Path(__file__).parent / "app"
            asked = subprocess.run(  # noqa: S603
                [str(BIN / "flwr"), "run", str(app), "here", "--stream"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            told = asked.stdout + asked.stderr + log.read_text()
        finally:
            for process in started:  # with what it started: those of a SuperNode would outlive it
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        times = [float(seconds) for seconds in re.findall(r"ROUND \d+ ([\d.]+)", told)]
        if not times:
            print(told[-5000:], file=sys.stderr)
            raise RuntimeError("Flower came to no round")
        return median(times)


def main():
    carriers = {"grpc": over_grpc, "http": over_http, "flower": over_flower}
    names = sys.argv[1:] or list(carriers)
    print(json.dumps({name: carriers[name]() for name in names}))


if __name__ == "__main__":
    main()
