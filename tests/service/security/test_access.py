"""Every route by every kind of caller: whose things it is about, other owners, analysts, nobody."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from audit import access, served
from privest_service.app import create_app
from testing.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A service of these tests, in which the audit plants a fault."""
    with served.alone() as server:
        yield server


def _routes(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield all routes of an application, those of routers within routers too."""
    for route in routes:
        if hasattr(route, "effective_candidates"):
            yield from _routes(route.effective_candidates())
        else:
            yield route


def test_every_route_of_the_interface_is_tried_below() -> None:
    found = {
        (method, route.path)
        for route in _routes(create_app(None).routes)
        if route.path != "/openapi.json"
        for method in route.methods
        if method != "HEAD"  # of the probes, which answer everybody
    }
    assert {(operation.method, operation.path) for operation in access.operations()} == found


def test_every_route_answers_each_caller_as_the_table_says(server: Server) -> None:
    assert list(access.wrong(server)) == []
