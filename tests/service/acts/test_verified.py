"""Planted faults in a record of acts, each found by the verifier; a whole record has none."""

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import delete, select, text, update

from privest_service import acts
from privest_service.acts.chain import act_hash, to_sign
from privest_service.acts.models import Act, ActChain
from privest_service.database import Database
from privest_service.exports.export import chains_of, ended, heads, lines
from privest_service.exports.lines import ACT_FIELDS, ActLine, Heads, Line
from privest_service.exports.lines import to_sign as heads_to_sign
from privest_service.exports.verify import verify
from privest_service.jobs.models import Decision, Job
from privest_service.ledger import renewals
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.renewals import Renewal
from privest_service.ledger.units import Limits
from testing.server import SIGNER
from testing.world import World

KEY = SIGNER.public_key


def sealed(line: ActLine, *, signed: bool = True) -> ActLine:
    """The line with its own hash and, by the service's key, its signature."""
    line.hash = act_hash(Act(**{name: getattr(line, name) for name in ACT_FIELDS}))
    line.signer, line.signature = (SIGNER.id, SIGNER.sign(to_sign(line.hash))) if signed else ("", "")
    return line


def cut(told: list[Line]) -> list[Line]:
    """The last act is gone."""
    last = max(at for at, line in enumerate(told) if isinstance(line, ActLine))
    return told[:last] + told[last + 1 :]


def dropped(told: list[Line]) -> list[Line]:
    """One in the middle is gone."""
    return [line for line in told if not (isinstance(line, ActLine) and line.seq == 3)]


def swapped(told: list[Line]) -> list[Line]:
    """Two have changed places."""
    one, two = [at for at, line in enumerate(told) if isinstance(line, ActLine)][1:3]
    told[one], told[two] = told[two], told[one]
    return told


def other_reason(told: list[Line]) -> list[Line]:
    """One tells of another reason."""
    next(line for line in told if isinstance(line, ActLine) and line.seq == 2).reason = "because"
    return told


def forged(told: list[Line]) -> list[Line]:
    """The last one was done by somebody else: hashed anew, and signed with no key of the service's."""
    last = [line for line in told if isinstance(line, ActLine)][-1]
    last.principal = "own_else"
    signature = last.signature
    sealed(last).signature = signature
    end = next(line for line in told if isinstance(line, Heads))
    assert end.acts
    end.acts[0].hash = last.hash
    return told


def of_before(told: list[Line]) -> list[Line]:
    """The last one claims to be of before there was a record, when nobody signed."""
    last = [line for line in told if isinstance(line, ActLine)][-1]
    last.known_since = "migrated"
    sealed(last, signed=False)
    end = next(line for line in told if isinstance(line, Heads))
    assert end.acts
    end.acts[0].hash = last.hash
    return told


def gone(told: list[Line]) -> list[Line]:
    """All acts are gone, and the service itself signs where they end: nowhere."""
    rest = [line for line in told if not isinstance(line, ActLine)]
    accounts = [Account(id=h.account, seq=h.seq, head=h.hash) for h in _heads(rest).heads]
    return [heads(SIGNER, accounts) if isinstance(line, Heads) else line for line in rest]


def _heads(told: Sequence[Line]) -> Heads:
    return next(line for line in told if isinstance(line, Heads))


FAULTS: dict[Callable[[list[Line]], list[Line]], str] = {
    cut: "not the ends of all chains of acts",
    dropped: "does not follow its predecessor",
    swapped: "does not follow its predecessor",
    other_reason: "act 2 was changed",
    forged: "has no true signature",
    of_before: "claims to be of before there was a record",
    gone: "there are no acts of own_",
}


@pytest.fixture
def told(database: Database) -> list[Line]:
    """All lines of an owner's ledger but the end."""
    world = World.make(database)
    with database.write() as session:
        ledger.set_frozen(session, world.owner, True, by="owner")
    with database.read(snapshot=True) as session:
        return list(lines(session, world.owner))[:-1]


@pytest.mark.parametrize("backend", ["sqlite"])  # a file of lines
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_each_fault_is_found(told: list[Line], plant: Callable[[list[Line]], list[Line]]) -> None:
    whole = verify(ended(told, SIGNER), [KEY])
    assert (whole.faults, whole.acts) == ([], sum(isinstance(line, ActLine) for line in told))
    found = verify(ended(plant(told), SIGNER), [KEY]).faults
    assert any(FAULTS[plant] in fault for fault in found), found


