"""The identity provider's own process: Canaille on 127.0.0.1, with people, groups and clients, all in memory.

    uv run --only-group identity python testing/identity_server.py PORT

It runs in an environment of its own, where nothing of this project is, and so imports nothing of it.
"""
# pyright: reportMissingImports=false, reportUnknownVariableType=false

import datetime
import os
import sys
from typing import Any

PASSWORD = "correct horse battery"  # noqa: S105 - of everybody, on this machine
AUDIENCE = "privest"
PLATFORMS = ("jupyterhub", "superset")
"""Clients of the provider, whose tokens are for themselves and for the service."""

PEOPLE = {"ada": ["stats"], "bob": ["stats", "clinic"], "cyd": [], "eve": ["stats"], "root": ["admins"]}
"""People with their groups."""


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
