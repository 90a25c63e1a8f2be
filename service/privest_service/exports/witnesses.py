"""Witnesses: signed heads that go to where an owner says, each held against those that went there before."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import ColumnElement, bindparam, or_, select
from sqlalchemy.orm import Session

from privest_service.acts.chain import act_hash
from privest_service.acts.chain import to_sign as act_to_sign
from privest_service.acts.models import Act
from privest_service.database import Database, now
from privest_service.exports.export import chains_of, heads
from privest_service.exports.lines import Heads
from privest_service.ledger.chain import entry_hash
from privest_service.ledger.chain import to_sign as entry_to_sign
from privest_service.ledger.models import Account, Entry
from privest_service.notices import service as notices
from privest_service.notices.models import Channel
from privest_service.problems import DatabaseUnavailable
from privest_service.signing import Signer, is_signature, signer_of

log = structlog.get_logger()

HEADS = "ledger.heads"
"""The kind of notice that brings signed heads."""

_EVERY = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}

_AT_ONCE = 500
"""Entries read in one go."""


_MAY_BE_DUE = select(Channel.id).where(
    or_(Channel.heads_due_at <= bindparam("now"), Channel.heads_due_at > bindparam("furthest"))
)


def send_due(database: Database) -> None:
    """Have signed heads sent on all channels whose time has come, in a transaction for each.

    A moment further away than a whole period was set by a clock that was ahead.
    """
    moment = now()
    with database.looking() as connection:
        values = {"now": moment, "furthest": moment + min(_EVERY.values())}
        waiting = connection.execute(_MAY_BE_DUE, values).scalars().all()
    for channel_id in waiting:
        with database.read(snapshot=True) as session:
            channel = session.get(Channel, channel_id)
            # Analysts have no chains.
            if channel is None or channel.owner_id is None or not _is_due(channel):
                continue
            last = channel.last_heads
            accounts = session.scalars(_accounts(channel.owner_id)).all()
            acts = session.scalars(chains_of(channel.owner_id)).all()
            told = heads(signer_of(session), accounts, acts)
            faults = None if last is None else _faults(session, channel.owner_id, last)
        database.run(partial(_put, channel_id=channel_id, told=told, faults=faults))


def _faults(session: Session, owner_id: str, last: str) -> list[str]:
    """What is wrong with an owner's chains; what cannot even be read is, too, and holds up nobody's heads."""
    try:
        return list(faults_since(session, owner_id, Heads.model_validate_json(last)))
    except DatabaseUnavailable:
        raise
    except Exception:
        log.exception("chains cannot be read", owner=owner_id)
        return ["what is there cannot be read"]


def _is_due(channel: Channel) -> bool:
    due, moment = channel.heads_due_at, now()
    return due is not None and not moment < due <= moment + _EVERY[str(channel.heads_every)]


def _accounts(owner_id: str) -> Any:
    return select(Account).where(Account.owner_id == owner_id).order_by(Account.id)


def _put(session: Session, channel_id: str, told: Heads, faults: list[str] | None) -> None:
    """Have heads wait on a channel, unless another replica did that meanwhile."""
    channel = session.get(Channel, channel_id, with_for_update=True, populate_existing=True)
    if channel is None or not _is_due(channel):
        return
    channel.heads_due_at = datetime.fromisoformat(told.at) + _EVERY[str(channel.heads_every)]
    text = told.model_dump_json()
    facts = {
        "heads": json.loads(text),
        "follows": None if faults is None else not faults,
        "faults": faults or [],
    }
    notices.put(session, channel, HEADS, facts)
    # Of a chain that was tampered with the earlier heads are kept: all later ones are held against them.
    if not faults:
        channel.last_heads = text


@dataclass(frozen=True)
class _Chain:
    """A chain as it stands, and how its links are read and checked."""

    name: str
    seq: int
    head: str
    link: type[Entry] | type[Act]
    own: ColumnElement[bool]
    hashed: Callable[[Any], str]
    to_sign: Callable[[str], bytes]


def _chains(session: Session, owner_id: str) -> Iterator[_Chain]:
    """The chains of an owner: of its accounts and of its acts."""
    for account in session.scalars(_accounts(owner_id)):
        name, own = f"account {account.id}", Entry.account_id == account.id
        yield _Chain(name, account.seq, account.head, Entry, own, entry_hash, entry_to_sign)
    for chain in session.scalars(chains_of(owner_id)):
        name, own = f"acts of {chain.id}", Act.chain == chain.id
        yield _Chain(name, chain.seq, chain.head, Act, own, act_hash, act_to_sign)


def faults_since(session: Session, owner_id: str, last: Heads) -> Iterator[str]:
    """What is wrong with an owner's chains from earlier heads on: each must go on from its own.

    Signatures are checked of what the present key signed. The verifier knows the other keys.
    """
    earlier = {f"account {head.account}": (head.seq, head.hash) for head in last.heads}
    earlier |= {f"acts of {head.chain}": (head.seq, head.hash) for head in last.acts or ()}
    chains = {chain.name: chain for chain in _chains(session, owner_id)}
    yield from (f"{name}: all of it is gone" for name in sorted(earlier.keys() - chains.keys()))
    signer = signer_of(session)
    for name, chain in chains.items():
        yield from _faults_of(session, chain, *earlier.get(name, (0, "")), signer)


def _faults_of(session: Session, chain: _Chain, seq: int, head: str, signer: Signer) -> Iterator[str]:
    """The first fault of a chain after a place in it; 0 is before all."""
    link = chain.link
    if seq and session.scalar(select(link.hash).where(chain.own, link.seq == seq)) != head:
        yield f"{chain.name} does not go through its head at {seq}"
        return
    later = select(link).where(chain.own, link.seq > seq).order_by(link.seq)
    for each in session.scalars(later.execution_options(yield_per=_AT_ONCE)):
        if (each.seq, each.prev) != (seq + 1, head) or chain.hashed(each) != each.hash:
            yield f"{chain.name}: its link {each.seq} was changed, or does not follow the one before"
            return
        own = each.signer == signer.id
        if own and not is_signature(each.signature, chain.to_sign(each.hash), signer.public_key):
            yield f"{chain.name}: its link {each.seq} has no true signature"
            return
        seq, head = each.seq, each.hash
    if (seq, head) != (chain.seq, chain.head):
        yield f"{chain.name} does not end where it says"
