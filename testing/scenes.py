"""What tests of pages share: people with names, a hospital with a past, and sessions without a browser."""

import json
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from importlib import import_module
from typing import Any

import httpx
import numpy as np
from fastapi import APIRouter
from fastapi.routing import APIRoute
from sqlalchemy import select

from privest_service.acts.models import Refusals
from privest_service.dashboard import pages
from privest_service.database import Base, Database
from testing.history import past
from testing.server import HANG_GUARD, LABELLED, PLAIN, SIGNER, Caller, Server, npy, spd, told_apart

SPD2 = {"kind": "points", "manifold": {"name": "spd", "dim": 2}, "radius": 1.0}
VECTORS = {"kind": "vectors", "dim": 6}


# People and their rows


def owner_called(server: Server, name: str, epsilon: float = 3.0, composition: str = "gdp") -> Caller:
    """A new owner, with a δ of 1e-5."""
    budget = {"epsilon": epsilon, "delta": 1e-5, "composition": composition}
    return _made(server, "/v1/owners", name=name, budget=budget)


def analyst_called(server: Server, name: str) -> Caller:
    """A new analyst."""
    return _made(server, "/v1/analysts", name=name)


def _made(server: Server, path: str, **body: Any) -> Caller:
    made = server.admin.post(path, json=body)
    assert made.status_code == 201, made.text
    return Caller(server, made.json()["id"], made.json()["key"])


def dataset_called(
    owner: Caller, name: str, rows: np.ndarray | None = None, schema: dict[str, Any] | None = None
) -> str:
    """A new dataset; by default 60 matrices of SPD(2)."""
    file = ("rows.npy", npy(spd(60, 2) if rows is None else rows))
    declared = {"schema": json.dumps(schema or SPD2), "name": name}
    made = owner.post("/v1/datasets", files={"file": file}, data=declared)
    assert made.status_code == 201, made.text
    return made.json()["id"]


@contextmanager
def books(server: Server) -> Iterator[Database]:
    """The database of a server, by another connection."""
    database = Database(server.database_url, signer=SIGNER)
    yield database
    database.close()


