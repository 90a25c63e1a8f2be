"""A service started for one demonstration: its own process, its own folder, a free port of this machine."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx


@contextmanager
def running_service() -> Iterator[tuple[str, str]]:
    """Start `privest serve` on SQLite in a temporary folder; stop it and remove the folder at the end.

    Yields:
        its address and its admin key.

    Raises:
        RuntimeError: it did not come up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="privest-demo-") as folder:
        log = Path(folder) / "log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PRIVEST_")}
        environment |= {"PRIVEST_ADMIN_KEY": key, "PRIVEST_DATA_DIR": str(Path(folder) / "data")}
        command = [sys.executable, "-m", "privest_service", "serve", "--port", str(port)]
        with log.open("w") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)  # noqa: S603
        try:
            _await(f"http://127.0.0.1:{port}/readyz", process, log)
            yield f"http://127.0.0.1:{port}", key
        finally:
            process.terminate()
            process.wait(timeout=60)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(url, timeout=2).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")
