"""Checks of chains: hashes, signatures; of an account also sums, limits, and costs against mechanisms."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from privest_service.acts.chain import act_hash
from privest_service.acts.chain import to_sign as act_to_sign
from privest_service.acts.models import Act
from privest_service.exports.keys import Trusted
from privest_service.exports.lines import ACT_FIELDS, SHARED, AccountLine, ActLine, EntryLine
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.entries import AMOUNTS, QUERIES, SUMS_AFTER
from privest_service.ledger.models import Entry
from privest_service.ledger.units import Charge, moved

_BEFORE = datetime.min.replace(tzinfo=UTC)


@dataclass
class Links:
    """A chain, as far as it was read: of acts, or of an account's entries."""

    seq: int = 0
    head: str = ""
    published: list[tuple[int, datetime]] = field(default_factory=list[tuple[int, datetime]])
    """Places that the chain had reached at given moments, as kept heads tell."""
    latest: datetime = _BEFORE
    """Latest moment that the chain is known to have reached."""
    signed: bool = False
    """Whether any link was signed."""


@dataclass(kw_only=True)
class Chain(Links):
    """One account, as far as it was read."""

    stated: AccountLine
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(AMOUNTS, 0))
    limits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(AMOUNTS, 0))
    entered: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    """All limits that were entered, the present ones last."""
    queries: int = 0
    open: dict[str, Charge] = field(default_factory=dict[str, Charge])
    """Debits that were not voided, by job."""
    voided: list[str] = field(default_factory=list[str])
    """Jobs whose debits were voided."""


def faults_of_entry(
    chain: Chain, line: EntryLine, keys: dict[str, Trusted], costs: dict[str, Charge | str]
) -> Iterator[str]:
    """Take the next entry of a chain, and tell what is wrong with it."""
    yield from faults_of_link(chain, line, keys)
    amounts = Charge(line.epsilon, line.delta, line.mu_squared, line.slack)
    if line.kind == "limit":
        chain.limits = {name: getattr(amounts, name) for name in AMOUNTS}
        chain.entered.append(chain.limits)
        yield from _sums_after(chain, line)
        return
    for name in AMOUNTS:
        chain.sums[name] = moved(chain.sums[name], getattr(amounts, name))
    counted = ("mu_squared", "slack") if chain.stated.composition == "gdp" else ("epsilon", "delta")
    if any(chain.sums[name] > chain.limits[name] for name in counted):
        yield f"entry {line.seq} goes beyond the limit"
    chain.queries += QUERIES[line.kind]
    yield from _sums_after(chain, line)
    job = line.job or ""
    if line.kind == "loss":
        if any(getattr(amounts, name) < 0 for name in AMOUNTS):
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


def faults_of_link(chain: Links, line: EntryLine | ActLine, keys: dict[str, Trusted]) -> Iterator[str]:
    """Take the next link of a chain, and tell whether it does not follow, was changed, or is not signed."""
    what = f"{line.type} {line.seq}"
    if line.seq != chain.seq + 1 or line.prev != chain.head:
        yield f"{what} does not follow its predecessor"
    if not _is_hashed(line):
        yield f"{what} was changed"
    if isinstance(line, ActLine) and line.known_since is not None:
        # Nobody signs what was before there was a record: what is signed after it holds it.
        if chain.signed or line.signature:
            yield f"{what} claims to be of before there was a record"
    else:
        yield from _signature(chain, line, keys)
    chain.seq, chain.head = line.seq, line.hash


def _is_hashed(line: EntryLine | ActLine) -> bool:
    try:
        if isinstance(line, ActLine):
            return act_hash(Act(**{name: getattr(line, name) for name in ACT_FIELDS})) == line.hash
        return entry_hash(_as_entry(line)) == line.hash
    except (ValueError, OverflowError):  # a number, or a moment, that no entry can have
        return False


def _signature(chain: Links, line: EntryLine | ActLine, keys: dict[str, Trusted]) -> Iterator[str]:
    # Whoever has a retired key may write any moment; but the chain had come further than that, where later
    # entries or heads that were kept say so.
    chain.signed = True
    chain.latest = max(chain.latest, line.at, *(at for seq, at in chain.published if seq < line.seq))
    content = (to_sign if isinstance(line, EntryLine) else act_to_sign)(line.hash)
    if (key := keys.get(line.signer)) is None:
        yield f"{line.type} {line.seq} is signed with a key that was not given, {line.signer}"
    elif not key.holds(chain.latest):
        yield f"{line.type} {line.seq} is signed with a key that was retired, {line.signer}"
    elif not key.signed(line.signature, content, line.at):
        yield f"{line.type} {line.seq} has no true signature"


def _sums_after(chain: Chain, line: EntryLine) -> Iterator[str]:
    told = [getattr(line, name) for name in SUMS_AFTER]
    if told != [None] * len(told) and told != [*chain.sums.values(), chain.queries]:
        yield f"entry {line.seq} does not bear the sums of its chain"


def _mechanism(line: EntryLine, amounts: Charge, costs: dict[str, Charge | str]) -> Iterator[str]:
    cost = costs.get(line.mechanism or "", "is not there")
    if isinstance(cost, str):
        yield f"the mechanism of entry {line.seq} {cost}"
    elif any(getattr(amounts, name) < getattr(cost, name) for name in AMOUNTS):
        yield f"entry {line.seq} charges less than its mechanism costs"


def faults_of_end(chain: Chain) -> Iterator[str]:
    """Tell what is wrong with the sums and the end that an account states, once its entries were read."""
    stated = chain.stated
    if (stated.seq, stated.head) != (chain.seq, chain.head):
        yield "the chain does not end where the account says"
    if stated.queries not in (None, chain.queries):
        yield "the number of queries is not that of the entries"
    for name in AMOUNTS:
        if stated.spent.get(name) != chain.sums[name]:
            yield f"spent {name} is not the sum of the entries"
        if stated.limit.get(name) != chain.limits[name]:
            yield f"the limit of {name} is not the one last entered"


def _as_entry(line: EntryLine) -> Entry:
    told = {name: getattr(line, name) for name in SHARED}
    return Entry(account_id=line.account, job_id=line.job, **told)
