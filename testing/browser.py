"""A browser as tests use it: a visitor opens the pages of one site, and nothing may go wrong meanwhile."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Response, sync_playwright

from testing import ROOT
from testing.server import HANG_GUARD

Scheme = Literal["light", "dark"]
Viewport = Literal["desktop", "phone"]

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_SCREENS: dict[Viewport, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "has_touch": True,
        "is_mobile": True,
    },
}
_STATUS = re.compile(r"Failed to load resource: the server responded with a status of (\d{3})")
_VIOLATIONS = """async () => {
    const rules = {"target-size": {enabled: true}};  // of WCAG 2.2, which axe leaves out unless asked
    const found = await axe.run(document, {resultTypes: ["violations"], rules});
    const targets = (nodes) => nodes.map(({target}) => target.flat().join(" "));
    return found.violations.map(({id, help, nodes}) => ({id, help, targets: targets(nodes)}));
}"""


class Site(Protocol):
    """What can be visited: `harness.Server`, for one."""

    url: str


@dataclass(frozen=True)
class Said:
    """A line of the console."""

    kind: str
    text: str
    url: str


def find_chromium() -> str | None:
    """The path of the system's own Chromium: none is ever downloaded."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """A running browser.

    Meanwhile asyncio takes this thread for one whose loop runs: it can begin no other.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


class Visitor:
    """A person with a fresh browser profile, on one site.

    Args:
        browser: that is used.
        site: that is visited; requests to any other host are faults.
        scheme: that the person prefers.
        viewport: kind of screen.
        java_script: whether pages may run any.

    Attributes:
        context: of Playwright.
        page: of Playwright.
        console: errors and warnings there.
        errors: exceptions that no script caught.
        failed: requests that got no answer, with the reason.
        requests: the URL of every request.
    """

    def __init__(
        self,
        browser: Browser,
        site: Site,
        *,
        scheme: Scheme = "light",
        viewport: Viewport = "desktop",
        java_script: bool = True,
    ) -> None:
        self.site, self._java_script = site, java_script
        self.console: list[Said] = []
        self.errors: list[str] = []
        self.failed: list[str] = []
        self.requests: list[str] = []
        self._expected: set[int] = set()
        self.context: BrowserContext = browser.new_context(
            color_scheme=scheme, java_script_enabled=java_script, **_SCREENS[viewport]
        )
        self._listen()
        self.context.set_default_timeout(1000 * HANG_GUARD)
        self.page = self.context.new_page()

    def _listen(self) -> None:
        on = self.context.on
        on(
            "console",
            lambda line: (
                self.console.append(Said(line.type, line.text, line.location["url"]))
                if line.type in ("error", "warning")
                else None
            ),
        )
        on("weberror", lambda raised: self.errors.append(str(raised.error)))
        on("request", lambda request: self.requests.append(request.url))
        on("requestfailed", lambda request: self.failed.append(f"{request.url}: {request.failure}"))

    # Pages

    def open(self, path: str) -> Response:
        """Go to a page of the site."""
        response = self.page.goto(self.site.url + path)
        assert response is not None
        return response

    def sign_in(self, key: str) -> Response:
        """Hand in a key at the door of the dashboard: the answer is the page to which that leads."""
        self.open("/dashboard/sign-in")
        self.page.locator("input[name=key]").fill(key)
        with self.page.expect_navigation() as led:
            self.page.keyboard.press("Enter")
        assert led.value is not None
        return led.value

    def enter(self, key: str) -> None:
        """Begin a session with a key, without the page of the form, which takes most of a second."""
        door = f"{self.site.url}/dashboard/sign-in"
        entered = self.context.request.post(door, form={"key": key}, max_redirects=0)
        assert entered.status == 303, entered.text()

    # What is looked at

    def check_accessibility(self) -> None:
        """Let axe look at the page as it is now: whatever it finds fails.

        It comes in by the debugger, so that the page's own policy against foreign scripts can stay.
        """
        assert self._java_script, "axe itself is a script"
        self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate(_VIOLATIONS)
        told = "\n".join(f"{each['id']}: {each['help']}: {', '.join(each['targets'])}" for each in found)
        assert not found, f"{self.page.url}\n{told}"

    def picture(self, name: str, *, full_page: bool = True) -> Path:
        """Keep what the page looks like: as a PNG in PRIVEST_PICTURES, or in artefacts/dashboard."""
        usual = ROOT / "artefacts" / "dashboard"
        path = Path(os.environ.get("PRIVEST_PICTURES", usual)) / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path, full_page=full_page, animations="disabled")
        return path

    # What went wrong

    def expects(self, *statuses: int) -> None:
        """Declare refusals that belong to the test: Chromium logs each as an error."""
        self._expected.update(statuses)

    @property
    def faults(self) -> list[str]:
        """Errors in the console, exceptions in scripts and requests to other hosts, in words."""
        host = urlsplit(self.site.url).netloc
        foreign = [
            f"request to another host: {url}"
            for url in self.requests
            if (asked := urlsplit(url)).scheme not in ("data", "blob", "about") and asked.netloc != host
        ]
        logged = [
            f"console: {line.text} ({line.url})"
            for line in self.console
            if line.kind == "error" and not self._is_expected(line)
        ]
        return [*foreign, *logged, *(f"exception: {error}" for error in self.errors)]

    def _is_expected(self, line: Said) -> bool:
        found = _STATUS.match(line.text)
        return found is not None and int(found[1]) in self._expected

    def end(self) -> None:
        """Close the profile; fails if anything went wrong in it."""
        self.context.close()  # what was still on its way is told before
        assert not self.faults, "\n".join(self.faults)
