"""A hub and sites as processes of their own, and an analyst who may ask about all of their datasets."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import Limits
from privest_service.security.service import create_analyst
from privest_service.signing import Signer
from testing.server import Caller, Server, private_key_pem, until

BUDGET: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-3}


@dataclass
class Site:
    """A service that has rows, its owner there, the hub as it is known there, and its owner at the hub.

    `settings` are what it was started with, besides those that a test service has anyway.
    """

    server: Server
    owner: Caller
    hub: Caller
    at_hub: Caller
    settings: dict[str, Any]

    def offer(self, rows: np.ndarray, schema: dict[str, Any] | None = None, **terms: Any) -> str:
        """Register rows here and grant them to the hub; return the id that the dataset has there."""
        here = self.owner.dataset(rows, schema)
        assert self.owner.grant(here, self.hub, **terms).status_code == 200
        return until(lambda: self.known().get(here))

    def known(self) -> dict[str, str]:
        """Datasets that the hub knows to be here: its ids by those of the site."""
        found = self.at_hub.get("/v1/datasets").json()["datasets"]
        return {each["at_site"]: each["id"] for each in found}

    def restart(self) -> None:
        """Start the site again, after it was killed."""
        self.server = Server(self.server.directory, self.server.database_url, **self.settings)
        self.owner, self.hub = (Caller(self.server, c.id, c.key) for c in (self.owner, self.hub))


@dataclass
class Sites:
    """A hub, its sites, and an analyst of the hub."""

    hub: Server
    sites: list[Site]
    analyst: Caller
    datasets: list[str] = field(default_factory=list)

    def offering(
        self, rows: Sequence[np.ndarray], schema: dict[str, Any] | None = None, **terms: Any
    ) -> "Sites":
        """Have each site offer rows, which the analyst may ask about at the hub; return these with them."""
        datasets = list[str]()
        for site, own in zip(self.sites, rows, strict=True):
            datasets.append(site.offer(own, schema, **terms))
            assert site.at_hub.grant(datasets[-1], self.analyst).status_code == 200
        return replace(self, datasets=datasets)

    def ask(self, kind: str = "frechet-mean", *, wait: int = 120, **body: Any) -> httpx.Response:
        """Ask about all datasets together."""
        privacy = {"epsilon": body.pop("epsilon", 0.2), "delta": body.pop("delta", 1e-6)}
        about = body.pop("about", None) or [{"id": each} for each in self.datasets]
        return self.analyst.post(
            f"/v1/estimates/{kind}",
            headers={"Idempotency-Key": f"key {np.random.default_rng().integers(2**60)}"}
            | ({"Prefer": f"wait={wait}"} if wait else {}),
            json={"dataset": about, "privacy": privacy} | body,
        )

    def restart_hub(self) -> None:
        """Start the hub again, after it was killed, at another address."""
        self.hub = Server(self.hub.directory, self.hub.database_url)
        self.analyst = Caller(self.hub, self.analyst.id, self.analyst.key)
        for site in self.sites:
            site.at_hub = Caller(self.hub, site.at_hub.id, site.at_hub.key)

    def servers(self) -> Iterator[Server]:
        """The hub and all sites."""
        yield self.hub
        for site in self.sites:
            yield site.server


def _people(directory: Path, database_url: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """A new owner and a new analyst of a service, each by id and key: a site knows both when it starts."""
    key = private_key_pem()
    (directory / "signing.pem").write_bytes(key)
    (directory / "secret").write_bytes(secrets.token_bytes(32))
    database = Database(database_url, signer=Signer(key))
    migrate(database)
    limits = Limits.of(BUDGET["epsilon"], BUDGET["delta"], "gdp")
    with database.write() as session:
        owner, owners_key = create_owner(session, "An owner", limits)
        analyst, analysts_key = create_analyst(session, "The hub")
        found = (owner.id, owners_key), (analyst.id, analysts_key)
    database.close()
    return found


@contextmanager
def sites(
    directory: Path,
    database: Callable[[], str],
    count: int = 2,
    through: Callable[[str], str] = lambda url: url,
    **settings: Any,
) -> Iterator[Sites]:
    """A hub with so many sites, whose settings are given.

    Args:
        directory: for all of them.
        database: makes URLs of fresh databases.
        count: of sites.
        through: the address by which each site calls the hub, made from the hub's own.
        settings: of every site.
    """
    started, them = list[Server](), None

    def made(name: str, url: str, **settings: Any) -> Server:
        started.append(Server(directory / name, url, **settings))
        return started[-1]

    try:
        (directory / "hub").mkdir()
        hub = made("hub", database())
        them = Sites(hub, [], hub.analyst())
        for place in range(count):
            folder, url, at_hub = directory / f"site{place}", database(), hub.owner(**BUDGET)
            folder.mkdir()
            owner, analyst = _people(folder, url)
            given: dict[str, Any] = {
                "hub_url": through(hub.url),
                "hub_key": at_hub.key,
                "hub_analyst": analyst[0],
            } | settings
            server = made(folder.name, url, **given)
            them.sites.append(Site(server, Caller(server, *owner), Caller(server, *analyst), at_hub, given))
        yield them
    finally:
        for server in [*started, *(them.servers() if them else ())]:
            if server.process.poll() is None:
                server.kill()
