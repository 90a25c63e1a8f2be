"""Tokens of the platform (JWT, RFC 7519): whose word counts, by which keys, and of whom it tells.

Algorithms and keys come from the settings alone, never from a token's header.
"""

import json
import threading
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
from joserfc.jwk import KeySet

from privest_service.problems import Unavailable
from privest_service.security.keys import SCOPES

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"
]
"""Of signatures; none where who verifies could sign, too."""

_PATIENCE = 60.0
"""Seconds between two looks for keys at least, however many tokens name unknown ones."""

_SECONDS, _BYTES = 5.0, 2**20
"""That a look may take, and what it may bring."""

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
        self._keys: KeySet | None = None
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def read(self, token: str) -> Told | None:
        """Of whom a token tells; None where it is not good.

        Raises:
            Unavailable: the issuer's keys were never to be had yet.
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
        """The keys; looked for where there are none yet, or if told to, and it is not too soon."""
        if self._keys is None or anew:
            with self._lock:
                if time.monotonic() - self._looked >= _PATIENCE:
                    self._looked = time.monotonic()
                    try:
                        self._keys = KeySet.import_key_set(json.loads(self._content()))
                    except (OSError, ValueError, KeyError, TypeError, JoseError):
                        log.warning("the platform's keys are not to be had")
        if self._keys is None:
            raise Unavailable("the platform's keys are not to be had at present")
        return self._keys

    def _content(self) -> bytes:
        if "://" not in self._place:
            return Path(self._place).read_bytes()
        with urllib.request.urlopen(self._place, timeout=_SECONDS) as answer:  # noqa: S310 - of the settings
            return answer.read(_BYTES)
