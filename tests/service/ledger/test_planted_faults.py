"""Planted faults of the ledger, each seen by a check that holds without it.

`SEEN_BY` names for every fault the check here, or the test elsewhere, that sees it.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import and_, create_engine, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from privest_service import backup
from privest_service.database import Database, now
from privest_service.datasets import store
from privest_service.estimates import charging
from privest_service.exports import chains, keys, verify
from privest_service.exports import receipts as checks
from privest_service.exports.export import chains_of, ended, heads, lines
from privest_service.exports.lines import End, Heads, JobLine, Line, ReceiptLine
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges, entries, receipts
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import INFORMATIVE_CAP, Charge, Limits
from privest_service.problems import AccountFrozen, BudgetExceeded, DatabaseUnavailable
from privest_service.security.models import Owner
from testing.books import Books, held
from testing.claims import claim_next
from testing.server import SIGNER
from testing.world import COST, World, claimed

Plant = Callable[[pytest.MonkeyPatch, Database], None]

_debit, _move, _accounts_of = entries.debit, jobs.move, ledger.accounts_of
_run, _commit, _fail = Database.run, charges.commit, jobs.fail


def _gdp(mu_squared: int, slack: int = 10) -> Limits:
    return Limits("gdp", 1, 1, mu_squared, slack)


# What must hold


def budget_is_held_before_a_run(database: Database) -> None:
    """A request is charged when it is accepted: with room for one, a second is refused before any has run."""
    world = World.make(database, _gdp(COST.mu_squared, COST.slack))
    job = world.submit(database, "one")
    with database.read() as session:
        assert len(entries.debits_of(session, job)) == 3
        assert world.accounts(session)[0].mu_squared_spent == COST.mu_squared
    with pytest.raises(BudgetExceeded):
        world.submit(database, "two")
    world.end(database, claimed(database), "{}")
    assert world.check(database) == "committed"


def both_sums_move_together(database: Database) -> None:
    """A charge of which one part does not fit leaves no trace of the other; one that fits is one entry."""
    books = Books(database)
    account = books.open(_gdp(100, 5))
    for over in (Charge(1, 1, 10, 6), Charge(1, 1, 101, 1)):
        with pytest.raises(BudgetExceeded):
            books.reserve({account: over})
        found = books.account(account)
        assert (found.mu_squared_spent, found.slack_spent, found.seq) == (0, 0, 1)
    books.reserve({account: Charge(1, 1, 10, 5)})
    assert books.account(account).seq == 2


def units_count_at_any_height(database: Database) -> None:
    """At 2^60 a unit still counts: of three charges of one unit, two fit."""
    books = Books(database)
    account = books.open(_gdp(2**60 + 2))
    for amount in (2**60, 1, 1):
        books.reserve({account: Charge(1, 1, amount, 0)})
    with pytest.raises(BudgetExceeded):
        books.reserve({account: Charge(1, 1, 1, 0)})
    assert books.account(account).mu_squared_spent == 2**60 + 2


def one_unit_too_much_is_refused(database: Database) -> None:
    """There is no tolerance, and it is the ledger that says so, not the CHECK behind it."""
    books = Books(database)
    for limits, over in (
        (_gdp(10**12, 10**12), Charge(1, 1, 10**12 + 1, 0)),
        (_gdp(10**12, 10**12), Charge(1, 1, 0, 10**12 + 1)),
        (Limits("basic", 10**12, 10**12, 0, 0), Charge(10**12 + 1, 0, 0, 0)),
    ):
        account = books.open(limits)
        with pytest.raises(BudgetExceeded):
            books.reserve({account: over})


def a_claim_is_final(database: Database) -> None:
    """Whatever becomes of a claimed job, and whoever tries: its charge stays."""
    world = World.make(database)
    job = world.submit(database, "one")
    assert claimed(database) == job
    with database.write() as session:
        assert not charges.void(session, job)
    world.revoke(database)
    assert world.check(database) == "claimed"
    world.end(database, job, None)
    assert world.check(database) == "failed"


def a_writer_holds_what_it_reads(database: Database) -> None:
    """Nobody else can write the accounts that a charge has read before the charge ends."""
    books = Books(database)
    account = books.open(_gdp(100))
    with database.write() as session:
        assert [found.id for found in held(session, [account])] == [account]
        if database.is_sqlite:
            other = sqlite3.connect(str(database.engine.url.database), timeout=0)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            other.close()
        else:
            _refused_at_once(database, account)


def a_charge_holds_its_accounts(database: Database) -> None:
    """A request holds the accounts that it finds for itself; other transactions are refused them at once."""
    world = World.make(database)
    with database.write() as session:
        owner = session.get_one(Owner, world.owner)
        found = ledger.accounts_in_force(session, owner, lock=True)
        if not database.is_sqlite:
            _refused_at_once(database, found[0].id)


def _refused_at_once(database: Database, account: int) -> None:
    with database.write() as other, pytest.raises(OperationalError, match="lock"):
        other.execute(text(f"SELECT 1 FROM accounts WHERE id = {account} FOR UPDATE NOWAIT"))  # noqa: S608


def a_retry_charges_once(database: Database) -> None:
    """Whether or not something was in the way, work that was done is not done again."""
    books = Books(database)
    account = books.open(_gdp(100))
    tries = list[int]()

    def work(session: Session) -> None:
        tries.append(len(tries))
        books.reserve_in(session, {account: Charge(1, 1, 10, 0)})
        if len(tries) == 2:
            raise ledger_in_the_way

    ledger_in_the_way = StaleDataError()
    for attempts in (1, 3):  # the second time in vain once
        database.run(work)
        assert len(tries) == attempts
    assert books.account(account).mu_squared_spent == 20
    assert books.faults() == []


def a_refusal_leaves_nothing_to_read(database: Database) -> None:
    """What the budget does not cover has no job, no key and no run, so that there is no answer."""
    world = World.make(database, _gdp(COST.mu_squared - 1, COST.slack))
    with pytest.raises(BudgetExceeded):
        world.submit(database, "one")
    with database.read() as session:
        assert world.jobs(session) == []
        assert session.get(IdempotencyKey, (world.analyst, "one")) is None
    assert claimed(database) is None
    assert world.check(database) is None


def every_scope_is_charged(database: Database) -> None:
    """The owner's account, that of the rows and that of the grant: each the same, and each able to refuse."""
    world = World.make(database)
    world.submit(database, "one")
    with database.read() as session:
        found = {account.scope: account.mu_squared_spent for account in world.accounts(session)}
    assert found == dict.fromkeys(("owner", "dataset", "analyst"), COST.mu_squared)
    assert claimed(database)


