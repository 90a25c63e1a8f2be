"""Leavers and those who return: keys and grants revoked, each with an act that is sealed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Database, insert_if_new, now
from privest_service.datasets.models import Grant
from privest_service.datasets.service import revoke_grant
from privest_service.security.models import Analyst, ApiKey, Person
from privest_service.security.service import revoke_key

_WHY = "The identity provider does not list this person any more."


@dataclass
class Outcome:
    """What following a list did, or would do.

    Attributes:
        known: people who are known here.
        left: those who have left since.
        returned: those who had left and are listed again.
        keys: that were revoked.
        grants: that were revoked.
    """

    known: int
    left: list[str]
    returned: list[str]
    keys: int = 0
    grants: int = 0
    _again: list[str] = field(default_factory=list[str])


def compare(database: Database, listed: Mapping[str, bool]) -> Outcome:
    """Compare the people who are known here with a list, which says of each whether it is active."""
    with database.read() as session:
        people: dict[str, bool] = {
            subject: left_at is not None
            for subject, left_at in session.execute(select(Person.subject, Person.left_at))
        }
        for subject in session.scalars(select(Analyst.subject).where(Analyst.subject.is_not(None))):
            people.setdefault(str(subject), False)  # whose token never came
    gone = sorted(subject for subject in people if not listed.get(subject, False))
    return Outcome(
        known=len(people),
        left=[subject for subject in gone if not people[subject]],
        returned=sorted(subject for subject, left in people.items() if left and listed.get(subject, False)),
        _again=[subject for subject in gone if people[subject]],
    )


def follow(database: Database, found: Outcome) -> None:
    """Do what a comparison found. What an earlier one did not come to the end of is done, too."""
    acts.because(_WHY)
    for subject in found.left:
        found.keys += database.run(lambda session, subject=subject: _leave(session, subject))
    # Each grant in a transaction of its own, as it holds accounts of its owner.
    for subject in (*found.left, *found._again):
        for dataset_id, analyst_id in _grants(database, subject):
            database.run(lambda session, of=(dataset_id, analyst_id): revoke_grant(session, *of))
            found.grants += 1
    acts.because(None)
    for subject in found.returned:
        database.run(lambda session, subject=subject: _return(session, subject))


def _leave(session: Session, subject: str) -> int:
    """Note that a person has left, and revoke its keys and those of its analyst. Return their number."""
    insert_if_new(session, Person, subject=subject)
    _held(session, subject).left_at = now()
    analyst = _analyst(session, subject)
    theirs = or_(ApiKey.person == subject, ApiKey.principal_id == (analyst or ""))
    keys = session.execute(
        select(ApiKey.id, ApiKey.principal_id).where(ApiKey.revoked_at.is_(None), theirs).order_by(ApiKey.id)
    ).all()
    for key, holder in keys:
        revoke_key(session, holder, key)
    details = {"person": subject, "keys": len(keys)}
    acts.record(session, None, "person.left", subject=analyst, details=details)
    return len(keys)


def _return(session: Session, subject: str) -> None:
    """Have a person's tokens be good again; keys and grants stay revoked, for others to give anew."""
    _held(session, subject).left_at = None
    details = {"person": subject}
    acts.record(session, None, "person.returned", subject=_analyst(session, subject), details=details)


def _held(session: Session, subject: str) -> Person:
    held = select(Person).where(Person.subject == subject).with_for_update()
    return session.scalars(held.execution_options(populate_existing=True)).one()


def _analyst(session: Session, subject: str) -> str | None:
    return session.scalar(select(Analyst.id).where(Analyst.subject == subject))


def _grants(database: Database, subject: str) -> list[tuple[str, str]]:
    """Grants of a person's analyst that are in force."""
    theirs = select(Grant.dataset_id, Grant.analyst_id).join(Analyst, Analyst.id == Grant.analyst_id)
    with database.read() as session:
        found = session.execute(theirs.where(Analyst.subject == subject, Grant.revoked_at.is_(None)))
        return sorted((dataset_id, analyst_id) for dataset_id, analyst_id in found)
