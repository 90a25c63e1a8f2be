"""Who acts at present, and why: known to whoever records an act, without being handed down to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from privest_service.acts.models import LONGEST_REASON


@dataclass(frozen=True)
class Actor:
    """Somebody who acts.

    Attributes:
        role: `admin`, `owner` or `analyst`; `service` for what the service does by itself.
        id: of the principal; None for the service.
        key: the id of the key; None for the administrator's key and for tokens.
        person: as the platform's identity provider calls it (`sub`); None where no token told of one.
        through: the id of the service account that acts for this person, with a key of its own.
    """

    role: str
    id: str | None = None
    key: str | None = None
    person: str | None = None
    through: str | None = None


@dataclass(frozen=True)
class Acting:
    """An actor, and the reason that it gave."""

    actor: Actor
    reason: str | None = None


_present: ContextVar[Acting | None] = ContextVar("acting", default=None)
_SERVICE = Acting(Actor("service"))


def present() -> Acting:
    """Whoever acts at present: outside of requests the service itself."""
    return _present.get() or _SERVICE


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Have all that is recorded here told of this actor."""
    before = _present.set(Acting(actor))
    try:
        yield
    finally:
        _present.reset(before)


def readable(reason: str) -> str:
    """A reason without blanks around it.

    Raises:
        ValueError: it is too long, or has control characters or others that nobody sees.
    """
    text = reason.strip()
    if not text.isprintable() or len(text) > LONGEST_REASON:
        raise ValueError(f"must be of one line, at most {LONGEST_REASON} characters, none of them invisible")
    return text


def because(reason: str | None) -> None:
    """Note the reason of whoever acts at present, until that one has ended."""
    _present.set(replace(present(), reason=reason or None))
