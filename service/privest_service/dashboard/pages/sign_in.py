"""Signing in and out."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import FormDep, SignedInDep, enter, held, leave, same_origin
from privest_service.security import sessions
from privest_service.security.admission import address_of
from privest_service.security.authentication import Authenticator
from privest_service.security.dependencies import AuthenticatorDep, DatabaseDep

router = APIRouter(prefix="/dashboard", route_class=Page)


@router.get("/sign-in")
def form(request: Request, authenticator: AuthenticatorDep) -> Response:
    """Where a key opens a session."""
    return _form(request, authenticator)


def _form(
    request: Request, authenticator: Authenticator, fault: str | None = None, status: int = 200
) -> Response:
    tokens = authenticator.tokens is not None
    return render(request, "sign_in.html", status=status, fault=fault, tokens=tokens)


@router.post("/sign-in")
def sign_in(request: Request, authenticator: AuthenticatorDep, key: Annotated[str, Form()] = "") -> Response:
    """Open a session; what the browser held before is of no use from here on."""
    same_origin(request)
    opened = sessions.sign_in(authenticator, key.strip(), address_of(request), instead_of=held(request))
    if opened is None:
        return _form(request, authenticator, "This key opens nothing here.", 401)
    response = redirect(request, "")
    enter(request, response, opened)
    return response


@router.post("/sign-out")
def sign_out(request: Request, database: DatabaseDep, visitor: SignedInDep, _: FormDep) -> Response:
    """End the session, at once and for good."""
    with database.write() as session:
        sessions.sign_out(session, visitor.session.id)
    response = redirect(request, "/sign-in")
    leave(request, response)
    return response
