"""What endpoints ask for: the running services and the caller."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privest_service.problems import Unauthenticated
from privest_service.security import service
from privest_service.security.principals import Principal
from privest_service.services import Services

_bearer = HTTPBearer(auto_error=False, description="an API key, or a token of the platform")


async def services(request: Request) -> Services:
    """The running services; asynchronous, as a thread would cost more than the look."""
    return request.app.state.services


def caller(
    services: Annotated[Services, Depends(services)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Principal:
    """Whoever holds the key, or the platform's token, in the Authorization header.

    Raises:
        Unauthenticated: no key, or one that opens nothing.
    """
    refused = Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    if credentials is None:
        raise refused
    found = service.identify(services, credentials.credentials)
    if found is None:
        raise refused
    return found.principal


ServicesDep = Annotated[Services, Depends(services)]
CallerDep = Annotated[Principal, Depends(caller)]
