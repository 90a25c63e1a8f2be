"""Chromium for the tests of pages, and visitors who use it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from browsing import Site, Visitor, chromium, find_chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module: no longer, as tests elsewhere need asyncio."""
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium here; `apt-get install chromium` brings one")
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
