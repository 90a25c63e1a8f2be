"""What a plan over HTTP takes of a processor, beside a FastAPI route that only reads the same body."""

import json
import multiprocessing
import re
import socket
from os import getloadavg
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI, Response

from benchmarks import ledger_load
from benchmarks.report import publish, spread, table
from privest_service.estimates.catalogue import KINDS
from testing.server import Server, body_of, free_address, spd, until

ROUNDS, SECONDS, CONNECTIONS = 7, 1.5, 4
_KIND = KINDS["frechet-mean"]


class _Line(ledger_load.Line):
    """A connection that asks for plans."""

    def received(self) -> bool:
        """Read on; whether that was the end of an answer, which must be 200."""
        self._got += self.socket.recv(65536)
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end or len(body) < int(re.findall(rb"(?i)content-length: (\d+)", head)[0]):
            return False
        assert head.startswith(b"HTTP/1.1 200"), self._got[:500]
        self._got = b""
        return True


def bare(port: int, text: bytes) -> None:
    """Serve the bare routes: one that answers the plan's bytes, one that answers by the plan's model."""
    app, request, view = FastAPI(), _KIND.plan_request, _KIND.plan_view
    made = view.model_validate_json(text)

    @app.post("/bytes")
    async def of_bytes(body: request) -> Response:  # pyright: ignore # noqa: ARG001 - it is read and checked
        return Response(text, media_type="application/json")

    @app.post("/model")
    async def of_model(body: request) -> view:  # pyright: ignore # noqa: ARG001
        return made

    uvicorn.run(app, host="127.0.0.1", port=port, http="h11", loop="uvloop", log_level="warning")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cost(process: int, url: str, request: bytes) -> float:
    """Milliseconds of a processor that a process takes for a request."""
    before = ledger_load.cpu_of(process)
    taken, _ = ledger_load.load([url], [request])
    return 1e3 * (ledger_load.cpu_of(process) - before) / len(taken)


def measured(directory: Path) -> list[list[float]]:
    """Costs of a plan, and of the bare routes, by rounds."""
    server = Server(directory, f"sqlite:///{directory}/privest.db")
    port, beside = int(free_address().rpartition(":")[2]), None
    try:
        owner = server.owner()
        dataset = owner.dataset(spd(60))
        text = owner.plan(dataset).content
        beside = multiprocessing.get_context("spawn").Process(target=bare, args=(port, text))
        beside.start()
        until(lambda: _listens(port))
        body, other = json.dumps(body_of(dataset, 0.1)).encode(), f"http://127.0.0.1:{port}"
        headers = f"Authorization: Bearer {owner.key}\r\nContent-Type: application/json\r\n"
        headers += f"Host: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"

        def each(path: str) -> float:
            ours = path.startswith("/v1")
            process = server.process.pid if ours else beside.pid
            assert process is not None
            request = f"POST {path} HTTP/1.1\r\n{headers}".encode() + body
            return cost(process, server.url if ours else other, request)

        paths = ("/v1/estimates/frechet-mean/plan", "/bytes", "/model")
        return [[each(path) for path in paths] for _ in range(ROUNDS + 1)][1:]
    finally:
        if beside:
            beside.kill()
        server.stop()


def main() -> None:
    ledger_load.Line, ledger_load.SECONDS, ledger_load.CONNECTIONS = _Line, SECONDS, CONNECTIONS
    with TemporaryDirectory() as directory:
        plans, texts, models = map(list, zip(*measured(Path(directory)), strict=True))
    ratios = [[a / b for a, b in zip(plans, each, strict=True)] for each in (texts, models)]
    rows = [
        ["a plan", spread(plans, ".2f"), "", "10 ms"],
        ["a route that answers the same bytes", spread(texts, ".2f"), spread(ratios[0], ".1f"), ""],
        ["a route that answers by the plan's model", spread(models, ".2f"), spread(ratios[1], ".1f"), ""],
    ]
    text = f"""
The same plan of a mean on SPD(3), over and over, SQLite, {CONNECTIONS} connections: processor time of
the web process, all of its threads included. Each answer is worked out anew, but for the second opinion.
Beside it, in a process of its own and in turns, FastAPI on the same loop with nothing but a route that
reads the same body by the same model. Medians of {ROUNDS} rounds of {SECONDS} s, with the least and the
most. The load of the machine was {getloadavg()[0]:.0f} at the end.

{table(["", "ms of a processor", "a plan is so many times that", "goal"], rows)}
"""
    publish("plan-pace", "Plans beside a bare route", text)


if __name__ == "__main__":
    main()
