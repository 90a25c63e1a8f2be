"""Leavers and those who return, on both databases: what they lose, what is sealed, and what comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from privest_service.acts.models import Act
from privest_service.database import Database, now
from privest_service.datasets.models import Grant
from privest_service.leavers.service import Outcome, compare, follow
from privest_service.problems import Invalid, Unauthenticated
from privest_service.security.models import Analyst, ApiKey, Person
from privest_service.security.people import principal_of
from privest_service.security.principals import Credential, Principal
from privest_service.security.service import create_analyst, issue_key
from privest_service.security.tokens import Told
from testing.world import World


def told(person: str) -> Told:
    return Told(None, now(), frozenset({"read"}), person, name=person, held=("analyst",))


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    """Ada, who was granted a dataset, and a person who holds an owner."""
    found = World.make(database)
    with database.write() as session:
        session.get_one(Analyst, found.analyst).subject = "ada"
        for person in ("ada", "bob"):
            session.add(Person(subject=person))
        holder = Credential(Principal("owner", found.owner), person="bob")
        issue_key(session, "owner", found.owner, issuer=holder)
    return found


def synced(database: Database, **listed: bool) -> Outcome:
    found = compare(database, listed)
    follow(database, found)
    return found


def good_keys(database: Database, holder: str) -> int:
    with database.read() as session:
        theirs = select(ApiKey.id).where(ApiKey.principal_id == holder, ApiKey.revoked_at.is_(None))
        return len(session.scalars(theirs).all())


def test_whoever_is_listed_keeps_everything(world: World, database: Database) -> None:
    found = synced(database, ada=True, bob=True, dan=False)
    assert (found.known, found.left, found.returned, found.keys, found.grants) == (2, [], [], 0, 0)
    assert good_keys(database, world.analyst) == 1


def test_a_leaver_loses_keys_and_grants_and_all_is_told(world: World, database: Database) -> None:
    owners = good_keys(database, world.owner)
    found = synced(database, ada=False, bob=True)
    assert (found.left, found.keys, found.grants) == (["ada"], 1, 1)
    assert good_keys(database, world.analyst) == 0
    assert good_keys(database, world.owner) == owners
    with database.read() as session:
        assert session.get_one(Grant, (world.dataset, world.analyst)).revoked_at
        acts = {act.kind: act for act in session.scalars(select(Act).where(Act.role == "service"))}
    assert acts["person.left"].subject == world.analyst
    assert acts["grant.revoked"].chain == world.owner
    assert "identity provider" in (acts["grant.revoked"].reason or "")
    assert principal_of(database, told("ada")) is None
    again = synced(database, bob=True)
    assert (again.left, again.keys, again.grants) == ([], 0, 0)


def test_a_person_who_held_an_owner_loses_its_own_keys_alone(world: World, database: Database) -> None:
    before = good_keys(database, world.owner)
    assert synced(database, ada=True).keys == 1
    assert good_keys(database, world.owner) == before - 1
    with database.write() as session, pytest.raises(Unauthenticated):
        issue_key(
            session, "owner", world.owner, issuer=Credential(Principal("owner", world.owner), person="bob")
        )


def test_whoever_returns_comes_in_again_and_has_no_grant(world: World, database: Database) -> None:
    synced(database, bob=True)
    with database.write() as session, pytest.raises(Invalid):
        issue_key(session, "analyst", world.analyst)
    assert synced(database, ada=True, bob=True).returned == ["ada"]
    assert principal_of(database, told("ada")) == Principal("analyst", world.analyst)
    with database.read() as session:
        assert session.get_one(Grant, (world.dataset, world.analyst)).revoked_at


def test_what_was_broken_off_is_brought_to_its_end(world: World, database: Database) -> None:
    with database.write() as session:
        session.get_one(Person, "ada").left_at = now()
    found = synced(database, bob=True)
    assert (found.left, found.grants) == ([], 1)


def test_a_person_is_one_analyst_however_many_tokens_come_first(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: principal_of(database, told("eve")), range(8)))
    assert len(found) == 1
    with database.write() as session:
        with pytest.raises(Invalid):
            create_analyst(session, "Eve again", "eve")
        made, _ = create_analyst(session, "Fay", "fay")
    assert principal_of(database, told("fay")) == Principal("analyst", made.id)
