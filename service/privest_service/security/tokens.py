"""Tokens of the platform (JWT, RFC 7519): whose word counts, by which keys, and of whom it tells.

Algorithms and keys come from the settings alone, never from a token's header.
"""

import json
import time
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import structlog
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import JWKRegistry, Key, KeySet, RSAKey

from privest_service.cached_probe import CachedProbe
from privest_service.problems import Unavailable
from privest_service.security.keys import SCOPES
from privest_service.security.models import LONGEST_SUBJECT
from privest_service.settings import Settings

_PATIENCE = 60.0
"""Fewest seconds between two fetches of the issuer's keys, however many tokens name unknown ones."""

_FRESH = 300.0
"""Seconds after which the issuer's keys are fetched again, because some may have been withdrawn."""

_KEPT = 3600.0
"""Seconds for which the issuer's keys are good while they cannot be fetched again."""

_SECONDS, _BYTES = 5.0, 2**20
"""Seconds that the issuer may take to begin an answer, and again to end it; and most bytes of the answer."""

_PIECE = 2**16


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to where somebody else answers, or away from https."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """No further request: the answer is the redirect itself, which is an error."""


_SHORTEST_RSA = 2048
"""Fewest bits of an RSA modulus."""

_LONGEST_ID, _LONGEST_NAME = 40, 200
"""Most characters of an id and of a name, as in the database."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Told:
    """What a token tells.

    Attributes:
        principal_id: of the owner or analyst that it is for; None where groups decide.
        until: when it expires.
        scopes: that it grants.
        person: whose it is (`sub`).
        name: of this person, for people to read.
        held: what the person may be by its groups, as the settings have it, in their order.
        clients: of the identity provider, to which it was issued.
    """

    principal_id: str | None
    until: datetime
    scopes: frozenset[str]
    person: str
    name: str = ""
    held: tuple[str, ...] = ()
    clients: frozenset[str] = frozenset()


def tokens_of(settings: Settings) -> "Tokens | None":
    """Make the reader of the platform's tokens, if the settings name a platform."""
    return Tokens(settings) if settings.token_issuer else None


class Tokens:
    """Tokens of the issuer that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._place, self._algorithms = settings.token_keys, list(settings.token_algorithms)
        self._claim, self._prefix = settings.token_claim, settings.token_scope_prefix
        self._audience = settings.token_audience
        self._groups, self._groups_claim = settings.token_groups, settings.token_groups_claim
        self._registry = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": settings.token_issuer},
            aud={"essential": True, "value": settings.token_audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        self._keys, self._found = KeySet([]), float("-inf")
        self._look = CachedProbe(self._find, kept=_PATIENCE)

    def read(self, token: str) -> Told | None:
        """Read who a token is for and what it grants; None where it is not valid.

        Raises:
            Unavailable: the issuer's keys were not to be had yet, or not for an hour.
        """
        try:
            return self._told(token)
        except Unavailable:
            raise
        except Exception:  # whatever it is that header and claims hold: both are the sender's to choose
            return None

    def _told(self, token: str) -> Told | None:
        """Read a token. Raises whatever joserfc and Python raise over one that is not good.

        Raises:
            Unavailable: the issuer's keys are not to be had.
        """
        try:
            found = jwt.decode(token, self._known(), self._algorithms)
        except InvalidKeyIdError:
            found = jwt.decode(token, self._known(anew=True), self._algorithms)
        self._registry.validate(found.claims)
        claims = found.claims
        told, person, held = claims.get(self._claim), claims["sub"], self._held(claims)
        if self._claim not in claims and held:
            told = None  # groups decide
        elif not _is_id(told):
            return None
        if not _is_access(found.header) or not _is_text(person, LONGEST_SUBJECT):
            return None
        until, scopes = datetime.fromtimestamp(claims["exp"], UTC), self._scopes(claims)
        return Told(told, until, scopes, person, _name(claims) or person, held, self._clients(claims))

    def _held(self, claims: dict[str, Any]) -> tuple[str, ...]:
        """What a person may be by its groups, in the order of the settings. Unknown groups say nothing."""
        told = claims.get(self._groups_claim)
        groups = [told] if isinstance(told, str) else told if isinstance(told, list) else []
        return tuple(held for group, held in self._groups.items() if group in groups)

    def _clients(self, claims: dict[str, Any]) -> frozenset[str]:
        """The clients that a token was issued to: `azp` or `client_id`, else all that it names besides us."""
        named = {claims[name] for name in ("azp", "client_id") if isinstance(claims.get(name), str)}
        if named:
            return frozenset(named) if len(named) == 1 else frozenset()
        told = claims["aud"] if isinstance(claims["aud"], list) else []
        return frozenset(each for each in told if isinstance(each, str) and each != self._audience)

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        """All where the issuer says nothing of scopes; where it does, those alone that it names."""
        if "scope" not in claims:
            return frozenset(SCOPES)
        named = claims["scope"].split() if isinstance(claims["scope"], str) else []
        return frozenset(scope for scope in SCOPES if f"{self._prefix}{scope}" in named)

    def _known(self, *, anew: bool = False) -> KeySet:
        """The keys; looked for if told to or after a while, unless it is too soon.

        Raises:
            Unavailable: there are none, or none that are young enough.
        """
        if anew or time.monotonic() - self._found >= _FRESH:
            self._look.seen()  # however long the issuer takes, this does not
        if time.monotonic() - self._found >= _KEPT:
            raise Unavailable(
                "The platform's keys cannot be fetched at present. Try again later, or use an API key."
            )
        return self._keys

    def _find(self) -> None:
        """Take over the issuer's keys, or else keep those that there are."""
        try:
            listed = json.loads(self._content())["keys"]
            self._keys = KeySet([key for each in listed if (key := _key(each))])
            self._found = time.monotonic()
        except Exception:  # whatever it is that came
            log.warning("the platform's keys are not to be had")

    def _content(self) -> bytes:
        if "://" not in self._place:
            return Path(self._place).read_bytes()
        return fetch_key_set(self._place)[0]


