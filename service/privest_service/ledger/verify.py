"""Checks a ledger line by line: hashes, signatures, sums, limits, and every cost against its mechanism."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.entries import QUERIES, SUMS_AFTER
from privest_service.ledger.export import (
    AccountLine,
    Digest,
    End,
    EntryLine,
    Heads,
    JobLine,
    Line,
    MechanismLine,
    ReceiptLine,
    read,
)
from privest_service.ledger.mechanisms import cost_again
from privest_service.ledger.models import Entry
from privest_service.ledger.receipts import Receipt, Statement, signed_by
from privest_service.ledger.units import Charge, moved
from privest_service.signing import is_signature, key_id

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")

_BEFORE = datetime.min.replace(tzinfo=UTC)

_KEY = re.compile(r"(?P<key>[A-Za-z0-9+/]{43}=)(=(?P<until>.+))?")


@dataclass(frozen=True)
class Trusted:
    """A public key (base64) that a ledger may be signed with, and when it was retired if it was."""

    public_key: str
    until: datetime | None = None

    @classmethod
    def read(cls, told: str) -> "Trusted":
        """From `BASE64`, or `BASE64=MOMENT` of a key that is retired; a moment without a zone is in UTC.

        Raises:
            ValueError: it is neither, in words.
        """
        if (found := _KEY.fullmatch(told)) is None:
            raise ValueError("a public key is base64, as /v1/ledger/keys shows it")
        if found["until"] is None:
            return cls(found["key"])
        try:
            until = datetime.fromisoformat(found["until"])
        except ValueError:
            raise ValueError("the end of a key is a moment like 2026-01-31T12:00Z") from None
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
        raise ValueError("of all keys but the present one the end is needed: BASE64=2026-01-31T12:00Z")
    return {key_id(key.public_key): key for key in found}


@dataclass
class Report:
    """What was read, and what is wrong with it, in words."""

    accounts: int = 0
    entries: int = 0
    receipts: int = 0
    faults: list[str] = field(default_factory=list)
    faulty: set[int] = field(default_factory=set[int])
    """Accounts that the faults are of."""

    def blame(self, account: int, faults: Iterable[str]) -> None:
        """Add what is wrong with an account."""
        for fault in faults:
            self.faults.append(f"account {account}: {fault}")
            self.faulty.add(account)


@dataclass
class _Chain:
    """One account, as far as it was read."""

    stated: AccountLine
    seq: int = 0
    head: str = ""
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_AMOUNTS, 0))
    limits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_AMOUNTS, 0))
    queries: int = 0
    open: dict[str, Charge] = field(default_factory=dict[str, Charge])
    """By job: debits that were not voided."""
    voided: list[str] = field(default_factory=list[str])
    """Jobs whose debits were."""
    published: list[tuple[int, datetime]] = field(default_factory=list[tuple[int, datetime]])
    """Places that it had come to by these moments, as heads tell that were kept."""
    latest: datetime = _BEFORE
    """A moment that the chain is known to have come to."""


_Place = tuple[int, int, str]
"""Where an entry stands: its account, its number, its hash."""


@dataclass
class _Debits:
    """The entries that are there, and which of them are debits of which job."""

    places: set[_Place] = field(default_factory=set[_Place])
    of_job: defaultdict[str, set[_Place]] = field(default_factory=lambda: defaultdict(set))

    def add(self, line: EntryLine) -> None:
        """Take an entry."""
        place = (line.account, line.seq, line.hash)
        self.places.add(place)
        if line.kind == "debit" and line.job is not None:
            self.of_job[line.job].add(place)


@dataclass
class _Receipts:
    """Receipts against the entries that are there.

    Attributes:
        debits: of all entries.
        keys: that may sign.
        by_job: of each job that has an owner's receipt, the commitments to its entries.
        by_answer: by the digest of the receipt on a whole job on several datasets, the parts of it.
        statements: the digest of each job's owner's receipt.
        analysts: jobs that have an analyst's receipt.
        wholes: owners' receipts on jobs that are not charged themselves.
    """

    debits: _Debits
    keys: dict[str, Trusted]
    by_job: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    by_answer: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    statements: dict[str, str] = field(default_factory=dict[str, str])
    analysts: set[str] = field(default_factory=set[str])
    wholes: dict[str, Receipt] = field(default_factory=dict[str, Receipt])

    def faults_of(self, receipt: Receipt) -> Iterator[str]:
        """Take a receipt of the ledger, and tell what is wrong with it."""
        told = receipt.statement
        owners = bool(told.entries)
        if told.job in (self.statements if owners else self.analysts):
            yield f"job {told.job} has two receipts for {'its owner' if owners else 'an analyst'}"
        yield from self._signature(receipt)
        if not owners:
            self.analysts.add(told.job)
            yield from self._commitments(receipt)
            return
        self.statements[told.job] = _digest(told)
        if told.job not in self.debits.of_job:
            self.wholes[told.job] = receipt  # its parts may follow
            return
        self.by_job[told.job] = {each.commitment for each in told.entries if each.commitment is not None}
        self.by_answer[told.answer].add(told.job)
        yield from self._named(receipt, self.debits.of_job[told.job])

    def faults_of_wholes(self) -> Iterator[str]:
        """What is wrong with receipts on jobs on several datasets, once all of their parts were read."""
        for receipt in self.wholes.values():
            yield from self._whole(receipt)

    def faults_of_shown(self, receipt: Receipt) -> Iterator[str]:
        """What is wrong with a receipt that somebody kept, or with the ledger, which must have it."""
        told = receipt.statement
        yield from self._signature(receipt)
        if not told.entries:
            yield from self._commitments(receipt)
        elif told.job not in self.debits.of_job:
            yield from self._whole(receipt)
        else:
            yield from self._named(receipt, self.debits.of_job[told.job])
            if self.statements.get(told.job) != _digest(told):
                yield f"the receipt of {told.job} that was kept is not the one that is there"

    def _signature(self, receipt: Receipt) -> Iterator[str]:
        job, at = receipt.statement.job, receipt.statement.at
        if not any(key.holds(at) and signed_by(receipt, key.public_key) for key in self.keys.values()):
            yield f"the receipt of {job} has no true signature of a key that was given"

    def _named(self, receipt: Receipt, debits: set[_Place]) -> Iterator[str]:
        job, named = receipt.statement.job, [(e.account, e.seq, e.hash) for e in receipt.statement.entries]
        if not self.debits.places.issuperset(named):
            yield f"the receipt of {job} is for an entry that is not there"
        elif sorted(named) != sorted(debits):
            yield f"the receipt of {job} does not name the debits of its job, each once"

    def _whole(self, receipt: Receipt) -> Iterator[str]:
        # Each part's receipt has the digest of this one in place of an answer.
        parts = self.by_answer.get(_sha256(receipt), set())
        yield from self._named(receipt, {place for part in parts for place in self.debits.of_job[part]})

    def _commitments(self, receipt: Receipt) -> Iterator[str]:
        job, commitments = receipt.statement.job, set(receipt.statement.commitments)
        if job in self.by_job:
            fits = commitments == self.by_job[job]
        else:  # of one on several owners' datasets: this ledger may be that of some of them
            parts = self.by_answer.get(_sha256(receipt), set())
            opened = {commitment for part in parts for commitment in self.by_job[part]}
            fits = bool(opened) and opened <= commitments
        if not fits:
            yield f"the analyst's receipt of {job} does not commit to the entries that are there"


def _sha256(receipt: Receipt) -> str:
    return hashlib.sha256(receipt.model_dump_json().encode()).hexdigest()


def _digest(statement: Statement) -> str:
    return hashlib.sha256(statement.model_dump_json().encode()).hexdigest()


def verify(
    lines: Iterable[Line], keys: Sequence[str], kept: Sequence[Heads] = (), shown: Sequence[Receipt] = ()
) -> Report:
    """Read a ledger once, from first line to last.

    Args:
        lines: of a database or of an export.
        keys: that it may be signed with, as `Trusted` reads them. They must come from elsewhere: a key that
            came with the lines proves nothing.
        kept: heads that were published earlier; chains must still go through them.
        shown: receipts that analysts hold; what they commit to must be there.

    Raises:
        ValueError: a key is none, or the end of one is missing.
    """
    report, known = Report(), trusted(keys)
    chains: dict[int, _Chain] = {}
    published, debits = _published(kept, known), _Debits()
    receipts = _Receipts(debits, known)
    jobs = _Jobs(receipts)
    costs: dict[str, Charge | str] = {}
    ends: list[Heads] = []
    for line in _up_to_the_end(lines, known, report):
        if isinstance(line, AccountLine):
            report.accounts += 1
            if line.account in chains:
                report.blame(line.account, ["it is there twice"])
            chains[line.account] = _Chain(line, published=published.get(line.account, []))
        elif isinstance(line, MechanismLine):
            costs[line.digest] = _cost(line)
        elif isinstance(line, EntryLine):
            report.entries += 1
            chain = chains.get(line.account)
            if chain is None:
                report.blame(line.account, ["it has entries and is not there"])
                continue
            debits.add(line)
            report.blame(line.account, _entry(chain, line, known, costs))
        elif isinstance(line, Heads):
            ends.append(line)
            report.faults.extend(_heads(line, known, debits.places))
        elif isinstance(line, JobLine):
            report.faults.extend(jobs.take(line))
        else:
            report.receipts += 1
            report.faults.extend(receipts.faults_of(line.receipt))
    for number, chain in chains.items():
        report.blame(number, _end(chain))
        report.blame(number, jobs.faults_of(chain))
    report.faults.extend(jobs.faults())
    report.faults.extend(receipts.faults_of_wholes())
    report.faults.extend(_ends(ends, chains))
    for earlier in kept:
        report.faults.extend(
            f"as published {earlier.at}: {it}" for it in _heads(earlier, known, debits.places)
        )
    for receipt in shown:
        report.faults.extend(receipts.faults_of_shown(receipt))
    return report


def verify_file(path: str, keys: Sequence[str]) -> Report:
    """Read an export: the work of a worker process, as a long ledger takes a while."""
    with Path(path).open() as file:
        try:
            return verify(read(file), keys)
        except ValueError as error:  # what is written is no ledger
            return Report(faults=[str(error)])


def _cost(line: MechanismLine) -> Charge | str:
    """The charge of a mechanism, or what is wrong with it."""
    if hashlib.sha256(line.content.encode()).hexdigest() != line.digest:
        return "was changed"
    try:
        return cost_again(line.content)
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return "does not keep what it promises"


def _up_to_the_end(
    lines: Iterable[Line], keys: dict[str, Trusted], report: Report
) -> Iterator[AccountLine | MechanismLine | EntryLine | ReceiptLine | JobLine | Heads]:
    """All lines but the end, which has to be the last one."""
    digest, ended = Digest(), False
    for line in lines:
        ended = isinstance(line, End)
        if isinstance(line, End):
            report.faults.extend(_told_whole(line, keys, digest))
        else:
            yield line
        digest.add(line)
    if not ended:
        report.faults.append("there is no end that is signed over all lines: this ledger was cut")


def _told_whole(end: End, keys: dict[str, Trusted], digest: Digest) -> Iterator[str]:
    key = keys.get(end.signer)
    if key is None or not key.signed(end.signature, end.to_sign(), end.at):
        yield "the end has no true signature of a key that was given"
    if (end.lines, end.digest) != (digest.lines, digest.digest):
        yield "the lines are not those that the end was signed over"


def _published(
    kept: Sequence[Heads], keys: dict[str, Trusted]
) -> defaultdict[int, list[tuple[int, datetime]]]:
    """Where heads say that accounts' chains had come, and when; of those that are truly signed."""
    found = defaultdict[int, list[tuple[int, datetime]]](list)
    for each in kept:
        if _heads_signed(each, keys):
            for head in each.heads:
                found[head.account].append((head.seq, datetime.fromisoformat(each.at)))
    return found


