"""Connections: registered, assigned to owners, withdrawn, and found for an owner's handle."""

from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.connections.models import Assignment, Connection
from privest_service.connections.schemas import NEW_CONNECTION, ConnectionView, NewConnection
from privest_service.problems import Invalid, NotFound, Unavailable
from privest_service.sealing import cipher
from privest_service.security.principals import Principal
from privest_service.security.service import require_owner


def _cipher(secret: bytes) -> Fernet:
    """Make the cipher for connections."""
    return cipher(secret, b"privest connections")


def register(session: Session, connection: NewConnection, secret: bytes) -> ConnectionView:
    """Keep a connection, encrypted whole. Raises Invalid: there is one of this name."""
    if session.get(Connection, connection.name) is not None:
        raise Invalid(
            "There is a connection of this name already. Choose another name, or delete that one first."
        )
    sealed = _cipher(secret).encrypt(connection.model_dump_json().encode()).decode()
    session.add(Connection(name=connection.name, kind=connection.kind, sealed=sealed))
    details = {"kind": connection.kind}
    acts.record(session, None, "connection.made", subject=connection.name, details=details)
    return ConnectionView(name=connection.name, kind=connection.kind, owners=[])


def visible(
    session: Session, principal: Principal, *, limit: int = 1000, after: str = ""
) -> tuple[list[ConnectionView], str | None]:
    """Connections by name, and the last name where more follow.

    An administrator sees all, with their owners, and an owner its own.

    At most `limit` of them follow the name `after`.
    """
    is_admin = principal.role == "admin"
    chosen = select(Connection.name, Connection.kind).where(Connection.name > after)
    if not is_admin:
        chosen = chosen.join(Assignment, Assignment.connection_name == Connection.name).where(
            Assignment.owner_id == principal.id
        )
    rows = session.execute(chosen.order_by(Connection.name).limit(limit + 1)).all()
    listed = rows[:limit]
    owners: dict[str, list[str]] = {row.name: [] for row in listed}
    if is_admin:
        for assignment in session.scalars(
            select(Assignment).where(Assignment.connection_name.in_(owners)).order_by(Assignment.created_at)
        ):
            owners[assignment.connection_name].append(assignment.owner_id)
    views = [
        ConnectionView(name=row.name, kind=row.kind, owners=owners[row.name] if is_admin else None)
        for row in listed
    ]
    return views, listed[-1].name if len(rows) > limit else None


def remove(session: Session, name: str) -> None:
    """Forget a connection and all its assignments; datasets that came through it stay.

    Raises:
        NotFound: there is none of this name.
    """
    connection = _require(session, name)
    gone = delete(Assignment).where(Assignment.connection_name == name).returning(Assignment.owner_id)
    for owner_id in session.scalars(gone):
        acts.record(session, owner_id, "connection.withdrawn", subject=name)
    session.delete(connection)
    acts.record(session, None, "connection.removed", subject=name)


def assign(session: Session, name: str, owner_id: str) -> None:
    """Let an owner register what is behind a connection.

    Raises:
        NotFound: there is no such connection, or no such owner.
    """
    _require(session, name)
    require_owner(session, owner_id)
    if session.get(Assignment, (name, owner_id)) is None:
        session.add(Assignment(connection_name=name, owner_id=owner_id))
        acts.record(session, owner_id, "connection.assigned", subject=name)


def withdraw(session: Session, name: str, owner_id: str) -> None:
    """Take a connection from an owner, from its next registration on.

    Raises:
        NotFound: it was not assigned.
    """
    assignment = session.get(Assignment, (name, owner_id))
    if assignment is None:
        raise NotFound
    session.delete(assignment)
    acts.record(session, owner_id, "connection.withdrawn", subject=name)


def resolve(session: Session, owner_id: str, uri: str, secret: bytes) -> tuple[NewConnection, str]:
    """Find the connection and the path that an owner's handle names.

    Raises:
        NotFound: no connection of this name was assigned to this owner, whether or not there is one.
        Unavailable: it was encrypted under another secret.
    """
    name, _, path = uri.partition(":")
    sealed = session.scalar(
        select(Connection.sealed)
        .join(Assignment, Assignment.connection_name == Connection.name)
        .where(Connection.name == name, Assignment.owner_id == owner_id)
    )
    if sealed is None:
        raise NotFound
    try:
        connection = NEW_CONNECTION.validate_json(_cipher(secret).decrypt(sealed.encode()))
    except InvalidToken:
        raise Unavailable(
            "This connection cannot be opened. Ask the administrator to register it again."
        ) from None
    if connection.name != name:  # somebody exchanged them in the database
        raise NotFound
    return connection, path


def _require(session: Session, name: str) -> Connection:
    if connection := session.get(Connection, name):
        return connection
    raise NotFound
