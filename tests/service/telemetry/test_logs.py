"""What the log tells when something goes wrong: what kind of thing, and where; never what was said of it."""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from privest_service.cli import main
from testing import ROOT
from testing.commands import PRIVEST, run
from testing.faulty_service import FAULTS, SECRET
from testing.server import ADMIN_KEY, HANG_GUARD, PLAIN, Server, until

PROGRAM = (sys.executable, str(ROOT / "testing" / "faulty_service.py"))


def lines(server: Server) -> list[dict[str, Any]]:
    """All of the log: each line of it is JSON."""
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def said(server: Server, **what: str) -> list[dict[str, Any]]:
    """Lines with these fields."""
    return [line for line in lines(server) if what.items() <= line.items()]


@pytest.mark.parametrize("backend", ["postgresql"])  # whose errors quote values
def test_no_fault_quotes_what_it_is_about(start_server: Callable[..., Server]) -> None:
    server = start_server(program=PROGRAM)
    headers = {"Authorization": f"Bearer {SECRET}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=HANG_GUARD, verify=PLAIN) as client:
        for name in FAULTS:
            try:
                answer = client.get(f"/faults/{name}?{SECRET}")
            except httpx.RemoteProtocolError:
                assert name == "late"
            else:
                assert SECRET not in answer.text
                assert (answer.status_code == 500) == (name in ("handler", "statement", "worker")), name
                assert "x-request-id" in answer.headers
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    upgrade = f"GET /?{SECRET} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for request in (upgrade, f"{SECRET} / {SECRET}\r\n\r\n"):
        with socket.create_connection(address) as raw:
            raw.sendall(request.encode())
            assert raw.recv(1)
    server.stop()
    text = server.log.read_text()
    for word in (SECRET, ADMIN_KEY, "Traceback"):
        assert word not in text, word
    here = "faulty_service.py"

    def told(error: str, **what: str) -> bool:
        return any(here in line["where"][-1] for line in said(server, error=error, **what))

    assert told("RuntimeError", event="a request failed")
    assert told("RuntimeError", event="a thread failed")
    assert told("RuntimeError", event="an exception went unheard")
    assert told("RuntimeError", event="Exception in ASGI application")
    assert said(server, error="sqlalchemy.exc.DataError", event="a request failed", code="22P02")
    assert said(server, error="RuntimeError", logger="asyncio", event="(not told)")
    assert said(server, kind="UserWarning", event="a warning")
    assert said(server, logger="a.library", event="it holds %s")
    assert said(server, logger="a.library", event="a level of its own, %(what)s")
    assert said(server, logger="a.library", event="(not told)", error="ValueError")
    assert said(server, event="Unsupported upgrade request.")
    assert said(server, event="Invalid HTTP request received.")
    assert said(server, event="request", route="/faults/handler", method="GET")


def test_a_service_that_cannot_start_says_where_and_fails(tmp_path: Path) -> None:
    (tmp_path / "rows").touch()
    environment = os.environ | {"PRIVEST_ADMIN_KEY": ADMIN_KEY, "PRIVEST_DATA_DIR": str(tmp_path)}
    ended = run([PRIVEST, "serve", "--port", "0"], environment)
    assert ended.returncode not in (0, 2)  # 2 is for what the settings can mend
    [told] = [line for line in map(json.loads, ended.stderr.splitlines()) if "error" in line]
    assert (told["error"], told["code"]) == ("FileExistsError", "EEXIST")
    assert any("store.py" in place for place in told["where"])


@pytest.mark.parametrize("rest", ["wo@rd@host/db", "wo@rd/rest@host/db", "wo@1rd:2x@host/db", "wo@rd:2x/db"])
def test_no_part_of_a_password_is_taken_for_a_host_and_told(
    rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIVEST_ADMIN_KEY", ADMIN_KEY)
    monkeypatch.setenv("PRIVEST_DATABASE_URL", f"postgresql://privest:pass{rest}")
    assert main(["verify-ledger"]) == 2
    told = "".join(capsys.readouterr())
    assert "PRIVEST_DATABASE_URL" in told
    assert "%40" in told
    assert "rd" not in told.replace("password", "")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_log_that_takes_no_more_fails_no_request(start_server: Callable[..., Server]) -> None:
    server = start_server()
    process, size = psutil.Process(server.process.pid), server.log.stat().st_size
    process.rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))
    assert server.admin.get("/healthz").status_code == 200
    assert httpx.get(f"{server.url}/v1/datasets", verify=PLAIN).status_code == 401
    assert server.log.stat().st_size == size
    process.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    assert server.admin.get("/healthz").status_code == 200
    until(lambda: server.log.stat().st_size > size)