def _entry(
    chain: _Chain, line: EntryLine, keys: dict[str, Trusted], costs: dict[str, Charge | str]
) -> Iterator[str]:
    if line.seq != chain.seq + 1 or line.prev != chain.head:
        yield f"entry {line.seq} does not follow its predecessor"
    if not _is_hashed(line):
        yield f"entry {line.seq} was changed"
    yield from _signature(chain, line, keys)
    chain.seq, chain.head = line.seq, line.hash
    amounts = Charge(line.epsilon, line.delta, line.mu_squared, line.slack)
    if line.kind == "limit":
        chain.limits = {name: getattr(amounts, name) for name in _AMOUNTS}
        yield from _sums_after(chain, line)
        return
    for name in _AMOUNTS:
        chain.sums[name] = moved(chain.sums[name], getattr(amounts, name))
    counted = ("mu_squared", "slack") if chain.stated.composition == "gdp" else ("epsilon", "delta")
    if any(chain.sums[name] > chain.limits[name] for name in counted):
        yield f"entry {line.seq} goes beyond the limit"
    chain.queries += QUERIES[line.kind]
    yield from _sums_after(chain, line)
    job = line.job or ""
    if line.kind == "loss":
        if any(getattr(amounts, name) < 0 for name in _AMOUNTS):
            yield f"entry {line.seq} gives back as a loss"
    elif line.kind == "debit":
        if job in chain.open:
            yield f"entry {line.seq} charges a job twice"
        chain.open[job] = amounts
        yield from _mechanism(line, amounts, costs)
    else:
        chain.voided.append(job)
        if chain.open.pop(job, None) != -amounts:
            yield f"entry {line.seq} gives back what was not charged"


