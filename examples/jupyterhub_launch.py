"""What a JupyterHub does so that each user's server asks in that user's name, and only while it runs.

In jupyterhub_config.py, with an authenticator that keeps the users' tokens (`enable_auth_state`):

    from jupyterhub_launch import end, launch
    c.Spawner.pre_spawn_hook, c.Spawner.post_stop_hook = launch, end

The hub's own environment has PRIVEST_URL and PRIVEST_HUB_KEY: the key of a service account that may ask for
people who come from the hub's client. Before a server starts, the hub has a key issued for its user. That
key reads and asks, and does nothing else. It ends when the server does, or by itself, and with the hub's.
"""

import os
from typing import Any

import httpx

HOURS = 12
"""Longest session: at most the hours that the hub's key allows."""


def _service(headers: dict[str, str]) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=os.environ["PRIVEST_URL"], headers=headers, timeout=30)


async def launch(spawner: Any) -> None:
    """Put the address and a key of the user's into the environment of a server that is to start.

    Raises:
        httpx.HTTPStatusError: the service knows no such user, whose server then does not start.
    """
    state = await spawner.user.get_auth_state()
    headers = {
        "Authorization": f"Bearer {os.environ['PRIVEST_HUB_KEY']}",
        "Privest-On-Behalf-Of": state["access_token"],
        "Privest-Reason": "a notebook server starts",
    }
    async with _service(headers) as service:
        me = (await service.get("/v1/me")).raise_for_status().json()
        asked = {"scopes": ["read", "estimate"], "expires_in": HOURS * 3600}
        made = (await service.post(f"/v1/analysts/{me['id']}/keys", json=asked)).raise_for_status().json()
    # A dictionary of its own: nothing of one user may get into what spawners share.
    own = {"PRIVEST_URL": os.environ["PRIVEST_URL"], "PRIVEST_KEY": made["key"]}
    spawner.environment = {**spawner.environment, **own}
    spawner.privest_key = f"/v1/analysts/{me['id']}/keys/{made['id']}"


async def end(spawner: Any) -> None:
    """Revoke the key of a server that has ended, by itself: the user's token may have ended long before."""
    if (place := getattr(spawner, "privest_key", None)) is None:
        return
    key = spawner.environment["PRIVEST_KEY"]
    spawner.environment = {name: told for name, told in spawner.environment.items() if name != "PRIVEST_KEY"}
    async with _service({"Authorization": f"Bearer {key}"}) as service:
        answer = await service.delete(place)
    if answer.status_code not in (204, 401):  # it was revoked, or had ended
        spawner.log.warning("a key of Privest was not revoked and ends by itself: %s", answer.status_code)
    spawner.privest_key = None
