"""Chromium for the tests of pages, visitors who use it, and a site that they visit."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from testing.browser import Site, Visitor, chromium, find_chromium
from testing.history import signing_key
from testing.scenes import Hospital, hospital
from testing.server import HANG_GUARD, Server

expect.set_options(timeout=1000 * HANG_GUARD)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module: no longer, as tests elsewhere need asyncio."""
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium here; `make chromium` brings one")
    with chromium(path) as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Begins visits: from a site, with options of `Visitor`. Whatever goes wrong in one fails the test."""
    with ExitStack() as stack:

        def begin(site: Site, **how: Any) -> Visitor:
            visitor = Visitor(browser, site, **how)
            stack.callback(visitor.end)
            return visitor

        yield begin


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]) -> Iterator[Server]:
    """A service on SQLite, shared by the tests of pages of one worker, whose ledgers tests can write.

    This machine is a proxy to it, so that visitors can come from elsewhere.
    """
    directory = tmp_path_factory.mktemp("site")
    notices = directory / "notices"
    notices.mkdir()
    server = Server(
        directory,
        new_database("sqlite"),
        signing_key_file=signing_key(directory),
        trusted_proxies="127.0.0.1",
        notice_dir=notices,
    )
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def anna(site: Server) -> Hospital:
    """A hospital with a past, which tests look at and leave as it is."""
    return hospital(site)
