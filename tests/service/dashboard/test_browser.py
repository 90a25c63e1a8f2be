"""A visitor notices what goes wrong on a page, and what it asks of other hosts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from testing.browser import Visitor

_POLICY = "default-src 'none'; script-src 'self'; img-src * data:; form-action 'self'"
_HEAD = (
    '<!doctype html><html lang="en"><title>A page</title><meta name="viewport" content="width=device-width">'
    '<link rel="icon" href="data:,">'  # else it is asked of the site
)


@dataclass(frozen=True)
class _Site:
    url: str


class _Pages(BaseHTTPRequestHandler):
    pages: dict[str, tuple[int, str, str]]

    def do_GET(self) -> None:
        status, media, body = self.pages.get(self.path, (404, "text/plain", ""))
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET  # noqa: N815 - so it is called

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _served(**pages: tuple[int, str, str]) -> Iterator[_Site]:
    found = {f"/{name.replace('__', '/')}": page for name, page in pages.items()}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("_Here", (_Pages,), {"pages": found})) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield _Site(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def _page(body: str, status: int = 200) -> tuple[int, str, str]:
    return status, "text/html", f"{_HEAD}<main><h1>A page</h1>{body}</main></html>"


def _script(body: str) -> tuple[int, str, str]:
    return 200, "text/javascript", body


def test_a_visit_on_which_nothing_goes_wrong(visit: Callable[..., Visitor]) -> None:
    with _served(fine=_page("<p>Nothing.</p>")) as site:
        visitor = visit(site, scheme="dark", viewport="phone")
        assert visitor.open("/fine").status == 200
        assert visitor.page.evaluate("innerWidth") == 390
        assert visitor.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        visitor.check_accessibility()
        assert visitor.requests == [f"{site.url}/fine"]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("console.error('so bad')", "console: so bad"),
        ("throw new Error('so bad')", "exception: so bad"),
        ("eval('1')", "Content Security Policy"),
    ],
)
def test_errors_fail_it(browser: Browser, script: str, fault: str) -> None:
    with _served(bad=_page("<script src=/script></script>"), script=_script(script)) as site:
        visitor = Visitor(browser, site)
        visitor.open("/bad")
        with pytest.raises(AssertionError, match=fault):
            visitor.end()


def test_so_does_a_request_to_another_host(browser: Browser) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(_served(seen=(200, "image/png", "")))
        site = stack.enter_context(_served(bad=_page(f'<img alt="" src="{other.url}/seen">')))
        visitor = Visitor(browser, site)
        visitor.open("/bad")
        with pytest.raises(AssertionError, match=f"another host: {other.url}/seen"):
            visitor.end()


def test_refusals_fail_it_unless_they_are_expected(browser: Browser) -> None:
    with _served(refused=_page("No.", 422)) as site:
        for expected in (404, 422):
            visitor = Visitor(browser, site, java_script=False)
            visitor.expects(expected)
            assert visitor.open("/refused").status == 422
            assert len(visitor.faults) == (expected != 422)
            visitor.context.close()


def test_what_keeps_people_out_is_told(visit: Callable[..., Visitor]) -> None:
    with _served(bad=_page('<input name="key"><p>And <a id="empty" href="/bad"></a></p>')) as site:
        visitor = visit(site)
        visitor.open("/bad")
        with pytest.raises(AssertionError, match=r"label: .*: input\n") as told:
            visitor.check_accessibility()
        assert "link-name: " in str(told.value)
        assert "#empty" in str(told.value)


def test_a_key_is_handed_in_and_pictures_are_kept(
    visit: Callable[..., Visitor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVEST_PICTURES", str(tmp_path / "pictures"))
    form = _page('<form method="post" action="/in"><label>Key <input name="key"></label></form>')
    inside = _page("<p>Inside.</p>")
    with _served(**{"dashboard__sign-in": form, "in": inside}) as site:
        visitor = visit(site)
        assert visitor.sign_in("a key").url == f"{site.url}/in"
        assert visitor.picture("inside").read_bytes().startswith(b"\x89PNG")