def a_void_cannot_fail(database: Database) -> None:
    """Whatever the sum that is not limited had come to."""
    books = Books(database)
    account = books.open(Limits("basic", 10, 10, 0, 0))
    jobs = [books.reserve({account: Charge(1, 1, 2**61, 2**61)}) for _ in range(4)]
    for job in jobs:
        with database.write() as session:
            assert charges.void(session, job)
    assert books.account(account).epsilon_spent == 0
    assert books.faults() == []


def a_freeze_holds_what_waits(database: Database) -> None:
    """A job that waits for a worker waits for the end of the freeze, and is charged meanwhile."""
    books = Books(database)
    account = books.open(_gdp(100))
    job = books.reserve({account: Charge(1, 1, 10, 0)})
    with database.write() as session:
        ledger.set_frozen(session, books.owner, True, by="owner")
    assert claimed(database) is None
    assert books.account(account).mu_squared_spent == 10
    with database.write() as session:
        ledger.set_frozen(session, books.owner, False, by="owner")
    assert claimed(database) == job


def a_claim_holds_its_owner(database: Database) -> None:
    """Nobody is told of a freeze between the moment a claim has seen none and its commit."""
    books = Books(database)
    books.reserve({books.open(_gdp(100)): Charge(1, 1, 10, 0)})
    with database.write() as session:
        assert claim_next(session, timedelta(hours=1))
        if not database.is_sqlite:
            with database.write() as other, pytest.raises(OperationalError, match="lock"):
                other.execute(text("SELECT 1 FROM owners FOR NO KEY UPDATE NOWAIT"))


