"""Dependencies of endpoints: callers with the scopes that they need, and the parts that all domains share."""

from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privest_service.database import Database
from privest_service.limits import Limiter
from privest_service.parts import running
from privest_service.security.admission import identified
from privest_service.security.authentication import Authenticator
from privest_service.security.principals import Credential, Principal
from privest_service.settings import Settings
from privest_service.workers.service import Workers

_bearer = HTTPBearer(auto_error=False, description="an API key, or a token of the platform")


DatabaseDep = Annotated[Database, running(Database)]
LimiterDep = Annotated[Limiter, running(Limiter)]
SettingsDep = Annotated[Settings, running(Settings)]
WorkersDep = Annotated[Workers, running(Workers)]
AuthenticatorDep = Annotated[Authenticator, running(Authenticator)]


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
