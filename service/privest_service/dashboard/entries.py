"""Entries of a ledger: searched a stretch at a time, so that no search takes longer on a longer ledger."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from privest_service.dashboard.budget_summary import WITHOUT_ANSWERS
from privest_service.datasets.models import Dataset
from privest_service.inputs import Id
from privest_service.jobs.models import Job
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.entries import QUERIES, SUMS_AFTER
from privest_service.ledger.models import SETS_LIMIT, Account, Entry, Mechanism
from privest_service.ledger.receipts import Receipt, signed_by
from privest_service.ledger.units import moved
from privest_service.problems import NotFound
from privest_service.reports import behind
from privest_service.reports.words import Told, of_columns
from privest_service.signing import Signer, is_signature

_STRETCH = 10_000
"""Most entries that one search goes through."""

_PAGE = 25
"""Entries on a page."""

_LINKS = 200
"""Most earlier entries of a chain that are verified when the page of one entry is shown."""


def or_none(given: object) -> object:
    """A field of a form; nothing filled in is none."""
    return None if given == "" else given


Choice = Annotated[Id | None, BeforeValidator(or_none)]
"""An optional id in a form; an empty string means that nothing was chosen."""


class Search(BaseModel):
    """What entries are looked for; all of it must fit."""

    text: Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    analyst: Choice = None
    dataset: Choice = None
    kind: Choice = None
    state: Annotated[
        Literal["reserved", "claimed", "committed", "failed", "voided", "limit"] | None,
        BeforeValidator(or_none),
    ] = None
    window: Annotated[Annotated[int, Field(ge=1, lt=2**31)] | None, BeforeValidator(or_none)] = None
    before: Annotated[Annotated[int, Field(ge=1, lt=2**63)] | None, BeforeValidator(or_none)] = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return any((self.text, self.analyst, self.dataset, self.kind, self.state))

    @property
    def chosen(self) -> dict[str, str]:
        """The chosen filters as query parameters of an address."""
        return {name: str(value) for name, value in self.model_dump(exclude={"before"}).items() if value}


@dataclass(frozen=True)
class Found:
    """Entries with their jobs, newest first, and how far back they were looked for."""

    rows: Sequence[tuple[Entry, Job | None]]
    oldest: int
    further: int | None
    """Number of the entry before which to go on; None at the beginning of the chain."""


def search(session: Session, account: Account, wanted: Search, named: Sequence[str] = ()) -> Found:
    """The newest entries of an account that fit, among a stretch of them.

    Args:
        session: of the caller's transaction.
        account: whose they are.
        wanted: what is looked for.
        named: datasets and analysts whose names fit the text.
    """
    newest = min(account.seq, wanted.before - 1 if wanted.before else account.seq)
    oldest = max(newest - _STRETCH + 1, 1)
    text, stretch = wanted.text.strip().removeprefix("#"), Entry.seq.between(oldest, newest)
    if text.isdecimal():
        oldest, stretch = 1, Entry.seq == min(int(text), account.seq + 1)
    elif text.startswith("job_"):
        oldest, stretch = 1, Entry.job_id == text
    elif text:
        stretch = and_(stretch, or_(Job.dataset_id.in_(named), Job.submitter_id.in_(named)))
    statement = (
        select(Entry, Job)
        .options(WITHOUT_ANSWERS)
        .outerjoin(Job, Job.id == Entry.job_id)
        .where(Entry.account_id == account.id, stretch)
        .order_by(Entry.seq.desc())
        .limit(_PAGE)
    )
    for column, value in (
        (Job.submitter_id, wanted.analyst),
        (Job.kind, wanted.kind),
        (Entry.kind if wanted.state == "limit" else Job.state, wanted.state),
    ):
        if value:
            statement = statement.where(column == value)
    if wanted.dataset:  # with all that was declared to hold the same rows, which counts together
        of = select(Dataset.lineage).where(Dataset.id == wanted.dataset).scalar_subquery()
        statement = statement.where(
            Job.dataset_id.in_(
                select(Dataset.id).where(Dataset.owner_id == account.owner_id, Dataset.lineage == of)
            )
        )
    rows = session.execute(statement).all()
    if len(rows) == _PAGE:
        oldest = rows[-1][0].seq
    return Found(rows, oldest, oldest if oldest > 1 else None)


def latest_states(session: Session, account: Account) -> Sequence[str]:
    """The states of the jobs on the first page, newest first."""
    return session.scalars(
        select(Job.state)
        .join(Entry, Entry.job_id == Job.id)
        .where(Entry.account_id == account.id, Entry.seq > account.seq - _PAGE)
        .order_by(Entry.seq.desc())
    ).all()


@dataclass(frozen=True)
class Check:
    """One thing that was verified, and whether it holds; None where it cannot be told here."""

    what: str
    holds: bool | None


@dataclass(frozen=True)
class Detail:
    """One entry with all that belongs to it.

    `act` let it be: it set the limit, or approved the question. `former` is the limit that was raised.
    """

    entry: Entry
    job: Job | None
    mechanism: Mechanism | None
    receipt: Receipt | None
    checks: list[Check]
    act: Told | None
    former: Entry | None


def detail(session: Session, account: Account, seq: int, signer: Signer) -> Detail:
    """An entry, verified with those before it and with its receipt.

    Raises:
        NotFound: the chain is not that long.
    """
    links = session.scalars(
        select(Entry)
        .where(Entry.account_id == account.id, Entry.seq.between(seq - _LINKS, seq + 1))
        .order_by(Entry.seq)
    ).all()
    entry = next((each for each in links if each.seq == seq), None)
    if entry is None:
        raise NotFound
    job = session.get(Job, entry.job_id) if entry.job_id else None
    mechanism = session.get(Mechanism, entry.mechanism) if entry.mechanism else None
    receipt = Receipt.model_validate_json(job.receipt) if job and job.receipt else None
    checks = _checks(account, links, entry, mechanism, receipt, signer)
    return Detail(entry, job, mechanism, receipt, checks, *_behind(session, account, entry))


def _behind(session: Session, account: Account, entry: Entry) -> tuple[Told | None, Entry | None]:
    """The act that let an entry be, where one is known, and the limit that a limit replaced."""
    if entry.kind != "limit":
        return behind.approval(session, account.owner_id, entry.job_id) if entry.job_id else None, None
    earlier = (Entry.account_id == account.id, SETS_LIMIT, Entry.seq < entry.seq)
    former = session.scalars(select(Entry).where(*earlier).order_by(Entry.seq)).all()
    act = next(islice(behind.limits_set(session, account), len(former), None), None)
    return act, former[-1] if former else None


def places_of(session: Session, owner_id: str, *job_ids: str) -> Sequence[tuple[int, int]]:
    """Where an owner's budget was charged for jobs: the number of each entry, and its window."""
    found = (
        select(Entry.seq, Account.window)
        .join(Account, Account.id == Entry.account_id)
        .where(Entry.job_id.in_(job_ids), Entry.kind == "debit")
        .where(Account.owner_id == owner_id, Account.scope == "owner")
        .order_by(Account.window, Entry.seq)
    )
    return [(seq, window) for seq, window in session.execute(found)]


