"""All pages below a path of a proxy: every link and every file on them leads to where they are."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from testing.browser import Visitor
from testing.reverse_proxy import proxied
from testing.scenes import Markup, answered, dataset_called, owner_called
from testing.server import Server

ADDRESSES = ("href", "src", "action", "data-events")


@pytest.fixture
def backend() -> str:
    """No database knows of paths."""
    return "sqlite"


def test_every_link_of_every_page_leads_on(
    shared_server: Callable[..., Server], visit: Callable[..., Visitor]
) -> None:
    server = shared_server(root_path="/apps/privest", trusted_proxies="127.0.0.1")
    owner = owner_called(server, "Below")
    answered(owner, dataset_called(owner, "Rows"))
    with proxied(server.url, "/apps/privest") as url:
        visitor = visit(SimpleNamespace(url=url))
        landed = visitor.sign_in(owner.key)
        assert landed.url == f"{url}/dashboard"
        page = visitor.page
        expect(page.locator("#live")).to_be_visible()  # so that scripts and streams are found, too
        expect(page.locator('nav [aria-current="page"]')).to_have_text("Overview")
        asked, to_ask = set[str](), {"/apps/privest/dashboard"}
        while to_ask:
            path = to_ask.pop()
            asked.add(path)
            answer = visitor.context.request.get(url.removesuffix("/apps/privest") + path)
            assert answer.status == 200, path
            if "html" not in answer.headers["content-type"]:
                continue
            for tag, given in Markup(answer.text()).elements:
                for address in filter(None, (given.get(name) for name in ADDRESSES)):
                    if address.startswith("#"):
                        continue
                    assert address.startswith("/apps/privest/dashboard"), (path, address)
                    if tag != "form" and "/events" not in address:
                        to_ask |= {address.partition("#")[0]} - asked
        assert len(asked) > 20
        page.get_by_role("link", name="Ledger", exact=True).first.click()
        page.get_by_role("button", name="Verify now").click()
        expect(page.locator("h1")).to_have_text("The whole ledger is sound")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{url}/dashboard/sign-in")
        assert visitor.context.cookies() == []
