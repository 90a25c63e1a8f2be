"""The routes of the dashboard: all pages, and the files that they use."""

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles

from privest_service.dashboard import interface
from privest_service.dashboard.page import STATIC, Page, redirect
from privest_service.dashboard.pages import (
    acts,
    admin,
    analysts,
    answers,
    budget,
    datasets,
    glossary,
    granted,
    keys,
    learned,
    ledger,
    live,
    notices,
    overview,
    published,
    questions,
    report,
    sign_in,
    what_if,
)
from privest_service.problems import NotFound


class _Kept(StaticFiles):
    """Files that browsers keep: their address changes whenever they do."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


_SIGN_IN = 2**16
"""Most bytes of a form from a stranger, which holds a key or a platform's token."""

_front = APIRouter()


@_front.get("/")
def front(request: Request) -> Response:
    """The way to the pages for whoever comes with a browser; for programs nothing is here."""
    if "text/html" not in request.headers.get("accept", ""):
        raise NotFound
    return redirect(request, "")


_rest = APIRouter(prefix="/dashboard", route_class=Page)


@_rest.get("/{_:path}")
def nowhere() -> Response:
    """A page that there is not."""
    raise NotFound


def install(app: FastAPI, max_upload_bytes: int | None, max_request_bytes: int | None) -> None:
    """Add the dashboard to the application, outside of the interface that openapi.yaml describes."""
    app.mount("/dashboard/static", _Kept(directory=STATIC))
    app.mount("/docs/static", _Kept(packages=[(interface.PACKAGE.replace("-", "_"), "static")]))
    _include(app, datasets.uploads, max_upload_bytes)
    _include(app, sign_in.router, None if max_request_bytes is None else min(max_request_bytes, _SIGN_IN))
    for page in (
        datasets,
        live,
        overview,
        learned,
        ledger,
        analysts,
        what_if,
        questions,
        answers,
        acts,
        budget,
        report,
        notices,
        granted,
        published,
        glossary,
        admin,
        keys,
    ):
        _include(app, page.router, max_request_bytes)
    _include(app, interface.router, max_request_bytes)
    _include(app, _front, max_request_bytes)
    _include(app, _rest, max_request_bytes)


def _include(app: FastAPI, router: APIRouter, max_body_size: int | None) -> None:
    app.include_router(router, include_in_schema=False, max_body_size=max_body_size)
