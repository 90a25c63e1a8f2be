"""`/docs` in a browser: the whole interface, from this service alone."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from testing.browser import Visitor
from testing.reverse_proxy import proxied
from testing.server import Server

Visit = Callable[..., Visitor]


@pytest.fixture
def backend() -> str:
    """No database is asked."""
    return "sqlite"


@pytest.mark.costly
def test_the_interface_is_read_and_tried_without_another_host(site: Server, visit: Visit) -> None:
    """The visitor fails the test for requests to other hosts, and for what the page's policy refuses."""
    key = site.owner().key
    visitor = visit(site)
    page = visitor.page
    answer = visitor.open("/docs")
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    expect(page.locator(".info .title")).to_contain_text("Privest")
    calls = {
        (method, path)
        for path, each in site.admin.get("/openapi.json").json()["paths"].items()
        for method in each
    }
    expect(page.locator(".opblock")).to_have_count(len(calls))
    page.get_by_role("button", name="Authorize").click()
    page.locator(".auth-container input").first.fill(key)
    page.locator(".auth-container").get_by_role("button", name="Apply credentials").click()
    page.get_by_role("button", name="Close", exact=True).click()
    me = page.locator(".opblock", has_text="/v1/me")
    me.locator(".opblock-summary-control").click()
    me.get_by_role("button", name="Try it out").click()
    with page.expect_response("**/v1/me") as told:
        me.get_by_role("button", name="Execute").click()
    assert told.value.status == 200
    expect(me.locator(".live-responses-table td.response-col_status").last).to_have_text("200")
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


@pytest.mark.costly
def test_the_interface_below_a_path(shared_server: Callable[..., Server], visit: Visit) -> None:
    server = shared_server(root_path="/apps/privest", trusted_proxies="127.0.0.1")
    with proxied(server.url, "/apps/privest") as url:
        visitor = visit(SimpleNamespace(url=url))
        visitor.open("/docs")
        expect(visitor.page.locator(".info .title")).to_contain_text("Privest")
        # visitors end before the proxy does
        visitor.context.close()


def test_its_files_are_kept_by_browsers(site: Server) -> None:
    answer = site.admin.get("/docs/static/swagger-ui.css")
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert site.admin.get("/docs/static/../core.py").status_code == 404
