"""Services started for one demonstration: each with its own processes, folder and free port."""

import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_PROGRAM = (sys.executable, "-m", "privest_service")

_PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Clients of services without TLS have this one, as each of its own would read the machine's certificates."""

_PATIENCE = 300.0
"""Seconds for a service to come up, or to end."""


class Service:
    """`privest serve` on SQLite.

    Args:
        folder: of its own, for its ledger, keys and rows.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.folder, self.admin_key = folder, secrets.token_urlsafe(24)
        self.address = f"http://127.0.0.1:{self._port}"
        self._settings = {"PRIVEST_ADMIN_KEY": self.admin_key, "PRIVEST_DATA_DIR": str(folder / "data")}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: str) -> None:
        """Serve, with these settings besides those it was started with before.

        Raises:
            RuntimeError: it did not come up.
        """
        self._settings |= {f"PRIVEST_{name.upper()}": value for name, value in settings.items()}
        log = self.folder / "log"
        with log.open("w") as output:
            command = [*_PROGRAM, "serve", "--port", str(self._port)]
            self._process = subprocess.Popen(command, env=self._environment, stdout=output, stderr=output)  # noqa: S603
        deadline = time.monotonic() + _PATIENCE
        with self.caller() as http:
            while time.monotonic() < deadline and self._process.poll() is None:
                try:
                    if http.get("/readyz", timeout=2).is_success:
                        return
                except httpx.TransportError:
                    time.sleep(0.1)
        raise RuntimeError(f"the service did not start:\n{log.read_text()}")

    def stop(self) -> None:
        """End it, if it was started."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=_PATIENCE)

    def run(self, *command: str) -> str:
        """Return what another command of the program says about this service's folder.

        Raises:
            RuntimeError: it ended with an error.
        """
        done = subprocess.run(  # noqa: S603
            [*_PROGRAM, *command], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    @property
    def _environment(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith("PRIVEST_")} | self._settings

    def caller(self, key: str | None = None) -> httpx.Client:
        """Calls with a key; the administrator's by default."""
        return httpx.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {key or self.admin_key}"},
            timeout=120,
            verify=_PLAIN,
        )


@contextmanager
def services(count: int) -> Iterator[Sequence[Service]]:
    """So many services, not started yet; at the end they are stopped, and their folders removed."""
    with tempfile.TemporaryDirectory(prefix="privest-demo-") as folder:
        made = list[Service]()
        for number in range(count):
            own = Path(folder) / str(number)
            own.mkdir()
            made.append(Service(own))
        try:
            yield made
        finally:
            for service in made:
                service.stop()


def ok(response: httpx.Response) -> dict[str, Any]:
    """The body of a successful answer.

    Raises:
        RuntimeError: with the problem document otherwise.
    """
    if not response.is_success:
        raise RuntimeError(f"{response.request.method} {response.request.url.path}: {response.text}")
    return response.json() if response.content else {}
