"""Dependencies of endpoints: callers with the scopes that they need, and the parts that all domains share."""

from typing import Annotated

from fastapi import Depends, Header, Security
from pydantic import BeforeValidator

from privest_service.acts import because, readable
from privest_service.database import Database
from privest_service.limits import Limiter
from privest_service.parts import running
from privest_service.security.admission import Bearer, Holder
from privest_service.security.authentication import Authenticator
from privest_service.security.principals import Credential, Principal
from privest_service.settings import Settings
from privest_service.workers.service import Workers

_bearer, _holder = Bearer(), Holder()

DatabaseDep = Annotated[Database, running(Database)]
LimiterDep = Annotated[Limiter, running(Limiter)]
SettingsDep = Annotated[Settings, running(Settings)]
WorkersDep = Annotated[Workers, running(Workers)]
AuthenticatorDep = Annotated[Authenticator, running(Authenticator)]


def _written(header: str | None) -> str | None:
    """A reason as it was written. Headers are read as Latin-1, whatever they are in.

    Raises:
        ValueError: it is no text in UTF-8, too long, or has control characters.
    """
    try:
        return header and readable(header.encode("latin-1").decode())
    except UnicodeError:
        raise ValueError("must be text in UTF-8") from None


Reason = Annotated[
    str | None,
    Header(alias="Privest-Reason", description="why, in words for the record of acts; one line, in UTF-8"),
    BeforeValidator(_written),
]


async def explained(
    found: Annotated[Credential, Depends(_bearer)], privest_reason: Reason = None
) -> Credential:
    """The key or token of a caller who changes something, and may say why."""
    because(privest_reason)
    return found


async def changing(found: Annotated[Credential, Depends(explained)]) -> Principal:
    """Whoever holds it."""
    return found.principal


ReadDep = Annotated[Principal, Security(_holder, scopes=["read"])]
DataDep = Annotated[Principal, Security(changing, scopes=["data"])]
EstimateDep = Annotated[Credential, Security(_bearer, scopes=["estimate"])]
ManageDep = Annotated[Principal, Security(changing, scopes=["manage"])]
WatchDep = Annotated[Credential, Security(_bearer, scopes=["read"])]
IssueDep = Annotated[Credential, Security(explained, scopes=["manage"])]
