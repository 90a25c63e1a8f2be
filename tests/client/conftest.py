"""A service, an owner with a budget, and its client: what tests of the client begin with."""

from collections.abc import Iterator

import pytest

from privest_client import Client
from testing.server import Caller, Server


@pytest.fixture
def backend() -> str:
    """One database: the client sees neither."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner with a budget."""
    return server.owner(epsilon=50.0, delta=1e-3)


@pytest.fixture
def client(server: Server, owner: Caller) -> Iterator[Client]:
    """A client with the owner's key."""
    with Client(server.url, owner.key, progress=False) as made:
        yield made
