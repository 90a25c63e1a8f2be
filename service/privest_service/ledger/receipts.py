"""Receipts: what was charged for which plan and which answer, signed with Ed25519 over canonical bytes.

The owner's receipt names the entries of its ledger. The analyst's receipt only commits to them, with random
salts: account numbers, places in chains and hashes would tell what others were charged. The owner's receipt
has the salts. Whoever holds both can check that they are of the same entries.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import rfc8785
from pydantic import BaseModel, Field

from privest_service.database import now
from privest_service.jobs.models import Job
from privest_service.ledger.models import Entry
from privest_service.signing import Signer, is_signature


def _absent(value: object) -> bool:
    """Whether a field is left out: receipts of before did not have it, and must keep their bytes."""
    return not value


class ReceiptEntry(BaseModel):
    """The place of one debit in its account's chain, and the salt of the analyst's commitment to it."""

    account: int
    seq: int
    hash: str
    salt: Annotated[str | None, Field(exclude_if=_absent)] = None

    @classmethod
    def of(cls, debit: Entry) -> "ReceiptEntry":
        """The place of a debit, with a fresh salt."""
        return cls(account=debit.account_id, seq=debit.seq, hash=debit.hash, salt=secrets.token_hex(32))

    @property
    def commitment(self) -> str | None:
        """SHA-256 over the salt and the entry's hash; None in receipts of before there were salts."""
        return None if self.salt is None else digest_of(f"privest receipt entry {self.salt} {self.hash}")


class Statement(BaseModel):
    """The signed content of a receipt. Digests are SHA-256 of the stored plan and answer.

    Of a job on several datasets the submitter has a statement on the whole, and each owner one on its part.
    There the digest of the submitter's receipt stands for the answer, which could else be guessed by its own.

    Attributes:
        entries: of an owner's receipt; empty in an analyst's.
        commitments: of an analyst's receipt, one for each entry, sorted; see `ReceiptEntry.commitment`.
        approvals: ids of the decisions by which owners approved the question; empty where none was needed.
        person: who asked, as the identity provider calls this person; left out where no token told of one.
        through: the service account that asked for this person.
        hub_job: at a site, what its hub calls the job; left out where no hub asked.
    """

    job: str
    kind: str
    dataset: str | list[str]
    adjacency: str
    entries: list[ReceiptEntry]
    commitments: Annotated[list[str], Field(exclude_if=_absent)] = []
    approvals: Annotated[list[str], Field(exclude_if=_absent)] = []
    person: Annotated[str | None, Field(exclude_if=_absent)] = None
    through: Annotated[str | None, Field(exclude_if=_absent)] = None
    hub_job: Annotated[str | None, Field(exclude_if=_absent)] = None
    plan: str
    answer: str
    at: str


class Receipt(BaseModel):
    """A statement, its signature over RFC 8785 bytes, and the key that verifies it (both base64)."""

    statement: Statement
    signature: str
    public_key: str


def receipt_of(
    signer: Signer,
    job: Job,
    datasets: Sequence[str],
    entries: Sequence[ReceiptEntry],
    answer: str,
    approvals: Sequence[str] = (),
    hub_job: str | None = None,
) -> Receipt:
    """Return the owner's receipt of a job on these datasets, or of a part, about to end with this answer."""
    statement = Statement(
        job=job.id,
        kind=job.kind,
        dataset=datasets[0] if len(datasets) == 1 else list(datasets),
        adjacency="replace-one",
        entries=list(entries),
        approvals=list(approvals),
        person=job.person,
        through=job.through,
        hub_job=hub_job,
        plan=digest_of_plan(job.plan),
        answer=digest_of(answer),
        at=now().isoformat(timespec="microseconds"),
    )
    return _signed(signer, statement)


def digest_of_plan(plan: str) -> str:
    """SHA-256 of a stored plan, of which every receipt on it is."""
    return digest_of(plan)


def for_analyst(signer: Signer, receipt: Receipt) -> Receipt:
    """Make an analyst's receipt: commitments stand in place of the ledger's entries."""
    told = receipt.statement
    commitments = sorted(each.commitment for each in told.entries if each.commitment is not None)
    return _signed(signer, told.model_copy(update={"entries": [], "commitments": commitments}))


def _signed(signer: Signer, statement: Statement) -> Receipt:
    signature = signer.sign(_canonical(statement))
    return Receipt(statement=statement, signature=signature, public_key=signer.public_key)


def signed_by(receipt: Receipt, public_key: str) -> bool:
    """Whether the receipt carries a true signature of this key (base64)."""
    return is_signature(receipt.signature, _canonical(receipt.statement), public_key)


def _canonical(statement: Statement) -> bytes:
    content: dict[str, Any] = statement.model_dump(mode="json")
    return rfc8785.dumps(content)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
