"""What every page has in common: templates, headers, and errors as pages instead of problem documents."""

import hashlib
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from privest_service.dashboard.charts.budgets import level
from privest_service.dashboard.glossary import GLOSSARY
from privest_service.dashboard.session_auth import enter, recognised
from privest_service.problems import Invalid, Problem, Unauthenticated, by_status, full_disk
from privest_service.reports import formatting
from privest_service.reports.words import uses_of
from privest_service.security.admission import Admitting, Uploading
from privest_service.security.authentication import Authenticator
from privest_service.security.principals import Credential
from privest_service.validation import faults_of_request

STATIC = Path(__file__).with_name("static")

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What pages may load: nothing of other hosts, and no script that stands in a page."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

log = structlog.get_logger()

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals["glossary"] = GLOSSARY
_templates.filters |= {
    "number": formatting.number,
    "of_a_form": formatting.of_a_form,
    "typed": formatting.typed,
    "up": formatting.rounded_up,
    "down": formatting.rounded_down,
    "moment": formatting.moment,
    "day": formatting.day,
    "iso": formatting.iso,
    "short": formatting.short,
    "count": formatting.count,
    "told_apart": formatting.told_apart,
    "level": level,
    "spent_percent": formatting.spent_percent,
    "left_percent": formatting.left_percent,
    "job_state": formatting.job_state,
    "chance_percent": formatting.chance_percent,
    "uses_of": uses_of,
}


@cache
def _version() -> str:
    """Return a digest of all static files. Browsers keep the files until it changes."""
    digest = hashlib.sha256()
    for file in sorted(STATIC.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def place(request: Request, path: str = "") -> str:
    """The address of a page of the dashboard, behind whatever prefix a proxy has put."""
    return f"{request.scope.get('root_path', '')}/dashboard{path}"


def render(request: Request, template: str, *, status: int = 200, **content: Any) -> HTMLResponse:
    """A page; whoever is signed in is known to it as `visitor`."""
    content.setdefault("visitor", getattr(request.state, "visitor", None))
    text = _templates.get_template(template).render(
        at=place(request), here=request.url.path, version=_version(), **content
    )
    return HTMLResponse(text, status)


def redirect(request: Request, path: str) -> RedirectResponse:
    """Redirect to another page, after what was sent has been done."""
    return RedirectResponse(place(request, path), 303)


class Page(Admitting):
    """A route of the dashboard, for whoever is signed in."""

    def identify(self, authenticator: Authenticator, request: Request) -> Credential:
        """Find out who calls from a session's cookie, or from a token that the platform's proxy adds.

        Raises:
            Unauthenticated: nobody is signed in.
        """
        request.state.visitor = recognised(authenticator, request)
        return request.state.visitor.session.credential

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; whoever is not let in sees a page, too."""
        begun = False

        async def pass_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await super().handle(scope, receive, pass_on)
        except Exception as error:
            if begun or isinstance(error, HTTPException):
                raise
            request = Request(scope)
            await _finished(request, _instead(request, error))(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with errors written for people and the headers of a page."""
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception as error:
                response = _instead(request, error)
            return _finished(request, response)

        return page


class FilePage(Page):
    """A page that takes files, which spill over to the disk as they arrive."""

    brings = Uploading.brings


def _finished(request: Request, response: Response) -> Response:
    """Add the cookie of a session that began with this request, and the headers of a page."""
    if opened := getattr(request.state, "entered", None):
        enter(request, response, opened)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _instead(request: Request, error: Exception) -> Response:
    """What is shown instead of a page."""
    match error:
        case Problem():
            return _refused(request, error)
        case RequestValidationError():
            return _refused(request, Invalid(faults=faults_of_request(error)))
        case HTTPException():
            return _refused(request, by_status(error.status_code))
        case _ if full := full_disk(error):
            return _refused(request, full)
        case _:
            log.exception("a page failed")
            return render(request, "failed.html", status=500)


def _refused(request: Request, problem: Problem) -> Response:
    if isinstance(problem, Unauthenticated):
        if request.headers.get("accept") == "text/event-stream":
            return Response(status_code=204)  # by which a browser knows not to come again
        return redirect(request, "/sign-in")
    page = render(request, "refused.html", status=problem.status, problem=problem, less="")
    page.headers.update(problem.headers or {})
    return page
