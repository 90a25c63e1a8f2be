"""What endpoints ask for: the running services, and a caller whose key is for what they do."""

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privest_service.security.admission import identified
from privest_service.security.principals import Credential, Principal
from privest_service.services import Services

_bearer = HTTPBearer(auto_error=False, description="an API key, or a token of the platform")


async def services(request: Request) -> Services:
    """The running services."""
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(services)]


async def credential(
    found: Annotated[Credential, Depends(identified)],
    _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Credential:
    """The key or token of the caller, which the route has found to be for what its endpoint declares."""
    return found


async def caller(found: Annotated[Credential, Depends(credential)]) -> Principal:
    """Whoever holds it."""
    return found.principal


ReadDep = Annotated[Principal, Security(caller, scopes=["read"])]
DataDep = Annotated[Principal, Security(caller, scopes=["data"])]
EstimateDep = Annotated[Credential, Security(credential, scopes=["estimate"])]
ManageDep = Annotated[Principal, Security(caller, scopes=["manage"])]
WatchDep = Annotated[Credential, Security(credential, scopes=["read"])]
IssueDep = Annotated[Credential, Security(credential, scopes=["manage"])]