def _is_hashed(line: EntryLine) -> bool:
    try:
        return entry_hash(_as_entry(line)) == line.hash
    except (ValueError, OverflowError):  # a number, or a moment, that no entry can have
        return False


def _signature(chain: _Chain, line: EntryLine, keys: dict[str, Trusted]) -> Iterator[str]:
    # Whoever has a retired key may write any moment; but the chain had come further than that, where later
    # entries or heads that were kept say so.
    chain.latest = max(chain.latest, line.at, *(at for seq, at in chain.published if seq < line.seq))
    if (key := keys.get(line.signer)) is None:
        yield f"entry {line.seq} is signed with a key that was not given, {line.signer}"
    elif not key.holds(chain.latest):
        yield f"entry {line.seq} is signed with a key that was retired, {line.signer}"
    elif not key.signed(line.signature, to_sign(line.hash), line.at):
        yield f"entry {line.seq} has no true signature"


def _sums_after(chain: _Chain, line: EntryLine) -> Iterator[str]:
    told = [getattr(line, name) for name in SUMS_AFTER]
    if told != [None] * len(told) and told != [*chain.sums.values(), chain.queries]:
        yield f"entry {line.seq} does not bear the sums of its chain"


def _mechanism(line: EntryLine, amounts: Charge, costs: dict[str, Charge | str]) -> Iterator[str]:
    cost = costs.get(line.mechanism or "", "is not there")
    if isinstance(cost, str):
        yield f"the mechanism of entry {line.seq} {cost}"
    elif any(getattr(amounts, name) < getattr(cost, name) for name in _AMOUNTS):
        yield f"entry {line.seq} charges less than its mechanism costs"


