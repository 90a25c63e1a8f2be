"""The examples behind platforms, against a service that runs: a hub's two hooks, and a scheduler's task."""

import asyncio
import importlib.util
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from privest_client import Client
from privest_client.errors import PrivestError
from testing import ROOT
from testing.identity_provider import IdentityProvider
from testing.server import Caller, Server, problem


@pytest.fixture
def backend() -> str:
    """The database has no part in this."""
    return "sqlite"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def spawner(token: str) -> Any:
    """What a hub hands to its hooks, as far as they look at it."""

    async def state() -> dict[str, str]:
        return {"access_token": token}

    user = SimpleNamespace(get_auth_state=state)
    return SimpleNamespace(user=user, environment={"LANG": "C.UTF-8"}, log=logging.getLogger("hub"))


def test_a_hub_gives_each_server_a_key_of_its_user_that_ends_with_it(
    start_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = IdentityProvider(tmp_path)
    server = start_server(**provider.settings, token_groups=json.dumps({"stats": "analyst"}))
    hub, owner = server.analyst(), server.owner()
    may = {"scopes": ["read", "estimate", "manage"], "on_behalf_of": {"client": "jupyterhub"}}
    key = server.admin.post(f"/v1/analysts/{hub.id}/keys", json=may).json()["key"]
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_HUB_KEY", key)
    hooks, started = example("jupyterhub_launch"), spawner(provider.token("ada"))
    asyncio.run(hooks.launch(started))
    assert started.environment.keys() == {"LANG", "PRIVEST_URL", "PRIVEST_KEY"}
    notebook = Caller(server, "", started.environment["PRIVEST_KEY"])
    ada = Caller(server, notebook.get("/v1/me").json()["id"], "")
    dataset = owner.dataset()
    owner.grant(dataset, ada)
    monkeypatch.setenv("PRIVEST_KEY", notebook.key)
    with Client.from_env(progress=False) as client:  # as a user writes it in a notebook
        found = client.frechet_mean(dataset, epsilon=0.1)
    job = owner.get(f"/v1/jobs/{found.id}").json()
    assert (job["person"], job["through"]) == ("ada", hub.id)
    problem(notebook.post(f"/v1/analysts/{ada.id}/keys"), 403, "forbidden")
    with Client(server.url, key, on_behalf_of=lambda: provider.token("ada"), progress=False) as client:
        assert client.me().id == ada.id
    asyncio.run(hooks.end(started))
    problem(notebook.get("/v1/me"), 401, "unauthenticated")
    assert "PRIVEST_KEY" not in started.environment
    asyncio.run(hooks.end(started))  # a server that never began has nothing to end
    provider.stop()


def test_a_scheduled_task_is_charged_once_for_each_period(
    start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server()
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    monkeypatch.setenv("PRIVEST_URL", server.url)
    monkeypatch.setenv("PRIVEST_KEY", analyst.key)
    task = example("scheduled_mean").mean_of
    first, again, later = (task(dataset, period, 0.1) for period in ("2026-W48", "2026-W48", "2026-W49"))
    assert first == again
    assert json.loads(json.dumps(first)) == first, "it fits between tasks"
    assert later["job"] != first["job"]
    assert owner.budget()["queries"] == 2
    with pytest.raises(PrivestError):
        task(dataset, "2026-W50", 5.0)
    assert owner.budget()["queries"] == 2
