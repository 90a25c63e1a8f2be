"""API keys: random, with a prefix for their role and a checksum against typing errors; and their scopes."""

import hashlib
import secrets
import zlib
from collections.abc import Iterable
from typing import Literal, get_args

Role = Literal["admin", "owner", "analyst"]

Scope = Literal["read", "data", "estimate", "manage"]
"""What the holder of a key may do: look and plan; bring and delete rows; spend; everything else."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

_PREFIXES: dict[str, str] = {"owner": "pvo", "analyst": "pva"}


def as_text(scopes: Iterable[str]) -> str:
    """Scopes as they are stored: each once, in one order."""
    held = set(scopes)
    return " ".join(scope for scope in SCOPES if scope in held)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def new_key(role: Role) -> str:
    """A fresh key with 256 random bits."""
    body = f"{_PREFIXES[role]}_{secrets.token_urlsafe(32)}"
    return f"{body}.{_checksum(body)}"


def well_formed(key: str) -> bool:
    """Whether the checksum fits: false without asking the database for what was mistyped."""
    body, _, checksum = key.rpartition(".")
    return bool(body) and key.isascii() and secrets.compare_digest(_checksum(body), checksum)


def digest(key: str) -> str:
    """Return the hash that is stored of a key. It needs no salt: nobody can guess 256 random bits."""
    return hashlib.sha256(key.encode()).hexdigest()