def an_administrator_ends_its_freeze(database: Database) -> None:
    """Nobody but the administrator ends a freeze that the administrator set."""
    books = Books(database)
    with database.write() as session:
        ledger.set_frozen(session, books.owner, True, by="admin")
    with pytest.raises(AccountFrozen), database.write() as session:
        ledger.set_frozen(session, books.owner, False, by="owner")


def a_change_takes_what_moved(database: Database) -> None:
    """An account that was charged since a session looked at it is no fault and no reason to begin anew."""
    books = Books(database)
    account, tries = books.open(_gdp(100)), list[int]()

    def change(session: Session) -> None:
        looked = session.get_one(Account, account)
        tries.append(looked.seq)
        if not database.is_sqlite:
            books.reserve({account: Charge(1, 1, 10, 0)})
        ledger.set_cap(session, account, _gdp(200))
        assert looked in session  # what nobody holds, a session forgets

    database.run(change)
    assert tries == [1]


def a_ledger_ends(database: Database) -> None:
    """Whatever is cut off one shows, all of it too."""
    books = Books(database)
    books.open(_gdp(100))
    with database.read(snapshot=True) as session:
        told = list(lines(session))
    assert verify.verify(told, [SIGNER.public_key]).faults == []
    for length in range(len(told)):
        assert verify.verify(told[:length], [SIGNER.public_key]).faults


def a_void_is_of_a_job_that_was_voided(database: Database) -> None:
    """One of a committed job shows, although the service's own key signed it."""
    books = Books(database)
    account = books.open(_gdp(100))
    job = books.reserve({account: Charge(1, 1, 10, 0)})
    assert claimed(database) == job
    back = -Charge(1, 1, 10, 0)
    with database.write() as session:
        assert charges.commit(session, job, "{}")
        (found,) = held(session, [account])
        entries.move_by(found, back)
        entries.append(session, [found], "void", job, None, [back])
    assert any("given back" in fault for fault in books.faults())


def a_receipt_names_the_debits_of_its_job(database: Database) -> None:
    """One that names another job's shows, although the service's own key signed it."""
    told = _with_two_receipts(database)
    one, two = (at for at, line in enumerate(told) if isinstance(line, ReceiptLine) and _owners(line))
    entries = told[one].receipt.statement.entries
    forged = told[two].receipt.statement.model_copy(update={"entries": entries})
    told[two] = ReceiptLine(receipt=receipts._signed(SIGNER, forged))
    assert any("does not name" in fault for fault in verify.verify(ended(told, SIGNER), [_KEY]).faults)


def an_analyst_has_a_receipt(database: Database) -> None:
    """A ledger from which it was left out shows that."""
    told = [x for x in _with_two_receipts(database) if not isinstance(x, ReceiptLine) or _owners(x)]
    found = verify.verify(ended(told, SIGNER), [_KEY]).faults
    assert any("has no analyst's receipt" in fault for fault in found)


def a_ledger_tells_its_heads(database: Database) -> None:
    """One without them, or with those of some accounts alone, shows."""
    told = _with_two_receipts(database)
    assert any("no heads" in fault for fault in verify.verify(ended(told[:-1], SIGNER), [_KEY]).faults)
    told[-1] = heads(SIGNER, [])
    found = verify.verify(ended(told, SIGNER), [_KEY]).faults
    assert any("not the ends of all chains" in fault for fault in found)


_KEY = SIGNER.public_key


def _owners(line: ReceiptLine) -> bool:
    return bool(line.receipt.statement.entries)


def _with_two_receipts(database: Database) -> list[Any]:
    """All lines but the end of a ledger with two committed jobs."""
    books = Books(database)
    account = books.open(_gdp(100))
    for _ in range(2):
        job = books.reserve({account: Charge(1, 1, 10, 0)})
        assert claimed(database) == job
        with database.write() as session:
            assert charges.commit(session, job, "{}")
    with database.read(snapshot=True) as session:
        return list(lines(session))[:-1]


def a_question_waits_for_its_owner(database: Database) -> None:
    """One that has to be approved is charged nothing and claimed by nobody until it is."""
    world = World.make(database, approval=True)
    job = world.submit(database, "one")
    assert claimed(database) is None
    assert world.check(database) == "requested"
    assert world.decide(database, job, "approve") == "reserved"
    world.end(database, claimed(database), "{}")
    assert world.check(database) == "committed"