@pytest.mark.parametrize("what", ["budget.raised", "budget.renewed", "budget.rules"])
def test_an_act_that_was_cut_shows_in_the_money(database: Database, what: str) -> None:
    """Whoever has the database alone may cut the last act: the service then signs for the shorter record."""
    world = World.make(database)
    with database.write() as session:
        if what == "budget.raised":
            account = ledger.owner_account(session, world.owner)
            ledger.raise_limits(session, account.id, Limits.of(2.0, 1e-5, "gdp"))
        elif what == "budget.renewed":
            ledger.open_window(session, world.owner)
        else:
            renewals.set_renewal(session, world.owner, Renewal(None, "lifetime", 3, None))
    with database.read(snapshot=True) as session:
        whole = list(lines(session, world.owner))[:-1]
        accounts = session.scalars(select(Account).where(Account.owner_id == world.owner)).all()
    acted, last = [line for line in whole if isinstance(line, ActLine)][-2:]
    assert last.kind == what
    assert verify(ended(whole, SIGNER), [KEY]).faults == []
    end = heads(SIGNER, accounts, [ActChain(id=world.owner, seq=acted.seq, head=acted.hash)])
    short = [end if isinstance(line, Heads) else line for line in whole if line is not last]
    (fault,) = verify(ended(short, SIGNER), [KEY]).faults
    assert f"acts of {world.owner} do not tell of the limits" in fault


@pytest.mark.parametrize("backend", ["sqlite"])  # whose triggers whoever has the file can take away
def test_a_denied_question_that_was_approved_after_all_shows(database: Database) -> None:
    """Whoever owns the database forgets a denial, and has the service sign for another decision."""
    world = World.make(database, approval=True)
    job = world.submit(database, "one")
    assert world.decide(database, job, "deny") == "denied"
    with database.write() as session:
        triggers = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('decisions', 'jobs')"
        )
        for trigger in session.scalars(text(triggers)).all():
            session.execute(text(f"DROP TRIGGER {trigger}"))
        session.execute(delete(Decision).where(Decision.job_id == job))
        session.execute(update(Job).where(Job.id == job).values(state="requested"))
    assert world.decide(database, job, "approve") == "reserved"
    with database.read(snapshot=True) as session:
        found = verify(lines(session, world.owner), [KEY]).faults
    assert found
    assert all("denied it" in fault for fault in found), found


def test_a_record_that_was_cut_and_made_whole_again_shows_in_heads_kept_elsewhere(
    database: Database,
) -> None:
    """Whoever has the database and the key can write another record, but what was published of it stays."""
    world = World.make(database)
    with database.read(snapshot=True) as session:
        before = list(lines(session, world.owner))[:-1]
        kept = heads(SIGNER, [], session.scalars(chains_of(world.owner)).all())
    acted = [line for line in before if isinstance(line, ActLine)]
    end = _heads(before)
    assert end.acts
    end.acts[0].seq, end.acts[0].hash = acted[-2].seq, acted[-2].hash
    short = [line for line in before if line is not acted[-1] and line is not end]
    anew = heads(SIGNER, [Account(id=h.account, seq=h.seq, head=h.hash) for h in end.heads])
    anew.acts = end.acts
    anew = anew.model_copy(update={"signature": SIGNER.sign(heads_to_sign(anew))})
    assert verify(ended([*short, anew], SIGNER), [KEY]).faults == []
    (fault,) = verify(ended([*short, anew], SIGNER), [KEY], [kept]).faults
    assert f"acts of {world.owner} do not go through their head at {acted[-1].seq}" in fault


def test_the_whole_database_verifies(database: Database) -> None:
    worlds = [World.make(database) for _ in range(2)]
    with database.write() as session:
        acts.record(session, None, "ledger.restored")
    with database.read(snapshot=True) as session:
        report = verify(lines(session), [KEY])
        assert report.acts == len(session.scalars(select(Act.seq)).all())
    assert report.faults == []
    assert len(worlds) == 2
