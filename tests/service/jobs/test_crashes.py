"""Processes killed at every step: what they leave is whole, charged once, and comes to an end."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest
from sqlalchemy import event, func, select

from privest_service.database import Database
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger.models import Entry
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import BudgetExceeded
from testing.books import Books
from testing.processes import clean, forked_with
from testing.server import HANG_GUARD, SIGNER
from testing.world import World, claimed

_KEY = "the key"


@pytest.fixture(scope="module", autouse=True)
def _preloaded() -> Iterator[None]:
    with forked_with(__name__):
        yield


def _url(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


# At every step


def _die_at(database: Database, step: int) -> None:
    """Kill this process at its nth step: before a statement that is no query, before a COMMIT or after it."""
    steps = count(1)

    def tick() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for engine in {database._writer, database._reader}:
        event.listen(engine, "before_cursor_execute", lambda *given: _reads(given[2]) or tick())
        commit = engine.dialect.do_commit

        def do_commit(connection: Any, commit: Callable[[Any], None] = commit) -> None:
            tick()
            commit(connection)
            tick()

        engine.dialect.do_commit = do_commit


def _reads(statement: str) -> bool:
    return statement.startswith("SELECT")


def _live(database: Database, world: World, end: str, parts: Callable[[], None] = lambda: None) -> None:
    """One request from its charge to its end; `parts` is called where it parts from one that is committed."""
    if end == "committed":
        parts()
    job = world.submit(database, _KEY)
    if end == "denied":
        parts()
        world.decide(database, job, "deny")
        return
    if world.approval:
        world.decide(database, job, "approve")
    if end == "voided":
        parts()
        world.revoke(database)
        return
    assert claimed(database) == job
    if end == "failed":
        parts()
    world.end(database, job, "{}" if end == "committed" else None)


def _breed(url: str, world: World, orders: Connection) -> None:
    """Fork a life for every order, and tell how it ended.

    This process has lived once itself, so that its children need not load or compile anything again, and has
    neither threads nor connections.
    """
    database = Database(url, signer=SIGNER)
    _live(database, world, "committed")
    database.close()
    orders.send(None)
    for world, end, step in iter(orders.recv, None):  # noqa: PLR1704 - each its own
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _live(database, world, end, partial(_die_at, database, step))
                status = 0
            finally:
                os._exit(status)
        orders.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@pytest.fixture
def killed_at(database: Database) -> Iterator[Callable[[World, str, int], bool]]:
    """Has one life of a request killed at a step, after it parted from others; false if it ended before."""
    ours, theirs = clean.Pipe()
    process = clean.Process(target=_breed, args=(_url(database), World.make(database), theirs))
    process.start()
    theirs.close()
    ours.recv()

    def killed(world: World, end: str, step: int) -> bool:
        ours.send((world, end, step))
        status = ours.recv()
        assert status in (0, -signal.SIGKILL)
        return status != 0

    yield killed
    ours.send(None)
    process.join(HANG_GUARD)
    assert process.exitcode == 0


@pytest.mark.either
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.costly)])  # steps from kill to kill
@pytest.mark.parametrize("end", ["committed", "failed", "voided", "approved", "denied"])
def test_a_kill_at_any_step_leaves_all_or_nothing_and_nothing_stranded(
    database: Database, killed_at: Callable[[World, str, int], bool], end: str, stride: int
) -> None:
    approval, end = end in ("approved", "denied"), "committed" if end == "approved" else end
    met, step = set[str | None](), 1 - stride
    while True:
        step += stride
        world = World.make(database, approval=approval)
        killed = killed_at(world, end, step)
        left = world.state(database)
        met.add(left)
        after = world.recover(database, _KEY, left)
        # What was claimed when its process died is never run again; all else is answered.
        ends = {"claimed": "failed", "failed": "failed", "voided": "voided", "denied": "denied"}
        assert after == ends.get(str(left), "committed")
        if not killed:
            assert left == end
            break
    assert step > (20 if end == "committed" else 5)  # or else steps were not counted
    before = {"failed": {"claimed"}, "voided": {"reserved"}, "denied": {"requested"}}
    asked = {"requested"} if approval else set[str]()
    known = before.get(end, {None, "reserved", "claimed"} | asked) | {end}
    assert met == known if stride == 1 else {end} <= met <= known


# At any time


ACCOUNTS = 3
CHARGE = Charge(7, 3, 1000, 2)


def _books(url: str, owner: str, dataset: str, pool_size: int = 10) -> Books:
    books = object.__new__(Books)
    books.database = Database(url, signer=SIGNER, pool_size=pool_size)
    books.owner, books.dataset = owner, dataset
    return books


def _reserve_once(books: Books, accounts: list[int], key: str) -> str:
    """The job under a key, charged now or before."""

    def work(session: Any) -> str:
        known = session.get(IdempotencyKey, ("somebody", key))
        return known.job_id if known else books.reserve_in(session, dict.fromkeys(accounts, CHARGE), key)

    return books.database.run(work)


def _work(
    url: str, books: tuple[str, str], accounts: list[int], name: str, first: list[int], last: int, told: Any
) -> None:
    """Charge in threads, under one key after the other, and tell of each what came of it."""
    mine, telling = _books(url, *books, pool_size=len(first)), threading.Lock()

    def work(thread: int) -> None:
        for i in range(first[thread], last):
            try:
                job = _reserve_once(mine, accounts, f"{name}-{thread}-{i}")
            except BudgetExceeded:
                job = None
            with telling:
                told.send((thread, i, job))

    with ThreadPoolExecutor(len(first)) as pool:
        list(pool.map(work, range(len(first))))
    told.close()


class _Storm:
    """Processes that charge the same accounts, are killed at any time and begun again where they were.

    Args:
        books: their database.
        accounts: all of which each charge moves.
        processes: that work at once.
        threads: of each.
        charges: that each thread attempts.
        seed: of the kills.
    """

    def __init__(
        self, books: Books, accounts: list[int], processes: int, threads: int, charges: int, seed: int
    ) -> None:
        self.books, self.accounts, self.charges = books, accounts, charges
        self.random = random.Random(seed)  # noqa: S311 - chooses moments
        self.answers: dict[str, str | None] = {}
        self.kills = 0
        self.names = [f"{seed}-{i}" for i in range(processes)]
        self.next = {name: [0] * threads for name in self.names}
        self.running: dict[Connection, tuple[str, ForkServerProcess]] = {}

    def run(self, kills: int) -> None:
        """Run to the end with so many kills, each after a random number of answers."""
        for name in self.names:
            self._begin(name)
        # All are over by the middle: not every answer is heard by itself.
        apart = max(1, sum(map(len, self.next.values())) * self.charges // (2 * kills))
        until = self.random.randint(1, apart)
        while self.running:
            for told in wait(list(self.running)):
                assert isinstance(told, Connection)
                until -= self._hear(told)
                if until <= 0 and self.kills < kills and self.running:
                    self._kill()
                    until = self.random.randint(1, apart)

    def _begin(self, name: str) -> None:
        hears, tells = clean.Pipe(duplex=False)
        books = (self.books.owner, self.books.dataset)
        given = (_url(self.books.database), books, self.accounts, name, self.next[name], self.charges, tells)
        process = clean.Process(target=_work, args=given)
        process.start()
        tells.close()
        self.running[hears] = name, process

    def _hear(self, told: Connection) -> int:
        if told not in self.running:  # of one that was killed a moment ago
            return 0
        name, process = self.running[told]
        try:
            self._note(name, *told.recv())
        except EOFError:
            del self.running[told]
            process.join(HANG_GUARD)
            if process.exitcode != 0 or min(self.next[name]) < self.charges:
                raise AssertionError(f"{name} ended with {process.exitcode}") from None
            return 0
        return 1

    def _note(self, name: str, thread: int, i: int, job: str | None) -> None:
        self.answers[f"{name}-{thread}-{i}"] = job
        self.next[name][thread] = i + 1

    def _kill(self) -> None:
        """Kill a process at once. What it told before counts, and it starts again after that."""
        told = self.random.choice(list(self.running))
        name, process = self.running.pop(told)
        process.kill()
        process.join(HANG_GUARD)
        self.kills += 1
        while True:
            try:
                self._note(name, *told.recv())
            except (EOFError, OSError):  # also in the middle of a word
                break
        told.close()
        self._begin(name)


def _storm(database: Database, processes: int, threads: int, charges: int, kills: int) -> None:
    """Make as many charges as fit, whoever is killed. Whatever was answered is there, and charged once."""
    books, total = Books(database), processes * threads * charges
    admitted = total * 9 // 10
    limits = Limits("gdp", 1, 1, (admitted + 1) * CHARGE.mu_squared - 1, 10**12)
    accounts = [books.open(limits) for _ in range(ACCOUNTS)]
    storm = _Storm(books, accounts, processes, threads, charges, seed=processes)
    storm.run(kills)
    assert storm.kills == kills
    assert len(storm.answers) == total
    answered = {job for job in storm.answers.values() if job is not None}
    with database.read() as session:
        keys = dict(map(tuple, session.execute(select(IdempotencyKey.key, IdempotencyKey.job_id))))
        jobs = set(session.scalars(select(Job.id)))
        debits = session.execute(
            select(Entry.job_id, func.count()).where(Entry.kind == "debit").group_by(Entry.job_id)
        ).all()
    assert {key: job for key, job in storm.answers.items() if job is not None} == keys
    assert jobs == answered
    assert len(answered) == admitted
    assert dict(map(tuple, debits)) == dict.fromkeys(jobs, ACCOUNTS)
    for account in accounts:
        assert books.account(account).mu_squared_spent == admitted * CHARGE.mu_squared
        assert books.account(account).seq == 1 + admitted
    assert books.faults() == []


@pytest.mark.few(1)
def test_kills_at_any_time_lose_no_charge_and_make_none_twice(database: Database) -> None:
    _storm(database, processes=2, threads=4, charges=20, kills=12)


@pytest.mark.prove
def test_eight_processes_charge_ten_thousand_times_each_under_kills(database: Database) -> None:
    _storm(database, processes=8, threads=4, charges=2_500, kills=100)
