"""The key of one service: what it signs with, and how signatures are checked (Ed25519)."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from sqlalchemy.orm import Session


class Signer:
    """Signs entries and receipts with the service's own key.

    Raises:
        ValueError: there is no such key in it.
    """

    def __init__(self, pem: bytes) -> None:
        key = load_pem_private_key(pem, password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(
                "PRIVEST_SIGNING_KEY_FILE must hold an Ed25519 private key in PEM. See docs/settings.md."
            )
        self._key = key
        self.public_key = base64.b64encode(key.public_key().public_bytes_raw()).decode()
        self.id = key_id(self.public_key)

    def sign(self, content: bytes) -> str:
        """The signature, in base64."""
        return base64.b64encode(self._key.sign(content)).decode()


def signer_of(session: Session) -> Signer:
    """The key that signs what is written in a session: `Database` hands it out."""
    return session.info["signer"]


def canonical_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical bytes (RFC 8785) of a link of a chain, in hexadecimal digits."""
    return hashlib.sha256(rfc8785.dumps(dict(content))).hexdigest()


def key_id(public_key: str) -> str:
    """The name of a signing key in entries: the beginning of the digest of its public key."""
    return hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:16]


def is_signature(signature: str, content: bytes, public_key: str) -> bool:
    """Whether this is a true signature of the key (both base64)."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key))
        key.verify(base64.b64decode(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def new_signing_key() -> bytes:
    """A fresh Ed25519 private key, as PEM."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
