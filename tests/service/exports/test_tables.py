"""What tables say now is held against what acts said: names, grants, reasons of decisions, and caps."""

import json
from collections.abc import Callable

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.acts.chain import act_hash, to_sign
from privest_service.acts.models import Act
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import Terms
from privest_service.estimates import requests
from privest_service.exports.export import ended, lines
from privest_service.exports.lines import (
    ACT_FIELDS,
    LINE,
    ActLine,
    EntryLine,
    GrantLine,
    Heads,
    JobLine,
    Line,
    NameLine,
)
from privest_service.exports.lines import to_sign as heads_to_sign
from privest_service.exports.verify import Report, verify
from privest_service.jobs.models import Decision
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Limits
from privest_service.security.models import Analyst, Owner
from privest_service.security.principals import Principal
from testing.server import SIGNER
from testing.world import World

KEY = SIGNER.public_key
CAPS = [Limits.of(epsilon, 1e-6, "gdp") for epsilon in (0.3, 0.5)]

of_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests that plant what the database refuses: whoever has the file can take its triggers away."""


def regrant(database: Database, world: World, cap: Limits, terms: Terms) -> None:
    with database.write() as session:
        datasets.put_grant(session, session.get_one(Dataset, world.dataset), world.analyst, cap, terms)


@pytest.fixture
def world(database: Database) -> World:
    """An owner with a purpose, caps that were changed, and a decision with a reason; in two windows."""
    world = World.make(database, approval=True)
    regrant(database, world, CAPS[0], Terms(approval=True, purpose="trial of a drug"))
    assert world.decide(database, world.submit(database, "one"), "deny") == "denied"
    with database.write() as session:
        ledger.open_window(session, world.owner)
        datasets.put_cap(session, session.get_one(Dataset, world.dataset), CAPS[1])
    regrant(database, world, CAPS[1], Terms(approval=True, purpose="trial of a drug"))
    return world


def found(database: Database, world: World) -> Report:
    with database.read(snapshot=True) as session:
        return verify(lines(session, world.owner), [KEY])


def test_a_changed_cap_is_told_from_what_to_what(database: Database, world: World) -> None:
    with database.read(snapshot=True) as session:
        acts = [line for line in lines(session, world.owner) if isinstance(line, ActLine)]
    told = [(act.kind, json.loads(act.details)) for act in acts if act.kind.startswith(("grant", "cap"))]
    who = {"analyst": world.analyst, "analyst_name": "x"}
    cap = {"epsilon": 0.5, "delta": 1e-6}
    none, former = (
        {f"{name}_before": each for name, each in limits.told().items()}
        for limits in (
            Limits.none("gdp"),
            CAPS[0],
        )
    )
    assert told[1:] == [
        ("cap.set", who | CAPS[0].told() | none),
        ("grant.changed", who | {"approval": "required", "purpose": "trial of a drug"}),
        ("cap.set", cap | none),
        ("cap.set", who | cap | former),
    ]
    whole = found(database, world)
    assert (whole.faults, whole.unsealed) == ([], [])


def renamed(session: Session, world: World) -> None:
    session.execute(update(Analyst).where(Analyst.id == world.analyst).values(name="somebody else"))


def renamed_owner(session: Session, world: World) -> None:
    session.execute(update(Owner).where(Owner.id == world.owner).values(name="another clinic"))


def other_purpose(session: Session, world: World) -> None:
    session.execute(update(Grant).where(Grant.dataset_id == world.dataset).values(purpose="marketing"))


def no_approval(session: Session, world: World) -> None:
    session.execute(update(Grant).where(Grant.dataset_id == world.dataset).values(approval=False))


def revoked(session: Session, world: World) -> None:
    session.execute(
        update(Grant).values(revoked_at=Grant.created_at).where(Grant.dataset_id == world.dataset)
    )


def gone(session: Session, world: World) -> None:
    session.execute(delete(Grant).where(Grant.dataset_id == world.dataset))


def other_reason(session: Session, _: World) -> None:
    session.execute(update(Decision).values(reason="the board said so"))


def no_reason(session: Session, _: World) -> None:
    session.execute(update(Decision).values(reason=None))


def silent_cap(session: Session, world: World) -> None:
    """The limit is entered and signed, as the service would, but no act tells of it."""
    subject = datasets.grant_subject(world.dataset, world.analyst)
    account = ledger.ensure_account(session, world.owner, "analyst", subject)
    ledger.set_cap(session, account.id, CAPS[0])


FAULTS: dict[Callable[[Session, World], None], str] = {
    renamed: "is called “somebody else”, and acts say “x”",
    renamed_owner: "is called “another clinic”, and acts say “x”",
    other_purpose: "is “marketing”, and the owner's acts say “trial of a drug”",
    no_approval: "is empty, and the owner's acts say “required”",
    revoked: "is revoked, and was not revoked by any act of the owner",
    gone: "of which acts tell, is not there",
    other_reason: "is “the board said so”, and its act says “so it is”",
    no_reason: "is empty, and its act says “so it is”",
    silent_cap: "do not tell of the limits that were entered for the cap of anl_",
}


@pytest.mark.few(3)
@of_one_database
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_change_of_a_table_is_found(
    database: Database, world: World, plant: Callable[[Session, World], None]
) -> None:
    with database.write() as session:
        for trigger in session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(text(f"DROP TRIGGER {trigger}"))
        plant(session, world)
    (fault,) = found(database, world).faults
    assert FAULTS[plant] in fault


@of_one_database
def test_a_grant_that_was_revoked_is_not_in_force_again_without_an_act(
    database: Database, world: World
) -> None:
    world.revoke(database)
    assert found(database, world).faults == []
    with database.write() as session:
        session.execute(update(Grant).where(Grant.dataset_id == world.dataset).values(revoked_at=None))
    (fault,) = found(database, world).faults
    assert "is in force, and was revoked by an act of the owner" in fault


def as_before(told: list[Line]) -> list[Line]:
    """Lines of a version that named no analyst, told caps with whole grants, and of a reason its text."""
    terms = {"approval": "required", "purpose": "trial of a drug"}
    head = ""
    for line in told:
        if isinstance(line, ActLine):
            details = {
                name: value
                for name, value in json.loads(line.details).items()
                if name not in ("analyst_name", "reasoned", "epsilon_before", "delta_before")
            }
            if line.kind in ("grant.changed", "cap.set") and "analyst" in details:
                line.kind, details = "grant.made", CAPS[0].told() | details | terms
            line.details, line.prev = json.dumps(details), head
            line.hash = head = act_hash(Act(**{name: getattr(line, name) for name in ACT_FIELDS}))
            line.signature = SIGNER.sign(to_sign(line.hash))
        elif isinstance(line, Heads):
            assert line.acts
            line.acts[0].hash = head
            line.signature = SIGNER.sign(heads_to_sign(line))
    return told


@of_one_database
def test_ledgers_of_before_verify_and_tell_what_no_seal_covers(database: Database, world: World) -> None:
    with database.read(snapshot=True) as session:
        told = as_before(list(lines(session, world.owner))[:-1])
    now = verify(ended(told, SIGNER), [KEY])
    assert (now.faults, now.unsealed) == ([], [f"the name of {world.analyst}"])
    # Nor did their exports tell what tables say.
    texts = [
        line.model_dump_json(exclude={"reason"} if isinstance(line, JobLine) else None)
        for line in told
        if not isinstance(line, NameLine | GrantLine)
    ]
    then = verify(ended(map(LINE.validate_json, texts), SIGNER), [KEY])
    assert (then.faults, then.unsealed) == ([], [])


@of_one_database
def test_a_reason_for_the_record_alone_is_no_reason_of_the_decision(database: Database) -> None:
    world = World.make(database, approval=True)
    job, owner = world.submit(database, "one"), Principal("owner", world.owner)

    def approve(session: Session) -> None:
        acts.because("quarterly review")
        requests.decide(session, owner, job, "approve", None)

    with acts.acting(acts.Actor("owner", world.owner)):
        database.run(approve)
    assert found(database, world).faults == []
    with database.read(snapshot=True) as session:
        told = list(lines(session, world.owner))[:-1]
    next(line for line in told if isinstance(line, JobLine)).reason = "quarterly review"
    (fault,) = verify(ended(told, SIGNER), [KEY]).faults
    assert "is “quarterly review”, and its act says empty" in fault


@of_one_database
def test_nonsense_in_a_ledger_is_no_crash(database: Database, world: World) -> None:
    with database.read(snapshot=True) as session:
        told = list(lines(session, world.owner))[:-1]
    for line in told:
        if isinstance(line, GrantLine):
            line.terms = {"expires": "never", "purpose": ["x"]}
        elif isinstance(line, EntryLine):
            line.epsilon = line.delta = 10**400
        elif isinstance(line, ActLine):
            line.details = '{"analyst": {}, "epsilon": [], "expires": 1}' if line.seq % 2 else "[]"
    assert verify(ended(told, SIGNER), [KEY]).faults