def everything(server: Server) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables but the one that housekeeping empties by itself, a minute after an act."""
    with books(server) as database, database.read() as session:
        return {
            table.name: sorted(map(tuple, session.execute(select(table)).all()), key=repr)
            for table in Base.metadata.sorted_tables
            if table.name != Refusals.__tablename__
        }


# A hospital


@dataclass(frozen=True)
class Hospital:
    """An owner with eight weeks behind it, and questions of its own that were answered.

    Attributes:
        server: where it is registered.
        owner: itself.
        analysts: two, who may ask about all datasets.
        datasets: by their names.
        jobs: of its own questions, by what they were about.
    """

    server: Server
    owner: Caller
    analysts: list[Caller]
    datasets: dict[str, str]
    jobs: dict[str, str]


def hospital(server: Server, queries: int = 80) -> Hospital:
    """Found one, on a server that signs with the key of tests."""
    owner = owner_called(server, "St. Anna Hospital")
    analysts = [analyst_called(server, "Ada Okafor"), analyst_called(server, "Jonas Lindqvist")]
    rng = np.random.default_rng(0)
    panels = rng.standard_normal((5000, 6)) * [0.5, 0.4, 0.2, 0.1, 0.1, 0.05]
    large = {"kind": "points", "manifold": {"name": "spd", "dim": 8}, "radius": 1.5}
    stretch = np.array([[1.5, 0.5], [0.5, 0.7]])
    patients = told_apart(3000, apart=2.0) * [6, 5, 1] + [0, 1, 0]
    ward_7 = LABELLED | {"features": ["age", "dose"], "label": "ill", "mean": [60, 1], "scale": [12, 0.5]}
    tensors = SPD2 | {"center": (stretch @ stretch).tolist()}
    datasets = {
        "Diffusion tensors": dataset_called(
            owner, "Diffusion tensors", stretch @ spd(400, 2) @ stretch, tensors
        ),
        "EEG covariances": dataset_called(owner, "EEG covariances", spd(600, 8), large),
        "Blood panels": dataset_called(owner, "Blood panels", panels, VECTORS),
        "Ward 7, 2025": dataset_called(owner, "Ward 7, 2025", patients, ward_7),
    }
    for analyst in analysts:
        for dataset in datasets.values():
            assert owner.grant(dataset, analyst).status_code == 200
    with books(server) as database:
        since = datetime.now(UTC) - timedelta(weeks=8)
        past(database, owner, list(datasets.values()), analysts, since=since, queries=queries, spent=0.55)
    ward = datasets["Ward 7, 2025"]
    jobs = {
        "ellipse": answered(owner, datasets["Diffusion tensors"]),
        "heat map": answered(owner, datasets["EEG covariances"]),
        "loadings": answered(owner, datasets["Blood panels"], kind="robust-pca", rank=2),
        "coefficients": answered(owner, ward, kind="logistic-regression"),
        "score": answered(
            owner, ward, kind="classifier-score", coefficients=[0.12, 0.8], intercept=-8.0, metric="auc"
        ),
    }
    return Hospital(server, owner, analysts, datasets, jobs)


def answered(caller: Caller, dataset: str, **body: Any) -> str:
    """The job of a question that was charged and answered."""
    asked: dict[str, Any] = {"epsilon": 0.2, "delta": 1e-6} | body
    answer = caller.estimate(dataset, **asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "committed", answer.text
    return answer.json()["id"]


# Routes


def routes(method: str) -> set[str]:
    """The paths of all pages below /dashboard that answer to a method."""
    modules = [
        import_module(f"{pages.__name__}.{each.name}") for each in pkgutil.iter_modules(pages.__path__)
    ]
    return {
        route.path.removeprefix("/dashboard")
        for module in modules
        for router in (module.router, getattr(module, "uploads", APIRouter()))
        for route in router.routes
        if isinstance(route, APIRoute) and method in (route.methods or ())
    }


def all_pages(anna: Hospital) -> list[tuple[str, int]]:
    """Pages of an owner, with what they answer."""
    dataset = anna.datasets["Blood panels"]
    paths = ["", "/learned", "/datasets", "/ledger?state=committed", "/ledger/1", "/ledger/9", "/analysts"]
    paths += [
        f"/datasets/new?kind={kind}"
        for kind in ("table", "points", "vectors", "partial-vectors", "labelled", "json")
    ]
    paths += [f"/datasets/{dataset}", f"/datasets/{dataset}/delete", "/answers", "/sign-in"]
    paths += [f"/what-if?dataset={dataset}&epsilon={epsilon}" for epsilon in (0.2, 9)]
    paths += [f"/answers/{job}" for job in anna.jobs.values()]
    paths += ["/budget", "/notices", "/acts", "/questions", "/published", "/keys", "/glossary"]
    refused = [("/nowhere", 404), ("/admin", 403), ("/ledger?before=x", 422)]
    return [(path, 200) for path in paths] + refused


def admin_pages(anna: Hospital) -> list[str]:
    """Pages of the administrator."""
    people = [f"/admin/owners/{anna.owner.id}", f"/admin/analysts/{anna.analysts[0].id}"]
    return ["/admin", "/admin/analysts", "/admin/service", "/acts", *people]


def analyst_pages(anna: Hospital) -> list[str]:
    """Pages of an analyst of the hospital."""
    dataset = anna.datasets["Blood panels"]
    planned = f"/what-if?dataset={dataset}&epsilon=0.2"
    return [
        "/granted",
        f"/granted/{dataset}",
        planned,
        "/answers",
        "/published",
        "/notices",
        "/keys",
        "/glossary",
    ]


# Pages without a browser


class Markup(HTMLParser):
    """Parses a page: its elements with their attributes, and what stands in script and style tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in ("script", "style") and data.strip():
            self.inline.append(data)

    @property
    def token(self) -> str:
        """The session's token, as the first form on the page has it."""
        return next(
            given["value"] or ""
            for tag, given in self.elements
            if tag == "input" and given.get("name") == "token"
        )


class Desk:
    """A session without a browser.

    Args:
        server: that is visited.
        key: that opens the session.
    """

    def __init__(self, server: Server, key: str) -> None:
        self._http = httpx.Client(base_url=f"{server.url}/dashboard", timeout=HANG_GUARD, verify=PLAIN)
        entered = self._http.post("/sign-in", data={"key": key})
        assert entered.status_code == 303, entered.text
        self.cookie = self._http.cookies["privest-session"]

    def get(self, path: str, **content: Any) -> httpx.Response:
        """One page."""
        return self._http.get(path, **content)

    def forget(self) -> None:
        """Lose the cookie."""
        self._http.cookies.clear()

    @property
    def token(self) -> str:
        """What forms of this session carry."""
        return Markup(self._http.get("", follow_redirects=True).text).token

    def post(
        self,
        path: str,
        data: dict[str, str] | None = None,
        *,
        token: str | None = "",
        headers: dict[str, str] | None = None,
        **content: Any,
    ) -> httpx.Response:
        """One form; with the token of the session unless another, or None, is given."""
        sent = dict(data or {})
        if token is not None:
            sent["token"] = token or self.token
        return self._http.post(path, data=sent, headers=headers, **content)
