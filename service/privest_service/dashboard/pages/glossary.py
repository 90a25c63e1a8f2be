"""The glossary: all words that pages explain."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from privest_service.dashboard.page import Page, render
from privest_service.dashboard.session_auth import VisitorDep

router = APIRouter(prefix="/dashboard/glossary", route_class=Page)


@router.get("")
def read(request: Request, _: VisitorDep) -> Response:
    """All terms, in the order of the alphabet."""
    return render(request, "glossary.html")
