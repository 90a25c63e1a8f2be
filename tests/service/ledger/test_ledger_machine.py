"""The ledger against integers once more: with crashes, restarts, caps, windows and lost workers."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid
from testing.books import Books
from testing.claims import claim_next
from testing.ledger_model import LedgerModel, basic, gdp
from testing.server import SIGNER


class _CrashError(Exception):
    """Stands for a process that is gone."""


def crash(database: Database, work: Callable[[Session], object]) -> None:
    """A transaction whose connection is lost when all is done but the COMMIT."""

    def lose() -> None:
        with database.write() as session:
            with contextlib.suppress(AccountFrozen, BudgetExceeded):
                work(session)
            session.connection().invalidate()
            raise _CrashError

    with pytest.raises(_CrashError):
        lose()


class Crashes(LedgerModel):
    """The model's accounts under an owner of their own in each example, with windows that are opened anew."""

    @initialize(
        accounts=st.lists(
            st.tuples(st.sampled_from(["gdp", "basic"]), st.integers(0, 100), st.integers(0, 10)),
            min_size=1,
            max_size=3,
        )
    )
    def open(self, accounts: list[tuple[str, int, int]]) -> None:
        type(self).books = Books(self.books.database)
        super().open(accounts)
        self.window = 1
        self.present = list(self.limits)
        self.requested: dict[str, dict[int, Charge]] = {}

    # Requests

    @rule(data=st.data(), amount=st.integers(0, 30))
    def request(self, data: st.DataObject, amount: int) -> None:
        """Nothing is charged, whatever is left."""
        account = data.draw(st.sampled_from(list(self.limits)))
        self.requested[self.books.request()] = {account: Charge(amount, 1, amount, 1)}

    @precondition(lambda self: self.requested)
    @rule(data=st.data(), crashes=st.booleans())
    def approve(self, data: st.DataObject, crashes: bool) -> None:
        """A request is charged if there is room now, and waits on if there is none or if it crashes."""
        job = data.draw(st.sampled_from(list(self.requested)))
        amounts = self.requested[job]
        if crashes:
            crash(self.books.database, lambda session: self.books.approve_in(session, job, amounts))
            return
        fits = all(self._fits(account, charge) for account, charge in amounts.items())
        refused = None if fits and not self.frozen_by else AccountFrozen if fits else BudgetExceeded
        with pytest.raises(refused) if refused else contextlib.nullcontext():
            self.books.database.run(lambda session: self.books.approve_in(session, job, amounts))
        if refused:
            return
        self.reserved[job] = self.requested.pop(job)
        with self.books.database.read() as session:  # the queue goes by when they were asked
            asked = dict(session.query(Job.id, Job.created_at).filter(Job.id.in_(self.reserved)).all())
        self.reserved = dict(sorted(self.reserved.items(), key=lambda each: asked[each[0]]))
        for account, charge in amounts.items():
            self._add(account, charge)

    @precondition(lambda self: self.requested)
    @rule(data=st.data(), after=st.sampled_from(["denied", "expired", "withdrawn"]))
    def end_request(self, data: st.DataObject, after: str) -> None:
        job = data.draw(st.sampled_from(list(self.requested)))
        del self.requested[job]
        with self.books.database.write() as session:
            assert not charges.void(session, job)
            assert jobs.move(session, Job.id == job, "requested", after)
            assert jobs.move(session, Job.id == job, "requested", "reserved") is None

    # Crashes

    @rule(data=st.data(), amount=st.integers(0, 30))
    def crash_of_a_reservation(self, data: st.DataObject, amount: int) -> None:
        account = data.draw(st.sampled_from(list(self.limits)))
        charges = {account: Charge(amount, 1, amount, 1)}
        crash(self.books.database, lambda session: self.books.reserve_in(session, charges))

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), void=st.booleans())
    def crash_of_a_claim_or_a_void(self, data: st.DataObject, void: bool) -> None:
        job = data.draw(st.sampled_from(list(self.reserved)))

        def work(session: Session) -> None:
            if void:
                assert charges.void(session, job)
            else:
                assert (claim_next(session, timedelta(hours=1)) is None) == bool(self.frozen_by)

        crash(self.books.database, work)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), committed=st.booleans())
    def crash_of_an_end(self, data: st.DataObject, committed: bool) -> None:
        job = data.draw(st.sampled_from(self.claimed))

        def work(session: Session) -> None:
            assert charges.commit(session, job, "{}") if committed else jobs.fail(session, job)

        crash(self.books.database, work)

    @rule()
    def restart(self) -> None:
        """All connections are lost, and another process opens the database."""
        url = self.books.database.engine.url.render_as_string(hide_password=False)
        self.books.database.close()
        self.books.database = Database(url, signer=SIGNER)

    # Lost workers

    @precondition(lambda self: self.claimed)
    @rule()
    def workers_are_lost(self) -> None:
        """Every lease has run out: the jobs fail, and no sum moves."""
        with self.books.database.write() as session:
            assert jobs.fail_overdue(session, now()) == []
            failed = jobs.fail_overdue(session, now() + timedelta(hours=2))
        assert sorted(failed) == sorted(self.claimed)
        with self.books.database.write() as session:
            for job in failed:
                assert session.get_one(Job, job).state == "failed"
                assert not charges.commit(session, job, "{}")
                assert not charges.void(session, job)
        self.claimed.clear()

    # Caps and windows

    @property
    def in_force(self) -> list[int]:
        """Accounts of the present window."""
        return self.present

    @rule(data=st.data(), loss=st.integers(0, 120), probability=st.integers(0, 12))
    def cap(self, data: st.DataObject, loss: int, probability: int) -> None:
        account = data.draw(st.sampled_from(self.in_force))
        old, spent = self.limits[account], self.spent[account]
        is_gdp = old.composition == "gdp"
        new = gdp(loss, probability) if is_gdp else basic(loss, probability)
        first, second = (spent[2], spent[3]) if is_gdp else (spent[0], spent[1])
        with self.books.database.write() as session:
            if new != old and (first > loss or second > probability):
                with pytest.raises(Invalid):
                    ledger.set_cap(session, account, new)
                return
            self.books.set_cap(session, account, new)
        if new != old:
            self.limits[account] = new
            self.moves[account] += 1

    @precondition(lambda self: self.window < 4)
    @rule()
    def renew(self) -> None:
        """New accounts with the limits of the present ones and for the same; nothing else moves."""
        with self.books.database.write() as session:
            ledger.open_window(session, self.books.owner)
            found = session.query(Account).filter_by(owner_id=self.books.owner, window=self.window + 1)
            renewed_for = {account.subject: account.id for account in found if account.scope != "owner"}
            subjects = [session.get_one(Account, former).subject for former in self.present]
        opened = [renewed_for.pop(subject) for subject in subjects]
        assert not renewed_for
        assert len(opened) == len(self.present)
        for former, renewed in zip(self.present, opened, strict=True):
            self.limits[renewed] = self.limits[former]
            self.spent[renewed] = (0, 0, 0, 0)
            self.moves[renewed] = 1
        self.present, self.window = opened, self.window + 1

    def teardown(self) -> None:
        with self.books.database.write() as session:
            for job in self.claimed:
                jobs.fail(session, job)
        super().teardown()


@pytest.mark.few(1)
def test_the_ledger_is_a_model_of_integers_through_crashes(database: Database) -> None:
    class OnThisDatabase(Crashes):
        pass

    OnThisDatabase.books = Books(database)
    OnThisDatabase.TestCase.settings = settings(
        max_examples=20,
        stateful_step_count=25,
        database=None,
        phases=[Phase.generate],  # each step is a transaction: shrinking takes minutes
        suppress_health_check=list(HealthCheck),
    )
    try:
        OnThisDatabase.TestCase("runTest").runTest()
    finally:
        if OnThisDatabase.books.database is not database:
            OnThisDatabase.books.database.close()
