"""A real identity provider on 127.0.0.1: Canaille, with people, groups, clients and a SCIM service.

It is a process of its own, as it is in life, and keeps all in memory. People and groups are changed as an
administrator would change them: over SCIM.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from testing import ROOT
from testing.identity_server import PASSWORD, PLATFORMS
from testing.server import HANG_GUARD, free_address, until

_UV = shutil.which("uv", path=f"{ROOT / '.uv/bin'}") or "uv"
_RUN = (_UV, "run", "--locked", "--quiet", "--only-group", "identity", "python")
_ENVIRONMENT = Path(sys.prefix) / "identity"
"""Where it runs: in an environment of its own. Its wheel has a package called `tests`, which would hide ours.

It stays: in a new one all that is loaded would be compiled, which takes most of a start.
"""


class IdentityProvider:
    """A provider that runs, until it is stopped.

    Args:
        directory: for its log.
        address: where it listens; a free one if left out.
    """

    def __init__(self, directory: Path, address: str = "") -> None:
        self.address = address or free_address()
        self.issuer = f"http://{self.address}"
        self.keys = f"{self.issuer}/oauth/jwks.json"
        self.scim = f"{self.issuer}/scim/v2"
        port = self.address.rpartition(":")[2]
        with (directory / "identity.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_RUN, str(ROOT / "testing/identity_server.py"), port],
                cwd=ROOT,
                env=os.environ | {"UV_PROJECT_ENVIRONMENT": str(_ENVIRONMENT)},
                stdout=log,
                stderr=log,
            )
        until(self._ready)

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError("the identity provider ended")
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a service that takes its tokens."""
        return {
            "token_issuer": self.issuer,
            "token_keys": self.keys,
            "token_algorithms": '["RS256", "RS512"]',
        }

    def token(self, person: str, platform: str = "jupyterhub") -> str:
        """An access token of a person, issued to a platform."""
        asked = {"grant_type": "password", "username": person, "password": PASSWORD}
        return self._issued(platform, asked | {"scope": "openid profile groups"})

    def scim_token(self) -> str:
        """What opens the SCIM service: a token of a client's own."""
        return self._issued(PLATFORMS[0], {"grant_type": "client_credentials"})

    def _issued(self, client: str, asked: dict[str, str]) -> str:
        answer = httpx.post(
            f"{self.issuer}/oauth/token", auth=(client, f"{client}-secret"), data=asked, timeout=HANG_GUARD
        )
        answer.raise_for_status()
        return answer.json()["access_token"]

    def _call(self, method: str, path: str, body: object = None) -> Any:
        head = {"Authorization": f"Bearer {self.scim_token()}"}
        answer = httpx.request(method, f"{self.scim}{path}", json=body, headers=head, timeout=HANG_GUARD)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def dismiss(self, person: str) -> None:
        """Remove a person."""
        self._call("DELETE", f"/Users/{person}")

    def take_out(self, person: str, group: str) -> None:
        """Take a person out of a group."""
        found = self._call("GET", f"/Groups/{group}")
        found["members"] = [each for each in found["members"] if not each["$ref"].endswith(f"/{person}")]
        self._call("PUT", f"/Groups/{group}", found)

    def stop(self) -> None:
        """End it, and all that it knew."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(HANG_GUARD)
