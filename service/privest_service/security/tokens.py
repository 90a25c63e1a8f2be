"""Tokens of the platform (JWT, RFC 7519): whose word counts, by which keys, and of whom it tells.

Algorithms and keys come from the settings alone, never from a token's header.
"""

import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import structlog
from joserfc import jwt
from joserfc.errors import DecodeError, InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from privest_service.looks import Look
from privest_service.problems import Unavailable
from privest_service.security.keys import SCOPES

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"
]
"""Of signatures; none where who verifies could sign, too."""

_PATIENCE = 60.0
"""Seconds between two looks for keys at least, however many tokens name unknown ones."""

_FRESH = 300.0
"""Seconds after which keys are looked for again, as some may have been withdrawn."""

_KEPT = 3600.0
"""Seconds for which keys are good that cannot be looked for again."""

_SECONDS, _BYTES = 5.0, 2**20
"""That the issuer may take to begin an answer, and again to end it; and what that may bring."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Told:
    """Of whom a token tells, until when, and what it is for."""

    principal_id: str
    until: datetime
    scopes: frozenset[str]


class Tokens:
    """Tokens of one issuer.

    Args:
        issuer: that tokens must name.
        audience: likewise, among others.
        keys: address or file of the issuer's key set (RFC 7517).
        algorithms: of signatures.
        claim: that holds the id of an owner or an analyst.
        prefix: of what in `scope` (RFC 9068) is meant for this service.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        keys: str,
        algorithms: Sequence[Algorithm],
        claim: str,
        prefix: str,
    ) -> None:
        self._place, self._algorithms, self._claim, self._prefix = keys, list(algorithms), claim, prefix
        self._registry = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        self._keys, self._found = KeySet([]), float("-inf")
        self._look = Look(self._find, kept=_PATIENCE)

    def read(self, token: str) -> Told | None:
        """Of whom a token tells; None where it is not good.

        Raises:
            Unavailable: the issuer's keys were not to be had yet, or not for an hour.
        """
        try:
            try:
                found = self._decoded(token, self._known())
            except InvalidKeyIdError:
                found = self._decoded(token, self._known(anew=True))
            self._registry.validate(found.claims)
            until = datetime.fromtimestamp(found.claims["exp"], UTC)
        except (JoseError, ValueError, OverflowError, OSError):
            return None
        told = found.claims.get(self._claim)
        return Told(told, until, self._scopes(found.claims)) if isinstance(told, str) else None

    def _decoded(self, token: str, keys: KeySet) -> jwt.Token:
        """A token that one of the keys signed.

        Raises:
            JoseError: none did.
            ValueError: it is no token.
        """
        try:
            return jwt.decode(token, keys, self._algorithms)
        except TypeError:  # of joserfc, which takes a header's `crit` for a list of texts before it looks
            raise DecodeError from None

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
            raise Unavailable("the platform's keys are not to be had at present")
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
        with urllib.request.urlopen(self._place, timeout=_SECONDS) as answer:  # noqa: S310 - of the settings
            latest, found = time.monotonic() + _SECONDS, b""
            while piece := answer.read1():
                found += piece
                if len(found) > _BYTES or time.monotonic() > latest:
                    raise TimeoutError
            return found


def _key(listed: Any) -> Key | None:
    """A key of a set; None if it is of a kind or a curve that is not known here, as RFC 7517 has it (5)."""
    try:
        key = JWKRegistry.import_key(listed)
        key.ensure_kid()
    except Exception:
        return None
    return key
