"""The hash chain over an account's entries, on canonical bytes (RFC 8785)."""

from datetime import UTC

from privest_service.ledger.models import Entry
from privest_service.signing import canonical_hash


def entry_hash(entry: Entry) -> str:
    """SHA-256 over everything the entry says, the hash of its predecessor included.

    Amounts go in as strings: RFC 8785 has only the integers that a float64 holds.
    """
    content = {
        "account": entry.account_id,
        "seq": entry.seq,
        "kind": entry.kind,
        "job": entry.job_id,
        "mechanism": entry.mechanism,
        "epsilon": str(entry.epsilon),
        "delta": str(entry.delta),
        "mu_squared": str(entry.mu_squared),
        "slack": str(entry.slack),
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "prev": entry.prev,
    }
    return canonical_hash(content)


def to_sign(entry_hash: str) -> bytes:
    """Return the bytes that are signed for an entry: its hash, under a name that no other signature bears."""
    return b"privest ledger entry " + entry_hash.encode()
