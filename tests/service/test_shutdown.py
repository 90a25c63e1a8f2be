"""Whoever stops the service gets a clean end, at whatever moment: containers rely on it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from privest_service.estimates import engine
from testing.server import HANG_GUARD, shutdown_grace, until

SERVE = [str(Path(sys.executable).with_name("privest")), "serve", "--port", "0"]


def catches(process: subprocess.Popen[bytes]) -> bool:
    """Whether SIGTERM would meet a handler."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.few(1)
@pytest.mark.parametrize("ready", [False, True], ids=["while it starts", "when it is ready"])
def test_sigterm_ends_the_service_with_0(tmp_path: Path, ready: bool) -> None:
    environment = os.environ | {"PRIVEST_ADMIN_KEY": "x" * 16, "PRIVEST_DATA_DIR": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(SERVE, env=environment, stderr=file)
    try:
        until(lambda: b'"listening"' in log.read_bytes() if ready else catches(process))
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_GUARD) == 0
        assert b"graceful shutdown exceeded" not in log.read_bytes()
        psutil.wait_procs(children, timeout=HANG_GUARD)
        assert not any(child.is_running() for child in children)
    finally:
        process.kill()


def test_callers_who_wait_are_answered_before_the_server_would_cut_them_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shutdown_grace() > engine._LAST_WAIT + 2 * engine._PATIENCE
    monkeypatch.setattr(engine, "_LAST_WAIT", 0.2)
    nothing: Any = None
    ending = engine.Engine(nothing, nothing, workers=1, job_timeout=1.0)

    async def wait() -> None:
        waiting = asyncio.create_task(ending.wait("a job that nobody runs", 600.0, lambda: False))
        await asyncio.sleep(0)
        ending.drain()
        await asyncio.wait_for(waiting, HANG_GUARD)

    asyncio.run(wait())
