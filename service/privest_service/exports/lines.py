"""The lines of an exported ledger: accounts and entries, acts, what tables say, jobs, receipts, the end."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Annotated, Literal

import rfc8785
from pydantic import AwareDatetime, BaseModel, Field, JsonValue, TypeAdapter

from privest_service.acts.chain import CONTENT, WHERE_TOLD
from privest_service.ledger.models import Entry
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import Composition


class AccountLine(BaseModel):
    """An account as it stands; its entries follow."""

    type: Literal["account"] = "account"
    account: int
    owner: str
    scope: str
    datasets: Annotated[list[str], Field(description="that are counted; of an owner's account none")]
    analyst: str | None
    window: int
    composition: Composition
    seq: int
    head: str
    limit: dict[str, int]
    spent: dict[str, int]
    queries: int | None = None


class MechanismLine(BaseModel):
    """The mechanism that one or more charges are for. It stands before the first of them."""

    type: Literal["mechanism"] = "mechanism"
    digest: str
    content: str


class EntryLine(BaseModel):
    """One entry: amounts are integers, μ² in 1e-12, ε in 1e-9, δ and slack in 1e-18.

    Exports have the sums after an entry since there were dashboards.
    """

    type: Literal["entry"] = "entry"
    account: int
    seq: int
    kind: Literal["limit", "debit", "void", "loss"]
    job: str | None
    mechanism: str | None
    epsilon: int
    delta: int
    mu_squared: int
    slack: int
    epsilon_spent: int | None = None
    delta_spent: int | None = None
    mu_squared_spent: int | None = None
    slack_spent: int | None = None
    queries: int | None = None
    at: AwareDatetime
    prev: str
    hash: str
    signer: str
    signature: str


SHARED = EntryLine.model_fields.keys() & Entry.__table__.columns.keys()
"""What an entry and its line call by the same name: all but the account and the job."""


class ActLine(BaseModel):
    """One act, as it is stored; exports have them since there is a record of acts.

    `details` is the text of a JSON object, as it was hashed. One of before there was a record is not signed.
    """

    type: Literal["act"] = "act"
    chain: str
    seq: int
    kind: str
    role: str | None
    principal: str | None
    key: str | None
    person: str | None = None
    through: str | None = None
    subject: str | None
    reason: str | None
    details: str
    known_since: Literal["migrated"] | None
    at: AwareDatetime
    prev: str
    hash: str
    signer: str
    signature: str


ACT_FIELDS = (*CONTENT, *WHERE_TOLD, "at", "hash", "signer", "signature")
"""What an act and its line have in common: everything."""


class NameLine(BaseModel):
    """What tables call an owner, one of its datasets, or an analyst whom it granted one, now."""

    type: Literal["name"] = "name"
    id: str
    name: str | None


class GrantLine(BaseModel):
    """What a grant says now besides its cap, as tables tell it: its terms by the names that acts have."""

    type: Literal["grant"] = "grant"
    dataset: str
    analyst: str
    terms: dict[str, JsonValue]
    revoked: bool


class ReceiptLine(BaseModel):
    """A receipt of a job that was charged: the owner's; after all of those, analysts' receipts."""

    type: Literal["receipt"] = "receipt"
    receipt: Receipt


class JobLine(BaseModel):
    """The state, at the moment of the export, of a job that was charged to an owner.

    Attributes:
        asked_by_owner: whether that owner asked; else there is an analyst's receipt beside its own. Of a part
            of a job on several datasets it is not told: the receipt of whoever asked is of the whole.
        plan: of a committed one, SHA-256 of the plan that is stored; None in exports of before.
        requested: whether its owner had to approve it.
        approval: the id of the decision by which that owner approved it.
        reason: of the owner's decision, whichever it was, as tables tell it now.
        person: who asked by a token, and `through` which service account.
    """

    type: Literal["job"] = "job"
    job: str
    state: Literal[
        "requested", "reserved", "claimed", "committed", "failed", "voided", "denied", "expired", "withdrawn"
    ]
    asked_by_owner: bool | None = None
    plan: str | None = None
    requested: bool = False
    approval: str | None = None
    reason: str | None = None
    person: str | None = None
    through: str | None = None


class Head(BaseModel):
    """The end of an account's chain."""

    account: int
    seq: int
    hash: str


class ActHead(BaseModel):
    """The end of a chain of acts: an owner's, by its id, or the service's."""

    chain: str
    seq: int
    hash: str


class Heads(BaseModel):
    """The signed ends of chains at one moment. Whoever keeps them sees whether one was cut or rewritten.

    Those of before there was a record of acts have none.
    """

    type: Literal["heads"] = "heads"
    heads: list[Head]
    acts: list[ActHead] | None = None
    at: str
    signer: str
    signature: str


class End(BaseModel):
    """The last line, signed: how many there are before it, and the digest of all of them.

    A line that is missing, or more, or other than it was written, shows here whatever it is of.
    """

    type: Literal["end"] = "end"
    lines: int
    digest: str
    at: str
    signer: str
    signature: str


def to_sign(line: Heads | End) -> bytes:
    """The bytes that are signed: all of a line but its signature, under a name of its type."""
    content = line.model_dump(exclude={"signature"}, mode="json")
    if content.get("acts", ()) is None:  # as it was signed before there were any
        del content["acts"]
    return f"privest ledger {line.type} ".encode() + rfc8785.dumps(content)


Told = AccountLine | MechanismLine | EntryLine | ActLine | NameLine | GrantLine | ReceiptLine | JobLine
Line = Told | Heads | End
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])
"""Reads a line from JSON."""


class Digest:
    """A running digest of the lines of an export.

    It is of what was written and not of how: a later version knows more fields, which are not in older lines.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._hash = hashlib.sha256()

    def add(self, line: Line) -> None:
        """Add a line to the digest."""
        self.lines += 1
        told = line.model_dump_json(exclude_unset=True, exclude={"type"})
        self._hash.update(f"{line.type} {told}\n".encode())

    @property
    def digest(self) -> str:
        """SHA-256 over all lines until now."""
        return self._hash.hexdigest()


_IN_A_REPORT = re.compile(r'<pre id="heads">(.*?)</pre>', re.DOTALL)
"""Where a report for an auditor has the heads: no name in it has such a tag, as all are escaped."""


def kept_heads(text: str) -> list[Heads]:
    """Heads as an owner keeps them: as they were fetched, as notices brought them, or as a report shows them.

    Raises:
        ValueError: there are none.
    """
    found = list[Heads]()
    if (shown := _IN_A_REPORT.search(text)) is not None:
        text = unescape(shown[1])
    documents = [text] if _is_json(text) else [line for line in text.splitlines() if line.strip()]
    for document in map(json.loads, documents):
        if "facts" not in document:
            found.append(Heads.model_validate(document))
        elif "heads" in document["facts"]:  # others tell of other things
            found.append(Heads.model_validate(document["facts"]["heads"]))
    if not found:
        raise ValueError("there are no heads")
    return found


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def read(file: Iterable[str]) -> Iterator[Line]:
    """The lines of an export. Raises ValueError: one is none, in words."""
    for number, text in enumerate(file, start=1):
        try:
            yield LINE.validate_json(text)
        except ValueError:
            raise ValueError(f"Line {number} is not a line of a ledger. Export the ledger again.") from None