def _sums_after(earlier: Entry, later: Entry) -> tuple[int, ...]:
    """The sums that an entry must bear after the one before it."""
    *spent, queries = (getattr(earlier, name) for name in SUMS_AFTER)
    if later.kind != "limit":
        amounts = (later.epsilon, later.delta, later.mu_squared, later.slack)
        spent = list(map(moved, spent, amounts))
    return (*spent, queries + QUERIES[later.kind])


def _checks(
    account: Account,
    links: Sequence[Entry],
    entry: Entry,
    mechanism: Mechanism | None,
    receipt: Receipt | None,
    signer: Signer,
) -> list[Check]:
    whole = all(entry_hash(each) == each.hash for each in links)
    joined = all(
        later.prev == earlier.hash and later.seq == earlier.seq + 1 for earlier, later in pairwise(links)
    )
    summed = all(
        _sums_after(earlier, later) == tuple(getattr(later, name) for name in SUMS_AFTER)
        for earlier, later in pairwise(links)
    )
    ends = links[-1].seq < account.seq or links[-1].hash == account.head
    known = entry.signer == signer.id
    checks = [
        Check(
            f"entries {links[0].seq:,} to {links[-1].seq:,} are unchanged, and each follows the one before",
            whole and joined and ends,
        ),
        Check("the sums that each of them bears are right", summed),
        Check(
            f"signed by this service with the key whose id is {entry.signer}",
            is_signature(entry.signature, to_sign(entry.hash), signer.public_key) if known else None,
        ),
    ]
    if mechanism is not None:
        same = hashlib.sha256(mechanism.content.encode()).hexdigest() == mechanism.digest
        checks.append(Check("the mechanism is the one that was charged", same))
    if receipt is not None:
        own = any(
            (each.account, each.seq, each.hash) == (account.id, entry.seq, entry.hash)
            for each in receipt.statement.entries
        )
        signed = signed_by(receipt, signer.public_key) if receipt.public_key == signer.public_key else None
        checks.append(Check("the receipt is for this entry, and truly signed", signed and own))
    return checks


def columns_of(session: Session, rows: Sequence[tuple[Entry, Job | None]]) -> dict[str, str]:
    """Which columns the questions of entries were about, in words, by the job."""
    asked = {job.id for _, job in rows if job is not None}
    found = session.execute(select(Job.id, Job.plan).where(Job.id.in_(asked)))
    return {job_id: of_columns(plan) for job_id, plan in found}