def fetch_key_set(url: str) -> tuple[bytes, str | None]:
    """Return the document at a platform's address, of at most 1 MiB, and the date that its server states.

    No redirect is followed, and no compressed answer taken.

    Raises:
        OSError: it cannot be had, or takes too long.
        ValueError: it is compressed, or longer.
    """
    # Plain http leads to this machine alone, so no proxy is asked: it could exchange the keys.
    near = [urllib.request.ProxyHandler({})] if url.startswith("http:") else []
    with urllib.request.build_opener(_Straight, *near).open(url, timeout=_SECONDS) as answer:
        if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise ValueError("the answer is compressed")
        latest, found = time.monotonic() + _SECONDS, b""
        while piece := answer.read1(_PIECE):
            found += piece
            if len(found) > _BYTES:
                raise ValueError("the answer is too long")
            if time.monotonic() > latest:
                raise TimeoutError
        return found, answer.headers.get("Date")


def _is_access(header: dict[str, Any]) -> bool:
    """Whether a token may be meant to open something, by its `typ` (RFC 9068), which may be missing.

    What else an issuer signs under the same keys, as a notice of a logout, names another type.
    """
    kind = header.get("typ", "JWT")
    return isinstance(kind, str) and kind.lower().removeprefix("application/") in ("jwt", "at+jwt")


def _is_id(told: Any) -> TypeGuard[str]:
    """Whether a claim could be the id of anybody here: some texts no database can even look for."""
    return _is_text(told, _LONGEST_ID)


def _is_text(told: Any, longest: int) -> TypeGuard[str]:
    return isinstance(told, str) and len(told) <= longest and told.isascii() and told.isprintable()


def _name(claims: dict[str, Any]) -> str:
    """What a person is called, as far as it can be shown in one line."""
    told = next((each for name in ("name", "preferred_username") if (each := claims.get(name))), "")
    return " ".join(told.split())[:_LONGEST_NAME] if isinstance(told, str) and told.isprintable() else ""


def _key(listed: Any) -> Key | None:
    """A key of a set; None if it is of a kind or a curve that is not known here, as RFC 7517 has it (5).

    An RSA key that is too short (RFC 7518, 3.3) gives None too.
    """
    try:
        key = JWKRegistry.import_key(listed)
        key.ensure_kid()
    except Exception:
        return None
    if isinstance(key, RSAKey) and key.raw_value.key_size < _SHORTEST_RSA:
        log.warning("a key of the platform is too short and not used")
        return None
    return key