def _end(chain: _Chain) -> Iterator[str]:
    stated = chain.stated
    if (stated.seq, stated.head) != (chain.seq, chain.head):
        yield "the chain does not end where the account says"
    if stated.queries not in (None, chain.queries):
        yield "the number of queries is not that of the entries"
    for name in _AMOUNTS:
        if stated.spent.get(name) != chain.sums[name]:
            yield f"spent {name} is not the sum of the entries"
        if stated.limit.get(name) != chain.limits[name]:
            yield f"the limit of {name} is not the one last entered"


@dataclass
class _Jobs:
    """What became of jobs, and which of them have receipts."""

    receipts: _Receipts
    states: dict[str, str] = field(default_factory=dict[str, str])
    of_analysts: set[str] = field(default_factory=set[str])
    """Jobs that their owner did not ask for."""

    def take(self, line: JobLine) -> Iterator[str]:
        """What became of one more job, which is told once."""
        if line.job in self.states:
            yield f"job {line.job} is told twice"
        self.states[line.job] = line.state
        if line.asked_by_owner is False:
            self.of_analysts.add(line.job)

    def faults_of(self, chain: _Chain) -> Iterator[str]:
        """What became of a job must be what became of its charge."""
        for job in chain.open:
            if (state := self.states.get(job)) in (None, "voided"):
                yield f"job {job} is charged and {state or 'is not there'}"
        for job in chain.voided:
            if (state := self.states.get(job)) != "voided" or job in self.receipts.statements:
                yield f"what job {job} cost was given back, and it is {state or 'not there'}"

    def faults(self) -> Iterator[str]:
        """A job has a receipt if it was committed. Of one on several datasets only the parts are told."""
        there = self.receipts
        for job, state in self.states.items():
            if (state == "committed") != (job in there.statements):
                yield f"job {job} is {state} and has {'a' if job in there.statements else 'no'} receipt"
            # Receipts of before there were commitments have none for analysts beside them.
            if job in self.of_analysts and there.by_job.get(job) and job not in there.analysts:
                yield f"job {job} was not asked for by its owner, and has no analyst's receipt"


def _heads_signed(signed: Heads, keys: dict[str, Trusted]) -> bool:
    key = keys.get(signed.signer)
    return key is not None and key.signed(signed.signature, signed.to_sign(), signed.at)


def _heads(signed: Heads, keys: dict[str, Trusted], places: set[_Place]) -> Iterator[str]:
    if not _heads_signed(signed, keys):
        yield "the heads have no true signature of a key that was given"
    for head in signed.heads:
        if (head.account, head.seq, head.hash) not in places:
            yield f"account {head.account} does not go through its head at {head.seq}"


def _ends(told: Sequence[Heads], chains: dict[int, _Chain]) -> Iterator[str]:
    """A ledger tells once where all of its chains end."""
    if len(told) != 1:
        yield f"there are {len(told) or 'no'} heads, and not one"
        return
    heads = sorted((head.account, head.seq, head.hash) for head in told[0].heads)
    if heads != sorted((number, chain.seq, chain.head) for number, chain in chains.items()):
        yield "the heads are not the ends of all chains"


def _as_entry(line: EntryLine) -> Entry:
    return Entry(
        account_id=line.account,
        seq=line.seq,
        kind=line.kind,
        job_id=line.job,
        mechanism=line.mechanism,
        epsilon=line.epsilon,
        delta=line.delta,
        mu_squared=line.mu_squared,
        slack=line.slack,
        at=line.at,
        prev=line.prev,
    )
