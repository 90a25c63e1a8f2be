"""Authentication: the administrator, owners and analysts by their keys, or by the platform's tokens."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import bindparam, or_, select

from privest_service.database import Database, now
from privest_service.problems import Forbidden, Unauthenticated
from privest_service.security import people
from privest_service.security.keys import digest, well_formed
from privest_service.security.models import ApiKey, Person
from privest_service.security.principals import AsksFor, Credential, Principal
from privest_service.security.rate_limit import RateLimiter
from privest_service.security.tokens import Tokens, Told

IS_GOOD = ApiKey.revoked_at.is_(None) & or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > bindparam("now"))
"""Condition on keys: a key is not revoked and has not ended at the moment `now`."""

_BY_DIGEST = select(
    *(ApiKey.role, ApiKey.principal_id, ApiKey.scopes, ApiKey.id, ApiKey.expires_at),
    *(ApiKey.person, ApiKey.through, ApiKey.client, ApiKey.client_seconds),
).where(ApiKey.digest == bindparam("digest"), IS_GOOD)

_LEFT = select(Person.subject).where(Person.subject == bindparam("person"), Person.left_at.is_not(None))

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
        key, person = credential.key_id, credential.person
        if key is not None and self.database.first(_IS_GOOD_YET, key=key, now=now()) is None:
            return False
        if person is not None and self.database.first(_LEFT, person=person) is not None:
            return False
        return credential.until is None or credential.until > now()

    def _is_admins(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.admin_key.encode())

    def _is_token(self, given: str) -> bool:
        return self.tokens is not None and given.count(".") == 2  # in keys there is one

    def _holder(self, given: str) -> Credential | None:
        if self._is_admins(given):
            return Credential(Principal("admin", "admin"))
        if self.tokens and self._is_token(given):
            told = self.tokens.read(given)
            return self._of_token(told) if told else None
        return self._of_key(digest(given)) if well_formed(given) else None

    def _of_key(self, key_digest: str) -> Credential | None:
        """Return the credential of the key with a digest, or None if it opens nothing."""
        found = self.database.first(_BY_DIGEST, digest=key_digest, now=now())
        if found is None:
            return None
        role, principal_id, scopes, key_id, until, person, through, client, seconds = found
        asks_for = None if client is None else AsksFor(client, seconds or 0)
        holder = Principal(role, principal_id)  # pyright: ignore[reportArgumentType]
        return Credential(holder, frozenset(scopes.split()), key_id, until, person, through, asks_for)

    def _of_token(self, told: Told) -> Credential | None:
        """Whoever a token tells of, if that is somebody here who has not left."""
        principal = people.principal_of(self.database, told)
        return principal and Credential(principal, told.scopes, until=told.until, person=told.person)

    def on_behalf_of(self, asking: Credential, token: str) -> Credential:
        """Return the credential with which a service account asks for the person of a token.

        It is for no more than the account's key and the token both are. Whatever it asks is the person's: the
        person's grants and caps count, never the account's own.

        Args:
            asking: the key of the service account.
            token: that the identity provider issued to this account's client, for the person.

        Raises:
            Forbidden: the key may not ask for others, or not for the people of this token.
            Unauthenticated: the token is not good, or the person has left or is no analyst.
            Unavailable: the identity provider's keys are not to be had.
        """
        if asking.asks_for is None or asking.key_id is None:
            raise Forbidden("This key may not ask for others. The administrator issues one that may.")
        told = self.tokens.read(token) if self.tokens and self._is_token(token) else None
        if told is not None and asking.asks_for.client not in told.clients:
            raise Forbidden("The token in Privest-On-Behalf-Of was issued to another client than this key's.")
        principal = told and people.principal_of(self.database, told, as_analyst=True)
        if told is None or principal is None:
            raise Unauthenticated(
                "The token in Privest-On-Behalf-Of is of no analyst who is here, or is not good any more.",
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
        latest = max(told.until, now() + timedelta(seconds=asking.asks_for.seconds))
        return Credential(
            principal,
            asking.scopes & told.scopes,
            asking.key_id,
            min(told.until, asking.until or told.until),
            told.person,
            asking.principal.id,
            issues_until=min(latest, asking.until or latest),
        )
