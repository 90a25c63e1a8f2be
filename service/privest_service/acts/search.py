"""Acts that somebody looks for, newest first, in pages that cost the same however many acts there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from privest_service.acts.models import SERVICE, Act, ActChain

_LOOKED_AT = 5_000
"""Most acts that are looked at for one page: whoever looks for something rare is told how far back it was."""


@dataclass(frozen=True)
class Wanted:
    """What acts are looked for; empty and None: any.

    Attributes:
        owner_id: whose acts; None for the service's.
        kind: what was done.
        who: the id of a principal that acted, or `service`.
        subject: the id of what it was done to.
        text: in ids, details or reasons, whatever its case.
        named: ids of those whose names have the text in them.
        since, until: the moment, as the clock of the service told it.
    """

    owner_id: str | None
    kind: str = ""
    who: str = ""
    subject: str = ""
    text: str = ""
    named: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """What an act must fulfil."""
        found = list[ColumnElement[bool]]()
        for column, value in ((Act.kind, self.kind), (Act.subject, self.subject)):
            if value:
                found.append(column == value)
        if self.who:
            found.append(or_(Act.principal == self.who, Act.role == self.who))
        if self.text:
            parts = (Act.principal, Act.key, Act.subject, Act.reason, Act.details, Act.kind)
            told = [func.lower(part).contains(self.text.lower(), autoescape=True) for part in parts]
            told += [Act.principal.in_(self.named), Act.subject.in_(self.named)]
            told += [Act.details.contains(f'"{id_}"', autoescape=True) for id_ in self.named]
            found.append(or_(*told))
        if self.since:
            found.append(Act.at >= self.since)
        if self.until:
            found.append(Act.at < self.until)
        return found


@dataclass(frozen=True)
class Found:
    """A page of acts, newest first, and the place before which the next page begins, if there is one."""

    acts: list[Act]
    further: int | None


def find(session: Session, wanted: Wanted, *, limit: int, before: int | None = None) -> Found:
    """Find acts before a place in the chain. A page may be short, or empty, although more follow."""
    chain = wanted.owner_id or SERVICE
    end = 1 + (session.scalar(select(ActChain.seq).where(ActChain.id == chain)) or 0)
    before = end if before is None else min(before, end)
    lowest = max(1, before - _LOOKED_AT)
    looked_at = (Act.chain == chain, Act.seq < before, Act.seq >= lowest)
    acts = select(Act).where(*looked_at, *wanted.conditions()).order_by(Act.seq.desc()).limit(limit)
    found = list(session.scalars(acts))
    last = found[-1].seq if len(found) == limit else lowest
    return Found(found, last if last > 1 else None)


def find_own(session: Session, wanted: Wanted, *, limit: int, before: int | None = None) -> Found:
    """Find acts in the chain of the service for whom one subject is all that concerns it.

    Places are counted among these acts alone: those in the chain would tell how much others did.
    """
    own = (Act.chain == SERVICE, *wanted.conditions())
    number = session.scalar(select(func.count()).where(*own)) or 0
    end = number if before is None else min(before - 1, number)
    first = max(0, end - limit)
    acts = select(Act).where(*own).order_by(Act.seq).offset(first).limit(end - first)
    return Found([*session.scalars(acts)][::-1], first + 1 if first else None)