def an_approval_is_of_what_is_charged(database: Database) -> None:
    """A charge without one shows, and one that the receipt does not name, whoever signed the lines."""
    world = World.make(database, approval=True)
    job = world.submit(database, "one")
    world.decide(database, job, "approve")
    world.end(database, claimed(database), "{}")
    with database.read(snapshot=True) as session:
        told = list(lines(session, world.owner))[:-1]
    assert verify.verify(ended(told, SIGNER), [_KEY]).faults == []
    (at,) = (at for at, line in enumerate(told) if isinstance(line, JobLine))
    for forged, words in (
        ({"approval": None}, "without the approval"),
        ({"approval": "dec_0"}, "does not name"),
    ):
        lines_ = [*told[:at], told[at].model_copy(update=forged), *told[at + 1 :]]
        found = verify.verify(ended(lines_, SIGNER), [_KEY]).faults
        assert any(words in fault for fault in found)
        assert any("act of its owner" in fault for fault in found)


def a_backup_is_of_its_ledger(database: Database) -> None:
    """One that ends elsewhere than the heads beside it is not restored."""
    books = Books(database)
    account = books.open(_gdp(100))
    with database.read(snapshot=True) as session:
        accounts, acts = session.scalars(select(Account)).all(), session.scalars(chains_of(None)).all()
        told = heads(SIGNER, accounts, acts)
        backup._require_whole(session, told, [SIGNER.public_key])
    with database.write() as session:
        ledger.set_cap(session, account, _gdp(200))
    with database.read(snapshot=True) as session, pytest.raises(backup._RefusedError):
        backup._require_whole(session, told, [SIGNER.public_key])


def a_retired_key_signs_nothing_new(database: Database) -> None:
    """What the ledger's own key signed is a fault where its end is told to have been before."""
    Books(database)
    ended = f"{SIGNER.public_key}={(now() - timedelta(days=1)).isoformat()}"
    with database.read(snapshot=True) as session:
        found = verify.verify(lines(session), [ended]).faults
    assert any("a key that was retired" in fault for fault in found)


def a_killed_restore_stops_nobody(_: Database) -> None:
    """The folder in which it had copied a ledger is removed a day later, as other things left behind."""
    with TemporaryDirectory() as root:
        left = store.Store(Path(root)).incoming / "left"
        left.mkdir()
        (left / "ledger.db").touch()
        os.utime(left, (0, 0))
        store.Store(Path(root))
        assert not left.exists()


