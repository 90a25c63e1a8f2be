"""API keys: random, with a prefix that tells their role and a checksum that catches typing errors."""

import hashlib
import secrets
import zlib
from typing import Literal

Role = Literal["admin", "owner", "analyst"]

_PREFIXES: dict[str, str] = {"owner": "pvo", "analyst": "pva"}


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
    """What is stored of a key. A plain hash suffices: nobody can guess 256 random bits."""
    return hashlib.sha256(key.encode()).hexdigest()
