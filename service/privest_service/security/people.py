"""People whom the identity provider's tokens tell of: who they are here, and whether they have left."""

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Database, insert_if_new
from privest_service.database.tables import new_id
from privest_service.security.models import Analyst, Owner, Person
from privest_service.security.principals import Principal
from privest_service.security.tokens import Told

_ANALYST, _ADMIN = "analyst", "admin"


def principal_of(database: Database, told: Told, *, as_analyst: bool = False) -> Principal | None:
    """Return whom a token stands for; None where that is nobody here, or a person who has left.

    A person is noted at its first token. One whose group makes it an analyst is made one then, with no grant.

    Args:
        database: where people are.
        told: by the token.
        as_analyst: whether only an analyst will do: other roles that the person has are passed over.
    """
    with database.read() as session:
        person = session.get(Person, told.person)
        found = (
            None if person is not None and person.left_at else _found(session, told, as_analyst=as_analyst)
        )
    if found is None or (person is not None and found.id):
        return found
    return database.run(lambda session: _met(session, told, found))


def _found(session: Session, told: Told, *, as_analyst: bool) -> Principal | None:
    """Whoever it is, by the token's own word or else by groups; an analyst yet to be made has no id."""
    if told.principal_id is not None:
        if not as_analyst and session.get(Owner, told.principal_id):
            return Principal("owner", told.principal_id)
        return Principal("analyst", told.principal_id) if session.get(Analyst, told.principal_id) else None
    for held in told.held:
        if held == _ANALYST:
            return Principal("analyst", session.scalar(_own(told)) or "")
        if held == _ADMIN and not as_analyst:
            return Principal("admin", "admin")
        if not as_analyst and session.get(Owner, held):
            return Principal("owner", held)
    return None


def _own(told: Told) -> Select[str]:
    return select(Analyst.id).where(Analyst.subject == told.person)


def _met(session: Session, told: Told, found: Principal) -> Principal | None:
    """Note a person, and make its analyst if there is none; somebody else may have done so meanwhile."""
    insert_if_new(session, Person, subject=told.person)
    held = select(Person).where(Person.subject == told.person).with_for_update()
    if session.scalars(held).one().left_at is not None:
        return None
    if found.id:
        return found
    known = session.scalar(_own(told))
    if known is None:
        analyst = Analyst(id=new_id("anl"), name=told.name, subject=told.person)
        session.add(analyst)
        details = {"name": told.name, "person": told.person}
        acts.record(session, None, "analyst.created", subject=analyst.id, details=details)
        known = analyst.id
    return Principal("analyst", known)


def is_here(session: Session, subject: str | None) -> bool:
    """Whether a person, if there is one, has not left. It is held, so that it does not leave meanwhile."""
    if subject is None:
        return True
    held = select(Person.left_at).where(Person.subject == subject).with_for_update()
    return session.execute(held).scalar_one_or_none() is None