def rows_are_durable(_: Database) -> None:
    """The file, the owner's folder, and the folder that has this one: each is written through."""
    synced, fsync = list[str](), os.fsync

    def seen(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", seen)
        rows = store.Store(Path(root))
        draft = rows.incoming / "draft"
        draft.write_bytes(b"rows")
        rows.adopt(draft, "own_1", "ds_1")
        path = rows.path("own_1", "ds_1").resolve()
    assert {str(draft.resolve()), str(path.parent), str(path.parent.parent)} <= set(synced)
    assert str(path.parent.parent.parent) in synced


# What is planted


def _debit_after_the_run(patch: pytest.MonkeyPatch, _: Database) -> None:
    later: dict[str, tuple[Any, ...]] = {}

    def debit(
        session: Session, accounts: Sequence[Account], job_id: str, why: str, charges: Any
    ) -> list[Entry]:
        later[job_id] = ([account.id for account in accounts], why, charges)
        return []

    def commit(session: Session, job_id: str, result: str) -> bool:
        accounts, why, charges = later.pop(job_id)
        _debit(session, held(session, accounts), job_id, why, charges)
        return _commit(session, job_id, result)

    patch.setattr(entries, "debit", debit)
    patch.setattr(charges, "commit", commit)


def _debit_apart(patch: pytest.MonkeyPatch, database: Database) -> None:
    def debit(
        session: Session, accounts: Sequence[Account], job_id: str, why: str, charges: Any
    ) -> list[Entry]:
        parts = [[Charge(c.epsilon, 0, c.mu_squared, 0) for c in charges]]
        parts.append([Charge(0, c.delta, 0, c.slack) for c in charges])
        _debit(session, accounts, job_id, why, parts[0])
        session.flush()
        session.connection().exec_driver_sql("COMMIT")
        if database.is_sqlite:
            session.connection().exec_driver_sql("BEGIN IMMEDIATE")
        return _debit(session, accounts, job_id, why, parts[1])

    patch.setattr(entries, "debit", debit)


def _float_balances(patch: pytest.MonkeyPatch, _: Database) -> None:
    def move_by(account: Account, amount: Charge) -> None:
        for name in ("epsilon", "delta", "mu_squared", "slack"):
            spent = float(getattr(account, f"{name}_spent")) + float(getattr(amount, name))
            setattr(account, f"{name}_spent", int(spent))

    patch.setattr(entries, "move_by", move_by)


def _tolerance(patch: pytest.MonkeyPatch, _: Database) -> None:
    def require_sums(accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
        for account, charge in zip(accounts, charges, strict=True):
            for name in ledger.limits_of(account).counted:
                spent = getattr(account, f"{name}_spent") + getattr(charge, name)
                if not spent <= getattr(account, f"{name}_limit") * (1 + 1e-9):
                    raise BudgetExceeded

    patch.setattr(entries, "require_sums", require_sums)


def _void_of_claimed(patch: pytest.MonkeyPatch, _: Database) -> None:
    def move(session: Session, which: Any, before: str, after: str, **values: object) -> Job | None:
        found = _move(session, which, before, after, **values)
        if found is None and after == "voided":
            return _move(session, which, "claimed", after, **values)
        return found

    patch.setattr(jobs, "move", move)


def _failures_refunded(patch: pytest.MonkeyPatch, _: Database) -> None:
    def fail(session: Session, job_id: str) -> bool:
        failed = _fail(session, job_id)
        debits = entries.debits_of(session, job_id) if failed else []
        accounts = [entries.locked(session, entry.account_id) for entry in debits]
        back = [-Charge(e.epsilon, e.delta, e.mu_squared, e.slack) for e in debits]
        for account, amount in zip(accounts, back, strict=True):
            entries.move_by(account, amount)
        entries.append(session, accounts, "void", job_id, None, back)
        return failed

    patch.setattr(jobs, "fail", fail)


def _deferred_transactions(patch: pytest.MonkeyPatch, database: Database) -> None:
    """Begin transactions late on SQLite, and hold no accounts on PostgreSQL."""
    if database.is_sqlite:
        patch.setattr(database, "_writer", create_engine(database.engine.url))
    else:
        patch.setitem(globals(), "held", _not_held)


def _not_held(session: Session, accounts: Any) -> list[Account]:
    return list(session.scalars(select(Account).where(Account.id.in_(accounts)).order_by(Account.id)))


def _accounts_not_held(patch: pytest.MonkeyPatch, _: Database) -> None:
    def accounts_of(*given: Any, lock: bool = False) -> list[Account]:
        return _accounts_of(*given)

    patch.setattr(ledger, "accounts_of", accounts_of)


def _run_again_after_commit(patch: pytest.MonkeyPatch, _: Database) -> None:
    """Takes a COMMIT whose answer was lost for one that was not done."""

    def run(database: Database, work: Callable[[Session], Any]) -> Any:
        _run(database, work)
        return _run(database, work)

    patch.setattr(Database, "run", run)


def _refusals_run(patch: pytest.MonkeyPatch, _: Database) -> None:
    covered = entries.require_sums

    def debit(
        session: Session, accounts: Sequence[Account], job_id: str, why: str, charges: Any
    ) -> list[Entry]:
        try:
            covered(accounts, charges)
        except BudgetExceeded:
            return []
        return _debit(session, accounts, job_id, why, charges)

    patch.setattr(entries, "require_sums", lambda *_: None)
    patch.setattr(entries, "debit", debit)


def _without(scope: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch, _: Database) -> None:
        def accounts_of(*given: Any, lock: bool = False) -> list[Account]:
            return [account for account in _accounts_of(*given, lock=lock) if account.scope != scope]

        patch.setattr(ledger, "accounts_of", accounts_of)

    return plant


def _voids_off_the_cap(patch: pytest.MonkeyPatch, _: Database) -> None:
    for module in (entries, chains):
        patch.setattr(module, "moved", lambda spent, amount: min(spent + amount, INFORMATIVE_CAP))


def _held_jobs_claimed(patch: pytest.MonkeyPatch, _: Database) -> None:
    waiting = and_(Job.state == "reserved", Job.part_of.is_(None))
    patch.setattr(jobs, "_WAITING", waiting)
    patch.setattr(jobs, "TO_DO", select(Job.id).where(waiting))
    patch.setattr(jobs, "frozen_meanwhile", lambda *_: False)


def _freeze_looked_at_once(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(jobs, "frozen_meanwhile", lambda *_: False)


def _anybody_ends_a_freeze(patch: pytest.MonkeyPatch, _: Database) -> None:
    def set_frozen(session: Session, owner_id: str, frozen: bool, *, by: str) -> None:
        session.get_one(Owner, owner_id).frozen_by = by if frozen else None

    patch.setattr(ledger, "set_frozen", set_frozen)


def _moved_is_stale(patch: pytest.MonkeyPatch, _: Database) -> None:
    def locked(session: Session, account_id: int) -> Account:
        return session.get_one(Account, account_id, with_for_update=True, populate_existing=True)

    patch.setattr(entries, "locked", locked)


def _cut_ledgers_pass(patch: pytest.MonkeyPatch, _: Database) -> None:
    def up_to_the_end(told: Iterable[Line], *_: Any) -> Iterator[Line]:
        return (line for line in told if not isinstance(line, End))

    patch.setattr(verify, "_up_to_the_end", up_to_the_end)


def _voids_of_anything(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(checks.Jobs, "faults_of", lambda *_: iter(()))


def _receipts_of_anything(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(checks.Receipts, "_named", lambda *_: iter(()))


def _analysts_without_receipts(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(checks.Jobs, "faults", lambda *_: iter(()))


def _nobody_approves(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(charging, "decide_by", lambda *_: {})


def _charges_unapproved(patch: pytest.MonkeyPatch, _: Database) -> None:
    take = checks.Jobs.take

    def taken(self: checks.Jobs, line: JobLine) -> Iterator[str]:
        return take(self, line.model_copy(update={"requested": False, "approval": None}))

    patch.setattr(checks.Jobs, "take", taken)


def _heads_untold(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(verify, "_ends", lambda *_: iter(()))


def _heads_of_a_backup_unread(patch: pytest.MonkeyPatch, _: Database) -> None:
    def require_whole(session: Session, _: Heads, keys: Sequence[str]) -> None:
        if faults := verify.verify(lines(session), keys).faults:
            raise backup._RefusedError(faults)

    patch.setattr(backup, "_require_whole", require_whole)


def _keys_without_end(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(keys.Trusted, "holds", lambda *_: True)


def _folders_unlinked(patch: pytest.MonkeyPatch, _: Database) -> None:
    patch.setattr(store, "_remove", lambda left: left.unlink(missing_ok=True))


def _parents_not_synced(patch: pytest.MonkeyPatch, _: Database) -> None:
    sync = store._sync
    patch.setattr(store, "_sync", lambda path: path.name in ("rows", "incoming") or sync(path))


Check = Callable[[Database], None]

MUTANTS: dict[str, tuple[Plant, Check]] = {
    "debit after the run": (_debit_after_the_run, budget_is_held_before_a_run),
    "both sums debited apart": (_debit_apart, both_sums_move_together),
    "float balances": (_float_balances, units_count_at_any_height),
    "tolerance": (_tolerance, one_unit_too_much_is_refused),
    "void after the claim": (_void_of_claimed, a_claim_is_final),
    "refund of a failure": (_failures_refunded, a_claim_is_final),
    "deferred transactions": (_deferred_transactions, a_writer_holds_what_it_reads),
    "accounts not held": (_accounts_not_held, a_charge_holds_its_accounts),
    "a retry that charges twice": (_run_again_after_commit, a_retry_charges_once),
    "a refused answer readable": (_refusals_run, a_refusal_leaves_nothing_to_read),
    "rows not charged": (_without("dataset"), every_scope_is_charged),
    "grant not charged": (_without("analyst"), every_scope_is_charged),
    "voids off the cap": (_voids_off_the_cap, a_void_cannot_fail),
    "held jobs claimed": (_held_jobs_claimed, a_freeze_holds_what_waits),
    "a freeze looked at once": (_freeze_looked_at_once, a_claim_holds_its_owner),
    "anybody ends a freeze": (_anybody_ends_a_freeze, an_administrator_ends_its_freeze),
    "what moved is stale": (_moved_is_stale, a_change_takes_what_moved),
    "cut ledgers pass": (_cut_ledgers_pass, a_ledger_ends),
    "voids of anything": (_voids_of_anything, a_void_is_of_a_job_that_was_voided),
    "receipts of anything": (_receipts_of_anything, a_receipt_names_the_debits_of_its_job),
    "analysts without receipts": (_analysts_without_receipts, an_analyst_has_a_receipt),
    "questions unasked": (_nobody_approves, a_question_waits_for_its_owner),
    "charges unapproved": (_charges_unapproved, an_approval_is_of_what_is_charged),
    "heads untold": (_heads_untold, a_ledger_tells_its_heads),
    "heads of a backup unread": (_heads_of_a_backup_unread, a_backup_is_of_its_ledger),
    "keys without end": (_keys_without_end, a_retired_key_signs_nothing_new),
    "folders unlinked": (_folders_unlinked, a_killed_restore_stops_nobody),
    "parents not synced": (_parents_not_synced, rows_are_durable),
}

_SEEN_AS = {
    "tolerance": IntegrityError,
    "void after the claim": IntegrityError,
    "voids off the cap": IntegrityError,
    "what moved is stale": DatabaseUnavailable,
    "folders unlinked": OSError,
}
"""Errors by fault, where a CHECK, a trigger or a client of the database sees the fault first."""

_OF_ROW_LOCKS = ("accounts not held", "a freeze looked at once", "what moved is stale")

SEEN_BY: dict[str, str] = {
    **{name: check.__name__ for name, (_, check) in MUTANTS.items()},
    "read, check, write": "test_concurrency.py::test_a_read_check_write_debit_would_be_caught",
}


@pytest.mark.parametrize("check", sorted({check for _, check in MUTANTS.values()}, key=lambda c: c.__name__))
def test_the_ledger_keeps(database: Database, check: Check) -> None:
    check(database)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_seen(database: Database, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plant, check = MUTANTS[name]
    if database.is_sqlite and name in _OF_ROW_LOCKS:
        pytest.skip("SQLite has no locks on rows, and one writer")
    with monkeypatch.context() as patch:
        plant(patch, database)
        with pytest.raises(_SEEN_AS.get(name, (AssertionError, pytest.fail.Exception))):
            check(database)


def test_a_commit_whose_answer_was_lost_is_charged_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the retry stands the key: the same request again finds its job."""
    world = World.make(database)
    with monkeypatch.context() as patch:
        _run_again_after_commit(patch, database)
        world.submit(database, "one")
    assert world.check(database) == "reserved"
    assert claimed(database)


def test_every_fault_is_seen_by_something() -> None:
    wanted = {
        "debit after the run",
        "both sums debited apart",
        "float balances",
        "tolerance",
        "void after the claim",
        "refund of a failure",
        "read, check, write",
        "deferred transactions",
        "accounts not held",
        "a retry that charges twice",
        "a refused answer readable",
        "rows not charged",
        "grant not charged",
        "voids off the cap",
        "held jobs claimed",
        "a freeze looked at once",
        "anybody ends a freeze",
        "what moved is stale",
        "cut ledgers pass",
        "voids of anything",
        "receipts of anything",
        "analysts without receipts",
        "questions unasked",
        "charges unapproved",
        "heads untold",
        "heads of a backup unread",
        "keys without end",
        "folders unlinked",
        "parents not synced",
    }
    assert set(SEEN_BY) == wanted
    for name, seen_by in SEEN_BY.items():
        file, _, test = seen_by.rpartition("::")
        code = (Path(__file__).parent / (file or Path(__file__).name)).read_text()
        assert f"def {test}(" in code, name
