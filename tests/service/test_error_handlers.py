"""Errors that no endpoint raises: unknown paths and methods, and faults of the service itself."""

import httpx
import pytest
from sqlalchemy import update

from privest_service.database import Database
from privest_service.datasets.models import Dataset
from testing.server import Caller, Server, problem

MARK = "987654.321"


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner()


def silent(response: httpx.Response) -> None:
    """Nothing that was sent comes back, in whatever spelling."""
    everything = response.text + str(response.headers)
    assert not [mark for mark in (MARK, "MARKER", "987654") if mark in everything], everything


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/MARKER", 404, "not-found"),
        ("GET", "/v1/MARKER", 404, "not-found"),
        ("POST", "/v1/estimates/MARKER", 404, "not-found"),
        ("POST", "/v1/estimates/MARKER/plan", 404, "not-found"),
        ("GET", "/v1/jobs/MARKER", 404, "not-found"),
        ("GET", "/redoc", 404, "not-found"),
        ("GET", "/v1/datasets/..%2f..%2fMARKER", 404, "not-found"),
    ],
)
def test_routes_that_are_not_there(owner: Caller, method: str, path: str, status: int, slug: str) -> None:
    answer = owner.request(method, path)
    problem(answer, status, slug)
    silent(answer)


def test_methods_that_are_not_there(owner: Caller) -> None:
    for method, path, allowed in (
        ("PUT", "/v1/datasets", "GET, POST"),
        ("DELETE", "/v1/owners", "GET, POST"),
        ("DELETE", "/v1/jobs/x", "GET"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/v1/datasets/x", "GET, DELETE"),
        ("POST", "/v1/datasets/x/grants/y", "GET, PUT, DELETE"),
        ("DELETE", "/dashboard/datasets/new", "GET, POST"),
        ("DELETE", "/dashboard/static/dashboard.css", "GET, HEAD"),
    ):
        answer = owner.request(method, path)
        told = problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == allowed
        assert allowed in told["detail"]


def test_what_the_service_keeps_wrongly_is_no_fault_of_who_asks(owner: Caller) -> None:
    dataset = owner.dataset()
    database = Database(owner.server.database_url)
    with database.write() as session:
        session.execute(
            update(Dataset).where(Dataset.id == dataset).values(dataset_schema=f'{{"{MARK}": 1}}')
        )
    database.close()
    for answer in (owner.get(f"/v1/datasets/{dataset}"), owner.estimate(dataset)):
        assert (answer.status_code, answer.json()["type"]) == (500, "about:blank")
        silent(answer)
