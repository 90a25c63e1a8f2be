"""Acts: recorded in the transaction of what they tell of."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from pydantic import JsonValue
from sqlalchemy import and_, bindparam, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from privest_service.acts.actor import Actor, present
from privest_service.acts.chain import act_hash, to_sign
from privest_service.acts.models import SERVICE, Act, ActChain, Refusals
from privest_service.database import Database, before_commit, now
from privest_service.signing import signer_of

T = TypeVar("T", ActChain, Refusals)

_PENDING = "acts"

_INSERT = {"sqlite": sqlite_insert, "postgresql": postgresql_insert}

_EACH_MINUTE = 5
"""Acts of one kind that `record_few` tells in full within a minute, of each principal in each chain."""

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class _Draft:
    chain: str
    kind: str
    actor: Actor
    subject: str | None
    reason: str | None
    details: str


def record(
    session: Session,
    owner_id: str | None,
    kind: str,
    *,
    subject: str | None = None,
    details: Mapping[str, JsonValue] | None = None,
    actor: Actor | None = None,
) -> None:
    """Record an act in the chain of an owner, or of the service, together with what this transaction does.

    It is written as the last thing before the commit: a chain's end is held after all other rows, chains of
    several owners in the order of their ids, so that no two transactions wait for each other.

    Args:
        session: of the transaction.
        owner_id: whose chain it is; None for the service's.
        kind: one of `kinds.KINDS`.
        subject: the id of what it was done to.
        details: what else there is to tell: public facts, and nothing that a row could change.
        actor: who acts; by default whoever sent the request, with the reason that came with it.
    """
    acting = present()
    told = json.dumps(dict(details or {}), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    draft = _Draft(owner_id or SERVICE, kind, actor or acting.actor, subject, acting.reason, told)
    pending = session.info.setdefault(_PENDING, list[_Draft]())
    if not pending:
        before_commit(session, _append)
    pending.append(draft)


def _append(session: Session) -> None:
    """Write what was recorded in a transaction, at its end."""
    signer, held = signer_of(session), dict[str, ActChain]()
    for draft in sorted(session.info.pop(_PENDING), key=lambda draft: draft.chain):
        chain = held.get(draft.chain) or held.setdefault(
            draft.chain, _held(session, ActChain, {"id": draft.chain}, seq=0, head="")
        )
        chain.seq += 1
        act = Act(
            chain=chain.id,
            seq=chain.seq,
            kind=draft.kind,
            role=draft.actor.role,
            principal=draft.actor.id,
            key=draft.actor.key,
            person=draft.actor.person,
            through=draft.actor.through,
            subject=draft.subject,
            reason=draft.reason,
            details=draft.details,
            at=now(),
            prev=chain.head,
            signer=signer.id,
        )
        act.hash = chain.head = act_hash(act)
        act.signature = signer.sign(to_sign(act.hash))
        session.add(act)
    session.flush()


def _held(session: Session, table: type[T], place: Mapping[str, str], **new: object) -> T:
    """The row of a table at this place, held; a new one where there is none yet."""
    # Held by the insertion, so that nobody deletes it before it is read.
    insert = _INSERT[session.get_bind().dialect.name](table).values(**place, **new)
    name = next(iter(place))
    session.execute(insert.on_conflict_do_update(index_elements=[*place], set_={name: place[name]}))
    return session.get_one(table, tuple(place.values()), populate_existing=True)


def record_few(
    session: Session,
    owner_id: str | None,
    kind: str,
    *,
    subject: str | None = None,
    details: Mapping[str, JsonValue] | None = None,
    actor: Actor | None = None,
) -> None:
    """Record what an actor can cause as often as it likes: a few in a minute, and of the rest the number.

    For what moves no budget. It holds a row of its own until the end of the transaction.
    """
    chain, at, actor = owner_id or SERVICE, now(), actor or present().actor
    place = {"chain": chain, "principal": actor.id or actor.role, "kind": kind}
    count = _held(session, Refusals, place, role=actor.role, since=at, told=0, left_out=0)
    if not count.since <= at < count.since + _MINUTE:  # clocks may be put back
        _tell_the_rest(session, count)
        count.since, count.told = at, 0
    if count.told >= _EACH_MINUTE:
        count.left_out += 1
        return
    count.told += 1
    record(session, owner_id, kind, subject=subject, details=details, actor=actor)


_OVER = select(Refusals.chain).where(Refusals.since < bindparam("before"))


def tell_what_was_left_out(database: Database) -> None:
    """Record the number of refusals that were left out, once their minute is over."""

    def tell(session: Session) -> None:
        over = select(Refusals).where(Refusals.since < now() - _MINUTE)
        for count in session.scalars(over.order_by(*Refusals.__table__.primary_key).with_for_update()):
            _tell_the_rest(session, count)
            session.delete(count)

    if database.first(_OVER, before=now() - _MINUTE) is not None:
        database.run(tell)


def seal_history(database: Database) -> None:
    """Sign for what was known when the record began: an act after it, in each chain that has no other."""
    ends = and_(Act.chain == ActChain.id, Act.seq == ActChain.seq)
    unsigned = select(ActChain.id).join(Act, ends).where(Act.known_since.is_not(None)).order_by(ActChain.id)

    def seal(session: Session) -> None:
        for chain in session.scalars(unsigned.with_for_update(of=ActChain)):
            record(session, None if chain == SERVICE else chain, "history.sealed")

    with database.read() as session:
        waiting = session.scalar(unsigned.limit(1))
    if waiting is not None:
        database.run(seal)


def _tell_the_rest(session: Session, count: Refusals) -> None:
    if count.left_out:
        actor = Actor(count.role, None if count.principal == count.role else count.principal)
        owner_id = None if count.chain == SERVICE else count.chain
        record(session, owner_id, count.kind, details={"further": count.left_out}, actor=actor)
        count.left_out = 0
