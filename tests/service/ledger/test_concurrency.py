"""Many at once: a budget that admits k charges admits exactly k, from 16 threads in each of 2 processes."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, make_transient

from privest_service.database import Database
from privest_service.ledger import charges, entries
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import Charge, Limits
from privest_service.limits import WAITS
from privest_service.problems import BudgetExceeded, DatabaseUnavailable
from testing.books import Books
from testing.processes import clean, forked_with
from testing.server import HANG_GUARD, SIGNER, Server, until

pytestmark = pytest.mark.both

PROCESSES, THREADS, ATTEMPTS = 2, 16, 15
ADMITTED = 50
CHARGE = Charge(7, 3, 1000, 2)
WAITING = WAITS.each  # beyond that nobody is waited for
LIMITS = Limits("gdp", 1, 1, ADMITTED * CHARGE.mu_squared + CHARGE.mu_squared - 1, 10**6)


@pytest.fixture(scope="module", autouse=True)
def _preloaded() -> Iterator[None]:
    with forked_with(__name__):
        yield


# The mutant: reads, decides, and writes what it decided.


def _read_check_write(both_have_read: Callable[[], Any]) -> Callable[..., Entry]:
    def debit(session: Session, account_id: int, job_id: str | None, charge: Charge) -> Entry:
        account = session.execute(
            select(Account.mu_squared_spent, Account.mu_squared_limit, Account.seq, Account.head).where(
                Account.id == account_id
            )
        ).one()
        both_have_read()
        if account.mu_squared_spent + charge.mu_squared > account.mu_squared_limit:
            raise BudgetExceeded
        # Each writes an entry of its own; that two claim the same place in the chain is not what is tested.
        seq = session.execute(
            update(Account)
            .where(Account.id == account_id)
            .values(mu_squared_spent=account.mu_squared_spent + charge.mu_squared, seq=Account.seq + 1)
            .returning(Account.seq)
        ).scalar_one()
        held = session.get_one(Account, account_id, populate_existing=True)
        make_transient(held)  # what the ledger writes of it is not what is tested
        held.seq, held.head = seq - 1, account.head
        return entries.append(session, [held], "debit", job_id, None, [charge])[0]

    return debit


def _drivers_own_transactions(database: Database) -> None:
    """Let SQLite begin transactions as its driver does: at the first write, after what was read."""
    if database.is_sqlite:
        database._writer = create_engine(database.engine.url)


# Contenders


def _contend(url: str, owner: str, dataset: str, account: int, start: Any, results: Any) -> None:
    """One process: all its threads attempt charges from the same moment on."""
    database = Database(url, signer=SIGNER, pool_size=THREADS)
    books = object.__new__(Books)
    books.database, books.owner, books.dataset = database, owner, dataset
    counts: Counter[str] = Counter()

    def attempts(_: int) -> list[str]:
        start.wait()
        ended = []
        for _ in range(ATTEMPTS):
            try:
                books.reserve({account: CHARGE})
                ended.append("admitted")
            except BudgetExceeded:
                ended.append("refused")
            except Exception as error:
                ended.append(repr(error))
        return ended

    with ThreadPoolExecutor(THREADS) as pool:
        for ended in pool.map(attempts, range(THREADS)):
            counts.update(ended)
    database.close()
    results.put(counts)


def _contend_once(url: str, owner: str, dataset: str, account: int, start: Any, results: Any) -> None:
    """One process with the mutant: one attempt, whose write waits until both processes have read."""
    database = Database(url, signer=SIGNER)
    _drivers_own_transactions(database)
    debit = _read_check_write(lambda: start.wait(HANG_GUARD))
    try:
        with database.write() as session:
            debit(session, account, None, CHARGE)
        results.put("admitted")
    except Exception as error:
        results.put(repr(error))
    database.close()


def _run(target: Callable[..., None], books: Books, account: int, parties: int) -> list[Any]:
    start, results = clean.Barrier(parties), clean.Queue()
    url = books.database.engine.url.render_as_string(hide_password=False)
    given = (url, books.owner, books.dataset, account, start, results)
    processes = [clean.Process(target=target, args=given) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    found = [results.get(timeout=HANG_GUARD) for _ in processes]
    for process in processes:
        process.join(HANG_GUARD)
        assert process.exitcode == 0
    return found


def test_exactly_as_many_as_fit_are_admitted(database: Database) -> None:
    books = Books(database)
    account = books.open(LIMITS)
    counts = sum(_run(_contend, books, account, PROCESSES * THREADS), Counter())
    attempts = PROCESSES * THREADS * ATTEMPTS
    assert counts == {"admitted": ADMITTED, "refused": attempts - ADMITTED}
    found = books.account(account)
    assert (found.epsilon_spent, found.delta_spent) == (ADMITTED * 7, ADMITTED * 3)
    assert (found.mu_squared_spent, found.slack_spent) == (ADMITTED * 1000, ADMITTED * 2)
    assert found.seq == 1 + ADMITTED
    assert books.faults() == []


def test_a_read_check_write_debit_would_be_caught(database: Database) -> None:
    """The mutant overspends where its race is made certain; so the tests here can see such a defect."""
    books = Books(database)
    account = books.open(Limits("gdp", 1, 1, CHARGE.mu_squared, 10**6))  # room for one
    assert _run(_contend_once, books, account, PROCESSES) == ["admitted", "admitted"]
    with database.read() as session:
        debits = session.scalars(select(Entry).where(Entry.account_id == account, Entry.kind == "debit"))
        assert len(debits.all()) == 2
    assert books.account(account).mu_squared_spent == CHARGE.mu_squared
    assert any("spent mu_squared" in fault for fault in books.faults())


def test_opposite_orders_do_not_deadlock(database: Database) -> None:
    books = Books(database)
    limits = Limits("basic", 10**6, 10**6, 0, 0)
    one, two = books.open(limits), books.open(limits)
    start = threading.Barrier(8)

    def charge(order: tuple[int, int]) -> None:
        start.wait()
        for _ in range(20):
            books.reserve(dict.fromkeys(order, CHARGE))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(charge, [(one, two), (two, one)] * 4))
    for account in (one, two):
        assert books.account(account).epsilon_spent == 160 * CHARGE.epsilon
    assert books.faults() == []


def test_voids_and_charges_at_once_add_up(database: Database) -> None:
    books = Books(database)
    one, two = (books.open(Limits("basic", 10**6, 10**6, 0, 0)) for _ in range(2))
    jobs = [books.reserve({one: CHARGE, two: CHARGE}) for _ in range(40)]

    def void(job: str) -> bool:
        with database.write() as session:
            return charges.void(session, job)

    with ThreadPoolExecutor(8) as pool:
        voided = pool.map(void, jobs * 2)
        charged = pool.map(lambda _: books.reserve({two: CHARGE, one: CHARGE}), range(40))
        assert sum(voided) == 40
        assert len(list(charged)) == 40
    assert books.account(one).epsilon_spent == books.account(two).epsilon_spent == 40 * CHARGE.epsilon
    assert books.faults() == []


def test_identical_requests_at_once_are_one_job(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    with ThreadPoolExecutor(WAITING) as pool:
        answers = list(pool.map(lambda _: owner.estimate(dataset, key="k", reuse=False), range(WAITING)))
    assert {answer.status_code for answer in answers} == {200}, Counter(a.status_code for a in answers)
    assert len({answer.content for answer in answers}) == 1
    assert owner.budget()["queries"] == 1


def test_requests_at_once_under_keys_of_their_own_are_charged_exactly(server: Server) -> None:
    owner = server.owner(epsilon=1.0, delta=0.0, composition="basic")
    dataset = owner.dataset()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: owner.estimate(dataset, reuse=False), range(24)))
    assert Counter(answer.status_code for answer in answers) == {200: 10, 409: 14}
    assert owner.budget()["spent"]["epsilon"] == 1.0
    assert owner.budget()["queries"] == 10


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [8])
def test_two_services_on_one_postgresql_share_the_work(
    start_server: Callable[..., Server], backend: str, workers: int
) -> None:
    if backend == "sqlite":
        pytest.skip("replicas need PostgreSQL")
    one, two = start_server(), start_server()
    owner = one.owner(epsilon=1.0, delta=0.0, composition="basic")
    same = type(owner)(two, owner.id, owner.key)
    dataset = owner.dataset()
    with ThreadPoolExecutor(workers) as pool:
        answers = list(
            pool.map(
                lambda i: (owner, same)[i % 2].estimate(dataset, key=f"k{i // 2}", reuse=False), range(20)
            )
        )
    assert Counter(answer.status_code for answer in answers) == {200: 20}
    assert len({answer.json()["id"] for answer in answers}) == 10
    assert owner.budget() == same.budget()
    assert owner.budget()["queries"] == 10


# Changes of an account that is busy


def _statuses(work: Callable[[int], int], each: int, threads: int) -> Counter[int]:
    with ThreadPoolExecutor(threads) as pool:
        return Counter(pool.map(work, range(each * threads)))


def test_caps_and_budgets_of_a_busy_account_are_changed(server: Server) -> None:
    owner = server.owner(epsilon=50.0, delta=1e-4)
    dataset, analyst = owner.dataset(), server.analyst()
    owner.grant(dataset, analyst)
    stop = threading.Event()

    def charge(_: int) -> None:
        for _ in range(200):
            if stop.is_set():
                return
            analyst.estimate(dataset, epsilon=0.01, reuse=False, wait=0)

    def change(i: int) -> int:
        answers = [
            lambda: owner.patch(f"/v1/owners/{owner.id}/budget", json={"epsilon": 51.0 + i}),
            lambda: owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 40.0 + i, "delta": 1e-5}),
            lambda: owner.grant(dataset, analyst, epsilon=30.0 + i, delta=1e-5),
        ]
        # On a busy machine the database may stay locked for longer than a call waits: 503 says to ask again.
        return until(lambda: (status := answers[i % 3]().status_code) != 503 and status)

    with ThreadPoolExecutor(6) as pool:
        charging = [pool.submit(charge, i) for i in range(6)]
        found = _statuses(change, 15, 3)
        stop.set()
    for each in charging:
        each.result()
    # Of budgets at once a lower one may come after a higher one, and is refused.
    assert set(found) <= {200, 422}, found
    assert found[200] > sum(found.values()) / 2
    owner.delete(f"/v1/datasets/{dataset}")


def test_a_change_holds_what_moved_since_it_looked(database: Database) -> None:
    """A charge between a look and the lock is no reason to begin anew."""
    books = Books(database)
    account = books.open(LIMITS)
    if database.is_sqlite:
        pytest.skip("SQLite has one writer: nothing moves")
    attempts = list[int]()

    def change(session: Session) -> None:
        looked = session.get_one(Account, account)
        attempts.append(looked.seq)
        books.reserve({account: CHARGE})
        books.set_cap(session, account, Limits("gdp", 1, 1, LIMITS.mu_squared + 1, LIMITS.slack))
        assert looked in session  # what nobody holds, a session forgets

    database.run(change)
    assert attempts == [1]
    assert books.account(account).seq == 3
    assert books.faults() == []


@pytest.mark.parametrize("whole", [False, True], ids=["write", "run"])
def test_whoever_is_in_the_way_to_the_end_is_told_in_words(database: Database, whole: bool) -> None:
    books = Books(database)
    account = books.open(LIMITS)

    def work(session: Session) -> None:
        """Move the account as somebody else would, after this session has read it."""
        found = session.get_one(Account, account)
        session.execute(
            update(Account)
            .where(Account.id == account)
            .values(seq=Account.seq + 1)
            .execution_options(synchronize_session=False)
        )
        found.queries += 1
        session.flush()

    def at_once() -> None:
        with database.write() as session:
            work(session)

    with pytest.raises(DatabaseUnavailable, match="unavailable"):
        database.run(work) if whole else at_once()
    assert books.account(account).seq == 1


def test_what_a_check_refuses_is_no_reason_to_try_again(database: Database) -> None:
    books = Books(database)
    account = books.open(LIMITS)
    attempts = list[int]()

    def work(session: Session) -> None:
        attempts.append(1)
        session.execute(update(Account).where(Account.id == account).values(mu_squared_spent=-1))

    with pytest.raises(IntegrityError):
        database.run(work)
    assert attempts == [1]
