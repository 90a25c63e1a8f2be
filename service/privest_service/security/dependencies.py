"""What endpoints ask for: the running services, and a caller whose key is for what they do."""

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from privest_service.problems import Unauthenticated
from privest_service.security import service
from privest_service.security.principals import Credential, Principal
from privest_service.services import Services

_bearer = HTTPBearer(auto_error=False, description="an API key, or a token of the platform")


async def services(request: Request) -> Services:
    """The running services."""
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(services)]


def allow(services: Services, credential: Credential, needed: SecurityScopes) -> None:
    """Let through whoever has the scopes that an endpoint declares: what declares none lets nobody through.

    Raises:
        Forbidden: a scope is missing.
        TooManyRequests: not so often.
    """
    if not needed.scopes:
        raise RuntimeError("an endpoint declares no scope")
    services.rates.count(credential.principal)
    credential.must_be_for(*needed.scopes)


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else ""


def _identified(
    request: Request,
    services: ServicesDep,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Credential:
    """The key, or the platform's token, in the Authorization header.

    Raises:
        Unauthenticated: there is none, or one that opens nothing.
        TooManyRequests: too many from this address opened nothing.
    """
    found = service.identify(services, given.credentials, address_of(request)) if given else None
    if found is None:
        raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    return found


_IdentifiedDep = Annotated[Credential, Depends(_identified)]


async def credential(needed: SecurityScopes, services: ServicesDep, found: _IdentifiedDep) -> Credential:
    """The same, once it is known to be for what is asked; nothing in it waits, and so it needs no thread."""
    allow(services, found, needed)
    return found


async def caller(found: Annotated[Credential, Depends(credential)]) -> Principal:
    """Whoever holds it."""
    return found.principal


async def revoker(
    key_id: str, needed: SecurityScopes, services: ServicesDep, found: _IdentifiedDep
) -> Principal:
    """Whoever would revoke a key: with that key itself, which is always for its own end, or with another."""
    if found.key_id != key_id:
        allow(services, found, needed)
    return found.principal


ReadDep = Annotated[Principal, Security(caller, scopes=["read"])]
DataDep = Annotated[Principal, Security(caller, scopes=["data"])]
EstimateDep = Annotated[Credential, Security(credential, scopes=["estimate"])]
ManageDep = Annotated[Principal, Security(caller, scopes=["manage"])]
WatchDep = Annotated[Credential, Security(credential, scopes=["read"])]
IssueDep = Annotated[Credential, Security(credential, scopes=["manage"])]
RevokeDep = Annotated[Principal, Security(revoker, scopes=["manage"])]
