"""A real identity provider on 127.0.0.1: Canaille, with people, groups, clients and a SCIM service.

    python -m testing.identity_provider PORT

It is a process of its own, as it is in life, and keeps all in memory. People and groups are changed as an
administrator would change them: over SCIM.
"""

import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from testing import ROOT
from testing.server import HANG_GUARD, free_address, until

PASSWORD = "correct horse battery"  # noqa: S105 - of everybody, on this machine
AUDIENCE = "privest"
PLATFORMS = ("jupyterhub", "superset")
"""Clients of the provider, whose tokens are for themselves and for the service."""

PEOPLE = {"ada": ["stats"], "bob": ["stats", "clinic"], "cyd": [], "eve": ["stats"], "root": ["admins"]}
"""People with their groups."""


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
                [sys.executable, "-m", "testing.identity_provider", port],
                cwd=ROOT,
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


def _filled() -> Any:
    """The provider as an application, with its people, groups and clients."""
    from canaille import create_app
    from canaille.app import models
    from canaille.backends import Backend
    from joserfc.jwk import RSAKey

    port = sys.argv[1]
    key = RSAKey.generate_key(2048, auto_kid=True).as_dict(private=True)
    app: Any = create_app(
        {
            "SECRET_KEY": os.urandom(32).hex(),
            "SERVER_NAME": f"127.0.0.1:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory"},
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [key]},
            "CANAILLE_SCIM": {"ENABLE_SERVER": True},
        }
    )
    made = datetime.datetime.now(datetime.UTC)
    known: Any = models

    def kept(each: Any) -> Any:
        Backend.instance.save(each)
        return each

    def client(name: str) -> Any:
        return kept(
            known.Client(
                client_id=name,
                client_secret=f"{name}-secret",
                client_name=name,
                client_uri=f"http://127.0.0.1/{name}",
                contacts=[f"{name}@example.org"],
                redirect_uris=[f"http://127.0.0.1/{name}/back"],
                grant_types=["password", "client_credentials"],
                response_types=["code"],
                scope=["openid", "profile", "groups"],
                token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - its name
                client_id_issued_at=made,
            )
        )

    with app.app_context():
        people = {
            name: kept(
                known.User(
                    user_name=name,
                    formatted_name=f"{name.title()} of the lab",
                    family_name=name.title(),
                    emails=[f"{name}@example.org"],
                    password=PASSWORD,
                )
            )
            for name in PEOPLE
        }
        for group in sorted({group for groups in PEOPLE.values() for group in groups}):
            theirs = [people[name] for name, groups in PEOPLE.items() if group in groups]
            kept(known.Group(display_name=group, members=theirs))
        service = client(AUDIENCE)
        for name in PLATFORMS:
            platform = client(name)
            platform.audience = [platform, service]
            kept(platform)
    return app


if __name__ == "__main__":
    from werkzeug.serving import make_server

    make_server("127.0.0.1", int(sys.argv[1]), _filled(), threaded=True).serve_forever()
