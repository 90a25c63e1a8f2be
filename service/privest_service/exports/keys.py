"""Public keys that a ledger may be signed with, and until when each was in use."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from privest_service.signing import is_signature, key_id

_KEY = re.compile(r"(?P<key>[A-Za-z0-9+/]{43}=)(=(?P<until>.+))?")


@dataclass(frozen=True)
class Trusted:
    """A public key (base64) that a ledger may be signed with, and when it was retired if it was."""

    public_key: str
    until: datetime | None = None

    @classmethod
    def read(cls, told: str) -> "Trusted":
        """Read a key from `BASE64`, or `BASE64=MOMENT` if it is retired. A moment without a zone is in UTC.

        Raises:
            ValueError: it is neither, in words.
        """
        if (found := _KEY.fullmatch(told)) is None:
            raise ValueError("A public key must be base64. Copy it from the answer of /v1/ledger/keys.")
        if found["until"] is None:
            return cls(found["key"])
        try:
            until = datetime.fromisoformat(found["until"])
        except ValueError:
            raise ValueError("The end of a key must be a moment, such as 2026-01-31T12:00Z.") from None
        return cls(found["key"], until if until.tzinfo else until.replace(tzinfo=UTC))

    def holds(self, at: datetime | str) -> bool:
        """Whether the key had not been retired at a moment; it holds at none that has no zone."""
        moment = _moment(at) if isinstance(at, str) else at
        return moment is not None and (self.until is None or moment <= self.until)

    def signed(self, signature: str, content: bytes, at: datetime | str) -> bool:
        """Whether this is the key's true signature, of when it was not retired."""
        return self.holds(at) and is_signature(signature, content, self.public_key)


def _moment(told: str) -> datetime | None:
    """A moment as receipts and heads tell it; None where it is none, or has no zone."""
    try:
        moment = datetime.fromisoformat(told)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def trusted(keys: Iterable[str]) -> dict[str, Trusted]:
    """Keys by the names by which entries call them; all but the present one must be retired.

    Raises:
        ValueError: one is no key, or the end of one is missing.
    """
    found = list(map(Trusted.read, dict.fromkeys(keys)))
    if sum(key.until is None for key in found) > 1:
        raise ValueError(
            "Only one key can be in use now. Give the end of each other one, as in BASE64=2026-01-31T12:00Z."
        )
    return {key_id(key.public_key): key for key in found}
