"""Checks a ledger line by line: hashes, signatures, sums, limits, and every cost against its mechanism."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.export import AccountLine, EntryLine, Heads, Line, MechanismLine, read
from privest_service.ledger.mechanisms import cost_again
from privest_service.ledger.models import Entry
from privest_service.ledger.receipts import Receipt, is_signature, key_id, signed_by
from privest_service.ledger.service import QUERIES, SUMS_AFTER
from privest_service.ledger.units import Charge, moved

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")


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


@dataclass
class _Opened:
    """Commitments to entries that are there, as owners' receipts open them.

    Attributes:
        by_job: of each job that has an owner's receipt.
        by_answer: of the parts of a job on several datasets, by the digest of the receipt on the whole.
    """

    by_job: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_answer: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, receipt: Receipt) -> None:
        """Take an owner's receipt."""
        told = receipt.statement
        opened = {each.commitment for each in told.entries if each.commitment is not None}
        self.by_job[told.job] |= opened
        self.by_answer[told.answer] |= opened


def verify(
    lines: Iterable[Line], keys: Sequence[str], kept: Sequence[Heads] = (), shown: Sequence[Receipt] = ()
) -> Report:
    """Read a ledger once, from first line to last.

    Args:
        lines: of a database or of an export.
        keys: public keys (base64) that its entries may be signed with. They must come from elsewhere: a key
            that came with the lines proves nothing.
        kept: heads that were published earlier; chains must still go through them.
        shown: receipts that analysts hold; what they commit to must be there.
    """
    report, known = Report(), {key_id(key): key for key in keys}
    chains: dict[int, _Chain] = {}
    costs: dict[str, Charge | str] = {}
    hashes: set[tuple[int, int, str]] = set()
    opened = _Opened()
    for line in lines:
        if isinstance(line, AccountLine):
            report.accounts += 1
            if line.account in chains:
                report.blame(line.account, ["it is there twice"])
            chains[line.account] = _Chain(line)
        elif isinstance(line, MechanismLine):
            costs[line.digest] = _cost(line)
        elif isinstance(line, EntryLine):
            report.entries += 1
            chain = chains.get(line.account)
            if chain is None:
                report.blame(line.account, ["it has entries and is not there"])
                continue
            hashes.add((line.account, line.seq, line.hash))
            report.blame(line.account, _entry(chain, line, known, costs))
        elif isinstance(line, Heads):
            report.faults.extend(_heads(line, known, hashes))
        else:
            report.receipts += 1
            report.faults.extend(_receipt(line.receipt, keys, hashes, opened))
    for number, chain in chains.items():
        report.blame(number, _end(chain))
    for earlier in kept:
        report.faults.extend(f"as published {earlier.at}: {it}" for it in _heads(earlier, known, hashes))
    for receipt in shown:
        report.faults.extend(_receipt(receipt, keys, hashes, opened))
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
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return "does not keep what it promises"


def _entry(
    chain: _Chain, line: EntryLine, keys: dict[str, str], costs: dict[str, Charge | str]
) -> Iterator[str]:
    if line.seq != chain.seq + 1 or line.prev != chain.head:
        yield f"entry {line.seq} does not follow its predecessor"
    if entry_hash(_as_entry(line)) != line.hash:
        yield f"entry {line.seq} was changed"
    if (key := keys.get(line.signer)) is None:
        yield f"entry {line.seq} is signed with a key that was not given, {line.signer}"
    elif not is_signature(line.signature, to_sign(line.hash), key):
        yield f"entry {line.seq} has no true signature"
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
    elif chain.open.pop(job, None) != -amounts:
        yield f"entry {line.seq} gives back what was not charged"


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
        if stated.spent[name] != chain.sums[name]:
            yield f"spent {name} is not the sum of the entries"
        if stated.limit[name] != chain.limits[name]:
            yield f"the limit of {name} is not the one last entered"


def _heads(signed: Heads, keys: dict[str, str], hashes: set[tuple[int, int, str]]) -> Iterator[str]:
    key = keys.get(signed.signer)
    if key is None or not is_signature(signed.signature, signed.to_sign(), key):
        yield "the heads have no true signature of a key that was given"
    for head in signed.heads:
        if (head.account, head.seq, head.hash) not in hashes:
            yield f"account {head.account} does not go through its head at {head.seq}"


def _receipt(
    receipt: Receipt, keys: Sequence[str], hashes: set[tuple[int, int, str]], opened: _Opened
) -> Iterator[str]:
    job = receipt.statement.job
    if not any(signed_by(receipt, key) for key in keys):
        yield f"the receipt of {job} has no true signature of a key that was given"
    for entry in receipt.statement.entries:
        if (entry.account, entry.seq, entry.hash) not in hashes:
            yield f"the receipt of {job} is for an entry that is not there"
    if receipt.statement.entries:
        opened.add(receipt)
        return
    # An analyst's. Of one on several owners' datasets, this ledger may be that of some of them.
    commitments = set(receipt.statement.commitments)
    whole = hashlib.sha256(receipt.model_dump_json().encode()).hexdigest()
    if job in opened.by_job:
        fits = commitments == opened.by_job[job]
    else:
        fits = bool(opened.by_answer.get(whole)) and opened.by_answer[whole] <= commitments
    if not fits:
        yield f"the analyst's receipt of {job} does not commit to the entries that are there"


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
