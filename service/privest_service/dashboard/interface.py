"""`/docs`: the interface, to read and to try, by Swagger UI as an installed package has it."""

from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import Response

from privest_service.dashboard.page import POLICY, Page, render

PACKAGE = "fastapi-offline"
"""Brings the files of Swagger UI. Its own code is not imported: it writes scripts into the page."""

router = APIRouter(route_class=Page)


@router.get("/docs")
def read(request: Request) -> Response:
    """The interface that /openapi.json describes. A key that is typed there stays in the page."""
    page = render(request, "interface.html", root=request.scope.get("root_path", ""), by=version(PACKAGE))
    # The style sheet has its icons in itself.
    page.headers["Content-Security-Policy"] = POLICY.replace("img-src 'self'", "img-src 'self' data:")
    return page
