"""Checks a ledger line by line, from first to last, whether it is a database's or an export."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from privest.memo import fresh_memo
from privest_service.exports.acts import Acts
from privest_service.exports.chains import Chain, faults_of_end, faults_of_entry
from privest_service.exports.keys import Trusted, trusted
from privest_service.exports.lines import (
    AccountLine,
    ActLine,
    Digest,
    End,
    EntryLine,
    Heads,
    JobLine,
    Line,
    MechanismLine,
    ReceiptLine,
    Told,
    read,
    to_sign,
)
from privest_service.exports.receipts import Debits, Jobs, Place, Receipts
from privest_service.exports.tables import Tables
from privest_service.ledger.mechanisms import Asker, cost_again, who_asked
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import Charge


@dataclass
class Report:
    """The numbers of what was read, and in words what is wrong with it."""

    accounts: int = 0
    entries: int = 0
    answers: int = 0
    """Jobs that were answered. Each has a receipt for its owner, and one more for whoever else asked."""
    receipts: int = 0
    acts: int = 0
    unsealed: list[str] = field(default_factory=list[str])
    """Names, terms and reasons that tables tell and no act does."""
    faults: list[str] = field(default_factory=list)
    faulty: set[int] = field(default_factory=set[int])
    """Accounts with faults."""
    names: dict[int, str] = field(default_factory=dict[int, str])
    """What accounts are of, in words."""

    def begin(self, line: AccountLine) -> None:
        """Note an account."""
        self.accounts += 1
        self.names.setdefault(line.account, _name(line))

    def blame(self, account: int, faults: Iterable[str]) -> None:
        """Add what is wrong with an account."""
        name = self.names.get(account, "which is not there")
        for fault in faults:
            self.faults.append(f"account {account}, {name}: {fault}")
            self.faulty.add(account)


@fresh_memo()
def verify(
    lines: Iterable[Line], keys: Sequence[str], kept: Sequence[Heads] = (), shown: Sequence[Receipt] = ()
) -> Report:
    """Read a ledger once, from first line to last.

    Args:
        lines: of a database or of an export.
        keys: that it may be signed with, as `Trusted` reads them, and from elsewhere: one that came with the
            lines proves nothing.
        kept: heads that were published earlier; chains must still go through them.
        shown: receipts that analysts hold; what they commit to must be there.

    Raises:
        ValueError: a key is none, or the end of one is missing.
    """
    report, known = Report(), trusted(keys)
    chains, costs, ends = dict[int, Chain](), dict[str, Charge | str](), list[Heads]()
    published, debits, tables = _published(kept, known), Debits(), Tables()
    acts, receipts = Acts(known, published), Receipts(debits, known)
    jobs = Jobs(receipts)
    for line in _up_to_the_end(lines, known, report):
        tables.take(line)
        if isinstance(line, AccountLine):
            report.begin(line)
            if line.account in chains:
                report.blame(line.account, ["it is there twice"])
            chains[line.account] = Chain(stated=line, published=published.get(line.account, []))
        elif isinstance(line, MechanismLine):
            costs[line.digest], debits.told[line.digest] = _cost(line), _asker(line)
        elif isinstance(line, EntryLine):
            report.entries += 1
            if (chain := chains.get(line.account)) is None:
                report.blame(line.account, ["it has entries"])
            else:
                debits.add(line)
                report.blame(line.account, faults_of_entry(chain, line, known, costs))
        elif isinstance(line, ActLine):
            report.acts += 1
            report.faults.extend(acts.faults_of(line))
        elif isinstance(line, Heads):
            ends.append(line)
            report.faults.extend(_heads(line, known, debits.places, acts))
        elif isinstance(line, JobLine):
            report.answers += line.state == "committed"
            report.faults.extend(jobs.take(line))
        elif isinstance(line, ReceiptLine):
            report.receipts += 1
            report.faults.extend(receipts.faults_of(line.receipt))
    for number, chain in chains.items():
        report.blame(number, (*faults_of_end(chain), *jobs.faults_of(chain, acts.denied)))
    owners = {chain.stated.owner for chain in chains.values()}
    report.faults.extend((*jobs.faults(), *receipts.faults_of_wholes(), *_ends(ends, chains)))
    report.faults.extend((*acts.faults_of_ends(ends, owners), *acts.faults_of_approvals(jobs.approvals)))
    report.faults.extend((*acts.faults_of_windows(chains.values()), *tables.faults()))
    report.faults.extend(tables.faults_of_caps(chains.values(), acts.chains))
    report.unsealed.extend(tables.unsealed())
    there = ((earlier.at, it) for earlier in kept for it in _heads(earlier, known, debits.places, acts))
    report.faults.extend(f"as published {at}: {fault}" for at, fault in there)
    report.faults.extend(fault for receipt in shown for fault in receipts.faults_of_shown(receipt))
    return report


def verify_file(path: str, keys: Sequence[str]) -> Report:
    """Read an export: the work of a worker process, as a long ledger takes a while."""
    with Path(path).open() as file:
        try:
            return verify(read(file), keys)
        except ValueError as error:  # what is written is no ledger
            return Report(faults=[str(error)])


def _name(line: AccountLine) -> str:
    """What an account is of, in words."""
    if line.scope == "owner":
        return f"the budget in window {line.window}"
    return f"the cap of {line.analyst or 'everybody'} on {', '.join(line.datasets) or 'rows that are gone'}"


def _cost(line: MechanismLine) -> Charge | str:
    """The charge of a mechanism, or what is wrong with it."""
    if hashlib.sha256(line.content.encode()).hexdigest() != line.digest:
        return "was changed"
    try:
        return cost_again(line.content)
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return "does not keep what it promises"


def _asker(line: MechanismLine) -> Asker:
    """Who asked, as a mechanism tells it; nobody where it is none, of which its cost tells."""
    try:
        return who_asked(line.content)
    except ValueError:
        return None, None


def _up_to_the_end(lines: Iterable[Line], keys: dict[str, Trusted], report: Report) -> Iterator[Told | Heads]:
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
    if not _is_signed(end, keys):
        yield "the end has no true signature of a key that was given"
    if (end.lines, end.digest) != (digest.lines, digest.digest):
        yield "the lines are not those that the end was signed over"


def _published(
    kept: Sequence[Heads], keys: dict[str, Trusted]
) -> defaultdict[int | str, list[tuple[int, datetime]]]:
    """Return how far each chain had come, and when, by the heads that are truly signed."""
    found = defaultdict[int | str, list[tuple[int, datetime]]](list)
    for each in kept:
        if _is_signed(each, keys):
            for head in each.heads:
                found[head.account].append((head.seq, datetime.fromisoformat(each.at)))
            for head in each.acts or ():
                found[head.chain].append((head.seq, datetime.fromisoformat(each.at)))
    return found


def _is_signed(line: Heads | End, keys: dict[str, Trusted]) -> bool:
    key = keys.get(line.signer)
    return key is not None and key.signed(line.signature, to_sign(line), line.at)


def _heads(signed: Heads, keys: dict[str, Trusted], places: set[Place], acts: Acts) -> Iterator[str]:
    if not _is_signed(signed, keys):
        yield "the heads have no true signature of a key that was given"
    for head in signed.heads:
        if (head.account, head.seq, head.hash) not in places:
            yield f"account {head.account} does not go through its head at {head.seq}"
    yield from acts.faults_of_heads(signed)


def _ends(told: Sequence[Heads], chains: dict[int, Chain]) -> Iterator[str]:
    """A ledger tells once where all of its chains end."""
    if len(told) != 1:
        yield f"there are {len(told) or 'no'} heads, and not one"
        return
    heads = sorted((head.account, head.seq, head.hash) for head in told[0].heads)
    if heads != sorted((number, chain.seq, chain.head) for number, chain in chains.items()):
        yield "the heads are not the ends of all chains"
