"""Receipts: what was charged for which plan and which answer, signed with Ed25519 over canonical bytes."""

import base64
import hashlib
from pathlib import Path
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
from pydantic import BaseModel

from privest_service.database import now
from privest_service.ledger.models import Entry, Job


class ReceiptEntry(BaseModel):
    """The place of one debit in its account's chain."""

    account: int
    seq: int
    hash: str


class Statement(BaseModel):
    """What is signed. Digests are SHA-256 of the stored plan and answer."""

    job: str
    kind: str
    dataset: str
    adjacency: str
    entries: list[ReceiptEntry]
    plan: str
    answer: str
    at: str


class Receipt(BaseModel):
    """A statement, its signature over RFC 8785 bytes, and the key that verifies it (both base64)."""

    statement: Statement
    signature: str
    public_key: str


class Signer:
    """Signs receipts with the service's own key.

    Args:
        path: PEM file with an Ed25519 private key.

    Raises:
        ValueError: the file holds no such key.
    """

    def __init__(self, path: Path) -> None:
        key = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("PRIVEST_SIGNING_KEY_FILE must hold an Ed25519 private key in PEM")
        self._key = key

    def receipt(self, job: Job, debits: list[Entry], answer: str) -> Receipt:
        """The receipt of a job that is about to be committed with this answer."""
        statement = Statement(
            job=job.id,
            kind=job.kind,
            dataset=job.dataset_id,
            adjacency="replace-one",
            entries=[ReceiptEntry(account=e.account_id, seq=e.seq, hash=e.hash) for e in debits],
            plan=_sha256(job.plan),
            answer=_sha256(answer),
            at=now().isoformat(timespec="microseconds"),
        )
        return Receipt(
            statement=statement,
            signature=base64.b64encode(self._key.sign(_canonical(statement))).decode(),
            public_key=base64.b64encode(self._key.public_key().public_bytes_raw()).decode(),
        )


def signed_by(receipt: Receipt, public_key: str) -> bool:
    """Whether the receipt carries a true signature of this key (base64)."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key))
    try:
        key.verify(base64.b64decode(receipt.signature), _canonical(receipt.statement))
    except InvalidSignature:
        return False
    return True


def new_signing_key() -> bytes:
    """A fresh Ed25519 private key, as PEM."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _canonical(statement: Statement) -> bytes:
    content: dict[str, Any] = statement.model_dump(mode="json")
    return rfc8785.dumps(content)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
