"""The hash chain over acts, on canonical bytes (RFC 8785)."""

from datetime import UTC

from privest_service.acts.models import Act
from privest_service.signing import canonical_hash

CONTENT = (
    *("chain", "seq", "kind", "role", "principal", "key", "subject", "reason", "details", "known_since"),
    "prev",
)
"""All that is hashed of an act as it is stored; its moment is too, as text."""

WHERE_TOLD = ("person", "through")
"""What is hashed of an act where it is told: acts of before there were people keep their hashes."""


def act_hash(act: Act) -> str:
    """SHA-256 over everything the act says, the hash of its predecessor included."""
    content = {name: getattr(act, name) for name in CONTENT}
    content |= {name: told for name in WHERE_TOLD if (told := getattr(act, name)) is not None}
    at = act.at.astimezone(UTC).isoformat(timespec="microseconds")
    return canonical_hash({**content, "at": at})


def to_sign(act_hash: str) -> bytes:
    """Return the bytes that are signed for an act: its hash, under a name that no other signature bears."""
    return b"privest act " + act_hash.encode()
