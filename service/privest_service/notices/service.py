"""Channels and what waits on them. All but one function work inside the caller's transaction."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from pydantic import JsonValue
from sqlalchemy import bindparam, delete, func, or_, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.notices.models import Channel, Delivery
from privest_service.notices.schemas import (
    NEW_CHANNEL,
    ChannelView,
    CreatedChannel,
    NewChannel,
    Notice,
    To,
)
from privest_service.problems import Invalid, NotFound
from privest_service.sealing import cipher, derived
from privest_service.security.keys import Role

_MOST_CHANNELS = 10
"""Channels that an owner or an analyst may have: each can be waited for, and delays the others."""

_MOST_WAITING = 1000
"""Notices that may wait on a channel. What comes then is given up."""

_KEPT = timedelta(days=3)
"""Age at which a notice is given up: a receiver may be down over a weekend."""

LEASE = timedelta(minutes=2)
"""Longest time for one attempt. After it another replica may try, as the first may have been killed."""

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=15), timedelta(hours=1)
"""Pause after a first failure, which doubles with every further one, and the longest."""

_PURPOSE = b"privest channels"


def add(
    session: Session, holder_id: str, channel: NewChannel, secret: bytes, role: Role = "owner"
) -> CreatedChannel:
    """Register a channel of an owner, or of an analyst. Raises Invalid: it has as many as it may have."""
    if len(_of(session, holder_id)) >= _MOST_CHANNELS:
        raise Invalid(f"There are {_MOST_CHANNELS} channels already. Delete one first.")
    kept = Channel(
        id=new_id("chn"),
        owner_id=holder_id if role == "owner" else None,
        analyst_id=holder_id if role == "analyst" else None,
        kind=channel.kind,
        sealed=cipher(secret, _PURPOSE).encrypt(channel.model_dump_json().encode()).decode(),
        events=" ".join(channel.events),
        heads_every=channel.heads,
        heads_due_at=now() if channel.heads else None,
    )
    session.add(kept)
    session.flush()
    _record(session, kept, "channel.made", events=[*channel.events], heads=channel.heads)
    shown = webhook_secret(secret, kept.id) if channel.kind == "webhook" else None
    return CreatedChannel(**_view(kept, 0).model_dump(), secret=shown)


def _record(session: Session, channel: Channel, kind: str, **told: JsonValue) -> None:
    """Record what was done to a channel, of an analyst's in the service's chain."""
    whose: dict[str, JsonValue] = {"analyst": channel.analyst_id} if channel.analyst_id else {}
    acts.record(session, channel.owner_id, kind, subject=channel.id, details=whose | told)


def webhook_secret(secret: bytes, channel_id: str) -> str:
    """The secret of a webhook, as the Standard Webhooks write it. It is derived, and kept nowhere."""
    return "whsec_" + b64encode(derived(secret, b"privest webhook " + channel_id.encode())).decode()


def channels(session: Session, holder_id: str) -> list[ChannelView]:
    """The channels of an owner or an analyst, oldest first."""
    theirs = _of(session, holder_id)
    counted = select(Delivery.channel_id, func.count()).where(
        Delivery.channel_id.in_([each.id for each in theirs])
    )
    waiting = {row[0]: row[1] for row in session.execute(counted.group_by(Delivery.channel_id))}
    return [_view(each, waiting.get(each.id, 0)) for each in theirs]


def remove(session: Session, holder_id: str, channel_id: str) -> None:
    """Delete a channel with all that waits on it. Raises NotFound: its holder has none of this id."""
    channel = _held_of(session, holder_id, channel_id)
    session.execute(delete(Delivery).where(Delivery.channel_id == channel_id))
    session.delete(channel)
    _record(session, channel, "channel.removed")


def test(session: Session, holder_id: str, channel_id: str) -> None:
    """Have a notice sent that tells nothing. Raises NotFound: its holder has no such channel."""
    channel = _held_of(session, holder_id, channel_id)
    channel.attempt_at = channel.attempt_at and min(channel.attempt_at, now())
    put(session, channel, "test", {})


def notify(session: Session, holder_id: str, event: str, facts: Mapping[str, JsonValue]) -> None:
    """Tell an owner or an analyst of something, in the transaction of what is told, as its channels take it.

    Facts are public ones and the holder's own: nothing that a row could change.
    """
    for channel in _of(session, holder_id):
        if event in channel.events.split():
            put(session, channel, event, facts)


def put(session: Session, channel: Channel, event: str, facts: Mapping[str, JsonValue]) -> None:
    """Have a notice wait on a channel, if there is room."""
    waiting = select(func.count()).where(Delivery.channel_id == channel.id)
    if session.scalar(waiting) >= _MOST_WAITING:  # pyright: ignore[reportOptionalOperand] - a count
        channel.given_up += 1
        return
    told = Notice(
        id=new_id("ntc"),
        type=event,
        owner=channel.owner_id,
        analyst=channel.analyst_id,
        at=now(),
        facts=dict(facts),
    )
    body = told.model_dump_json()
    session.add(Delivery(id=told.id, channel_id=channel.id, event=event, body=body, created_at=told.at))
    session.flush()


@dataclass(frozen=True)
class Attempt:
    """A delivery that is tried now.

    Attributes:
        id: of the notice.
        channel_id: of its channel.
        sealed: where the channel leads, encrypted.
        body: what is delivered, in JSON.
    """

    id: str
    channel_id: str
    sealed: str
    body: str


_MAY_BE_TRIED = or_(
    Channel.attempt_at.is_(None),
    Channel.attempt_at <= bindparam("now"),
    # A moment further away than any pause was set by a clock that was ahead.
    Channel.attempt_at > bindparam("furthest"),
)
_DUE = select(Channel).where(_MAY_BE_TRIED, Channel.id.in_(select(Delivery.channel_id)))
"""Selects the channels for which something waits, and that may be tried now."""

_ANY_DUE = _DUE.with_only_columns(Channel.id)
_NEXT = (
    _DUE.order_by(Channel.attempt_at.is_not(None), Channel.attempt_at, Channel.id)
    .limit(1)
    .with_for_update(skip_locked=True)
)


def _moments() -> dict[str, datetime]:
    moment = now()
    return {"now": moment, "furthest": moment + _LONGEST_PAUSE}


def any_due(database: Database) -> bool:
    """Whether there is a notice to be delivered now."""
    return database.first(_ANY_DUE, **_moments()) is not None


def claim(session: Session) -> Attempt | None:
    """Lease the channel that was tried longest ago, and return its oldest notice: one at a time, in order.

    So however much waits on a channel, and however slow its other end is, all others have their turn.
    """
    channel = session.scalar(_NEXT, _moments())
    if channel is None:
        return None
    channel.attempt_at = now() + LEASE
    theirs = select(Delivery).where(Delivery.channel_id == channel.id)
    found = session.scalars(theirs.order_by(Delivery.created_at, Delivery.id).limit(1)).one()
    return Attempt(found.id, channel.id, channel.sealed, found.body)


def opened(attempt: Attempt, secret: bytes) -> To | None:
    """Where a delivery goes; None if that was encrypted under another secret."""
    try:
        return NEW_CHANNEL.validate_json(cipher(secret, _PURPOSE).decrypt(attempt.sealed.encode()))
    except InvalidToken:
        return None


def succeeded(session: Session, attempt: Attempt) -> None:
    """Note that a notice arrived."""
    session.execute(delete(Delivery).where(Delivery.id == attempt.id))
    if channel := _held(session, attempt.channel_id):
        channel.failures, channel.last_error = 0, None
        channel.delivered_at = channel.attempt_at = now()


def failed(session: Session, attempt: Attempt, why: str) -> None:
    """Note why a notice did not arrive, when it is tried again, and what is given up for its age."""
    channel = _held(session, attempt.channel_id)
    if channel is None:
        return
    pause = min(_FIRST_PAUSE * 2 ** min(channel.failures, 20), _LONGEST_PAUSE)
    channel.failures += 1
    channel.last_error, channel.attempt_at = why, now() + pause
    too_old = (Delivery.channel_id == channel.id, Delivery.created_at < now() - _KEPT)
    channel.given_up += len(session.scalars(delete(Delivery).where(*too_old).returning(Delivery.id)).all())


def _of(session: Session, holder_id: str) -> list[Channel]:
    theirs = select(Channel).where(or_(Channel.owner_id == holder_id, Channel.analyst_id == holder_id))
    return list(session.scalars(theirs.order_by(Channel.created_at, Channel.id)))


def _held(session: Session, channel_id: str) -> Channel | None:
    return session.get(Channel, channel_id, with_for_update=True, populate_existing=True)


def _held_of(session: Session, holder_id: str, channel_id: str) -> Channel:
    channel = _held(session, channel_id)
    if channel is None or holder_id not in (channel.owner_id, channel.analyst_id):
        raise NotFound
    return channel


def _view(channel: Channel, waiting: int) -> ChannelView:
    return ChannelView(
        id=channel.id,
        kind=channel.kind,
        events=channel.events.split(),
        heads=channel.heads_every,  # pyright: ignore[reportArgumentType]
        created_at=channel.created_at,
        delivered_at=channel.delivered_at,
        waiting=waiting,
        given_up=channel.given_up,
        failures=channel.failures,
        last_error=channel.last_error,
        next_attempt=channel.attempt_at if waiting else None,
    )
