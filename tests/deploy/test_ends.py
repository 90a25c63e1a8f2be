"""Whoever stops the service gets a clean end, at whatever moment: containers rely on it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness import until

SERVE = [str(Path(sys.executable).with_name("privest")), "serve", "--port", "0"]


def catches(process: subprocess.Popen[bytes]) -> bool:
    """Whether SIGTERM would meet a handler."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize("ready", [False, True], ids=["while it starts", "when it is ready"])
def test_sigterm_ends_the_service_with_0(tmp_path: Path, ready: bool) -> None:
    environment = os.environ | {"PRIVEST_ADMIN_KEY": "x" * 16, "PRIVEST_DATA_DIR": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(SERVE, env=environment, stderr=file)
    try:
        until(lambda: b"startup complete" in log.read_bytes() if ready else catches(process))
        children = psutil.Process(process.pid).children(recursive=True)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - begun < 20
        psutil.wait_procs(children, timeout=10)
        assert not any(child.is_running() for child in children)
    finally:
        process.kill()
