"""Authentication: the administrator, owners and analysts by their keys, or by the platform's tokens."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from sqlalchemy import bindparam, or_, select

from privest_service.database import Database, now
from privest_service.security.keys import Role, digest, well_formed
from privest_service.security.models import Analyst, ApiKey, Owner
from privest_service.security.principals import Credential, Principal
from privest_service.security.rate_limit import RateLimiter
from privest_service.security.tokens import Tokens, Told

IS_GOOD = ApiKey.revoked_at.is_(None) & or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > bindparam("now"))
"""Condition on keys: a key is not revoked and has not ended at the moment `now`."""

_BY_DIGEST = select(ApiKey.role, ApiKey.principal_id, ApiKey.scopes, ApiKey.id, ApiKey.expires_at).where(
    ApiKey.digest == bindparam("digest"), IS_GOOD
)

_IS_GOOD_YET = select(ApiKey.id).where(ApiKey.id == bindparam("key"), IS_GOOD)


@dataclass(frozen=True)
class Authenticator:
    """Recognises callers, and counts how often they call.

    Attributes:
        database: where keys are.
        rates: how often anybody may call, or guess.
        admin_key: what opens everything an administrator may do.
        secret: of the service.
        tokens: reads the platform's tokens, if there is a platform.
    """

    database: Database
    rates: RateLimiter
    admin_key: str = field(repr=False)
    secret: bytes = field(repr=False)
    tokens: Tokens | None = None

    @property
    def admin_mark(self) -> str:
        """The mark by which sessions know the administrator's key. A plain hash of it could be guessed."""
        return hmac.new(self.secret, b"privest admin " + self.admin_key.encode(), hashlib.sha256).hexdigest()

    def identify(self, given: str, address: str) -> Credential | None:
        """Return the credential that a key or token stands for; None where it opens nothing.

        Raises:
            TooManyRequests: too many from this address opened nothing.
            Unavailable: it is a token, and the platform's keys are not to be had.
        """
        # Nobody guesses a key of ours or a signature, so none is refused for what others do at its address.
        guess = not well_formed(given) and not self._is_token(given)
        if guess:
            self.rates.check_failures(address)
        found = self._holder(given)
        if guess and found is None:
            self.rates.guessed_wrong(address)
        return found

    def is_good_yet(self, credential: Credential) -> bool:
        """Whether what was good when a request came is so still: some are answered long after."""
        if credential.key_id is not None:
            return self.database.first(_IS_GOOD_YET, key=credential.key_id, now=now()) is not None
        return credential.until is None or credential.until > now()

    def _is_token(self, given: str) -> bool:
        return self.tokens is not None and given.count(".") == 2  # in keys there is one

    def _holder(self, given: str) -> Credential | None:
        if secrets.compare_digest(given.encode(), self.admin_key.encode()):
            return Credential(Principal("admin", "admin"))
        if self.tokens and self._is_token(given):
            told = self.tokens.read(given)
            return self._of_token(told) if told else None
        if not well_formed(given):
            return None
        found = self.database.first(_BY_DIGEST, digest=digest(given), now=now())
        if found is None:
            return None
        principal = Principal(found.role, found.principal_id)  # pyright: ignore[reportArgumentType]
        return Credential(principal, frozenset(found.scopes.split()), found.id, found.expires_at)

    def _of_token(self, told: Told) -> Credential | None:
        """The owner or analyst of whom a token tells, if there is one."""
        roles: tuple[tuple[Role, type[Owner | Analyst]], ...] = (("owner", Owner), ("analyst", Analyst))
        with self.database.read() as session:
            for role, table in roles:
                if session.get(table, told.principal_id):
                    principal = Principal(role, told.principal_id)
                    return Credential(principal, told.scopes, until=told.until)
        return None
