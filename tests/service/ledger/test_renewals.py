"""Budgets over time: windows that open by themselves and by rule, and what seven days may take."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from privest_service.database import Database, now
from privest_service.ledger import charges, renewals
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry, WindowRules
from privest_service.ledger.renewals import Renewal
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import PaceExceeded, WindowNotAllowed, WindowReplaced
from testing.books import Books
from testing.server import Caller, Server, problem, spd, until

MONTHLY = Renewal("month", "per-window", None, 0)


def change(owner: Caller, **body: Any) -> Any:
    """Change a budget."""
    return owner.patch(f"/v1/owners/{owner.id}/budget", json=body)


def ask(caller: Caller, dataset: str, epsilon: float) -> Any:
    """A fresh estimate at δ = 1e-7."""
    return caller.estimate(dataset, epsilon=epsilon, delta=1e-7, reuse=False)


@pytest.fixture
def behind(server: Server) -> Iterator[Database]:
    """The database of the server."""
    database = Database(server.database_url)
    yield database
    database.close()


def make_due(database: Database, owner_id: str) -> None:
    """As if the time of the next window had come just now."""
    with database.write() as session:
        due = {"due_at": now(), "began_at": now() - timedelta(days=40)}
        session.execute(update(WindowRules).where(WindowRules.owner_id == owner_id).values(**due))


# Over HTTP


def test_a_window_opens_by_itself_once_and_says_what_all_promise(server: Server, behind: Database) -> None:
    owner = server.owner(1.0, 1e-5)
    dataset = owner.dataset()
    assert owner.budget()["windows"]["every"] is None
    told = change(owner, renewal={"every": "month", "most": 12}).json()["windows"]
    first = (datetime.now(UTC).replace(day=1) + timedelta(days=32)).replace(day=1).date()
    assert datetime.fromisoformat(told["next"]).date() >= first
    assert (told["every"], told["promise"], told["most"], told["least_days"]) == (
        "month",
        "per-window",
        12,
        28,
    )
    assert told["so_far"] == {"windows": 1, "promise": {"epsilon": 1.0, "delta": 1e-5}}
    assert (told["in_all"]["windows"], told["in_a_year"]["windows"]) == (12, 12)
    assert 3.4 < told["in_all"]["promise"]["epsilon"] < 12  # as roots add up, not as plain sums do
    assert ask(owner, dataset, 0.5).status_code == 200
    change(owner, frozen=True)
    make_due(behind, owner.id)
    other = server.owner()
    change(other, renewal={"every": "week"})
    make_due(behind, other.id)
    until(lambda: other.budget()["window"] == 2)
    assert owner.budget()["window"] == 1  # frozen: not renewed until that ends
    change(owner, frozen=False)
    renewed = until(lambda: (budget := owner.budget())["window"] == 2 and budget)
    assert (renewed["spent"]["epsilon"], renewed["windows"]["so_far"]["windows"]) == (0, 2)
    assert datetime.fromisoformat(renewed["windows"]["next"]).date() >= first
    # The window counts from the first of the month, which on the 29th was 28 days ago.
    change(owner, renewal={"every": "month", "most": 12, "least_days": 31})
    refused = problem(change(owner, window="new"), 409, "window-not-allowed")
    assert "31 days after" in refused["detail"]
    assert change(owner, renewal={"least_days": 0, "most": 3}).json()["windows"]["next"] is None
    assert change(owner, window="new", replaces=2).json()["window"] == 3
    refused = problem(change(owner, window="new"), 409, "window-not-allowed")
    assert refused["detail"] == "There may be 3 windows of this budget, and this is the last."
    problem(change(owner, renewal={"most": 2}), 422, "invalid")
    for wrong in ({"every": "day"}, {"most": 0}, {"least_days": -1}, {"promise": "ever"}, "month", {"x": 1}):
        problem(change(owner, renewal=wrong), 422, "invalid")
    assert owner.budget()["window"] == 3


@pytest.mark.parametrize("composition", ["gdp", "basic"])
def test_a_promise_for_a_lifetime_is_divided_and_stays(server: Server, composition: str) -> None:
    owner = server.owner(3.0, 1e-4, composition)
    dataset = owner.dataset()
    problem(change(owner, renewal={"promise": "lifetime"}), 422, "invalid")
    told = change(owner, renewal={"promise": "lifetime", "most": 3}).json()
    assert told["windows"]["in_all"] == {"windows": 3, "promise": {"epsilon": 3.0, "delta": 1e-4}}
    assert told["limit"]["epsilon"] < 2.5
    assert told["remaining"]["epsilon"] == pytest.approx(1.0, rel=1e-6) or composition == "gdp"
    each = told["remaining"]["epsilon"] * 0.98
    for window in (1, 2, 3):
        assert owner.budget()["window"] == window
        assert ask(owner, dataset, each).status_code == 200
        problem(ask(owner, dataset, each), 409, "budget-exceeded")
        assert change(owner, window="new").status_code == (200 if window < 3 else 409)
    found = owner.budget()["windows"]["so_far"]["promise"]
    assert found["epsilon"] <= 3.0 * (1 + 1e-9)
    assert found["delta"] <= 1e-4
    for wrong in (
        {"epsilon": 4.0},
        {"renewal": {"most": 4, "promise": "lifetime"}},
        {"renewal": {"every": "month"}},
    ):
        problem(change(owner, **wrong), 422, "invalid")
    assert change(owner, renewal={"promise": "lifetime", "most": 3, "every": "year"}).status_code == 200


def test_an_owner_is_made_with_its_rules(server: Server) -> None:
    rules = {"every": "quarter", "promise": "lifetime", "most": 4}
    budget = {"epsilon": 2.0, "delta": 1e-5, "composition": "basic", "renewal": rules, "pace": 0.5}
    made = server.admin.post("/v1/owners", json={"name": "An owner", "budget": budget}).json()
    told = Caller(server, made["id"], made["key"]).budget()
    windows = told["windows"]
    assert (told["limit"]["epsilon"], windows["every"], windows["pace"]) == (0.5, "quarter", 0.5)
    refused = {**budget, "renewal": {"promise": "lifetime"}}
    problem(server.admin.post("/v1/owners", json={"name": "None", "budget": refused}), 422, "invalid")


def test_a_promise_for_a_lifetime_comes_too_late(server: Server) -> None:
    spent, renewed = server.owner(), server.owner()
    assert ask(spent, spent.dataset(), 0.9).status_code == 200
    refused = problem(change(spent, renewal={"promise": "lifetime", "most": 12}), 422, "invalid")
    assert "is spent already" in refused["detail"]
    change(renewed, window="new")
    problem(change(renewed, renewal={"promise": "lifetime", "most": 12}), 422, "invalid")
    assert spent.budget()["limit"]["epsilon"] == 1.0
    assert spent.budget()["windows"]["promise"] == "per-window"


def test_a_pace_refuses_what_the_window_covers_and_analysts_are_told_nothing(server: Server) -> None:
    owner, analyst = server.owner(1.0, 1e-4, "basic"), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    change(owner, pace=0.25)
    assert ask(owner, dataset, 0.2).status_code == 200
    told = owner.budget()["windows"]
    assert (told["pace"], told["paced_left"]) == (0.25, pytest.approx(0.05))
    refused = problem(ask(owner, dataset, 0.1), 409, "pace-exceeded")
    assert refused["scope"] == "owner"
    assert refused["detail"].startswith("Seven days may take 25 % of a window's budget.")
    answers = {ask(analyst, dataset, epsilon).content for epsilon in (0.1, 0.9)}  # by the pace, by the sum
    change(owner, frozen=True)
    answers.add(ask(analyst, dataset, 0.01).content)
    assert len(answers) == 1
    change(owner, frozen=False)
    assert ask(analyst, dataset, 0.05).status_code == 200
    assert change(owner, pace=1).json()["windows"]["pace"] is None
    assert ask(owner, dataset, 0.7).status_code == 200
    for wrong in (0, 1.1, "1", -0.5):
        problem(change(owner, pace=wrong), 422, "invalid")


def test_a_question_on_several_datasets_is_refused_by_any_pace(server: Server) -> None:
    owners, analyst = [server.owner(1.0, 1e-4, "basic") for _ in range(2)], server.analyst()
    about = [{"id": owner.dataset(spd(60, seed=4 + i))} for i, owner in enumerate(owners)]
    for owner, dataset in zip(owners, about, strict=True):
        owner.grant(dataset["id"], analyst)
    change(owners[1], pace=0.05)
    refused = analyst.post(
        "/v1/estimates/frechet-mean",
        headers={"Idempotency-Key": "both, too fast"},
        json={"dataset": about, "privacy": {"epsilon": 0.1, "delta": 1e-6}},
    )
    assert "scope" not in problem(refused, 409, "budget-exceeded")
    assert [owner.budget()["queries"] for owner in owners] == [0, 0]


def test_datasets_of_one_owner_share_its_pace(server: Server) -> None:
    """A question on three of them took three times what seven days may take, each part being small enough."""
    owner = server.owner(1.0, 1e-4, "basic")
    about = [{"id": owner.dataset(spd(60, seed=4 + i))} for i in range(3)]
    change(owner, pace=0.25)

    def asked(*about: dict[str, str]) -> Any:
        return owner.post(
            "/v1/estimates/frechet-mean",
            headers={"Idempotency-Key": f"{len(about)} datasets", "Prefer": "wait=60"},
            json={"dataset": list(about), "privacy": {"epsilon": 0.1, "delta": 1e-6}},
        )

    problem(asked(*about), 409, "pace-exceeded")
    assert owner.budget()["queries"] == 0
    assert asked(*about[:2]).status_code == 200
    assert owner.budget()["windows"]["paced_left"] == pytest.approx(0.05)


# Without HTTP


def rule(books: Books, renewal: Renewal) -> None:
    """Set the rules of an owner's windows."""
    with books.database.write() as session:
        renewals.set_renewal(session, books.owner, renewal)


def test_seven_days_slide(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    books, started = Books(database), now()
    with database.write() as session:
        number = ledger.owner_account(session, books.owner).id
        ledger.raise_limits(session, number, Limits("basic", 1000, 1000, 0, 0))
        renewals.set_pace(session, books.owner, 0.1)
    for days, amount, fits in [
        (0, 60, True),
        (3, 40, True),
        (6.9, 1, False),
        (7.1, 60, True),
        (9.9, 1, False),
        (10.1, 41, False),
        (10.1, 40, True),
        (40, 101, False),
        (40, 100, True),
        (41, None, True),  # a new window: around its beginning two shares were to be had
        (46.9, 1, False),
        (47.1, 100, True),
    ]:
        for module in ("charges", "entries"):
            moment = started + timedelta(days=days)
            monkeypatch.setattr(f"privest_service.ledger.{module}.now", lambda moment=moment: moment)
        if amount is None:
            with database.write() as session:
                number = ledger.open_window(session, books.owner).id
        elif fits:
            books.reserve({number: Charge(amount, 1, 0, 0)})
        else:
            with pytest.raises(PaceExceeded):
                books.reserve({number: Charge(amount, 1, 0, 0)})
    assert not books.faults()


def test_what_is_given_back_of_earlier_days_makes_no_room_in_these_seven(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A void of an old charge was subtracted from what the last days took, which then could take more."""
    books, started = Books(database), now()

    def at(days: float) -> None:
        for module in ("charges", "entries"):
            monkeypatch.setattr(
                f"privest_service.ledger.{module}.now", lambda: started + timedelta(days=days)
            )

    with database.write() as session:
        number = ledger.owner_account(session, books.owner).id
        ledger.raise_limits(session, number, Limits("basic", 1000, 1000, 0, 0))
        renewals.set_pace(session, books.owner, 0.1)
    at(0)
    old = books.reserve({number: Charge(70, 1, 0, 0)})
    at(8)
    new = books.reserve({number: Charge(60, 1, 0, 0)})
    with database.write() as session:
        assert charges.void(session, old)
    with pytest.raises(PaceExceeded):
        books.reserve({number: Charge(41, 1, 0, 0)})
    with database.write() as session:
        assert charges.void(session, new)  # this one is of these seven days
    with pytest.raises(PaceExceeded):
        books.reserve({number: Charge(101, 1, 0, 0)})
    books.reserve({number: Charge(100, 1, 0, 0)})
    assert not books.faults()


def test_a_window_that_many_see_due_opens_once_and_every_charge_is_in_one(
    database: Database, database_url: str
) -> None:
    """Replicas that look, charges, and somebody who renews by hand, at the same time."""
    books = Books(database)
    with database.write() as session:
        number = ledger.owner_account(session, books.owner).id
        ledger.raise_limits(session, number, Limits("basic", 10**6, 10**6, 0, 0))
    rule(books, MONTHLY)
    others = [Database(database_url, signer=database._info["signer"]) for _ in range(3)]

    def charge(_: int) -> int:
        def run(session: Any) -> int:
            owner = ledger.held_owner(session, books.owner)
            (account,) = ledger.accounts_in_force(session, owner, lock=True)
            books.reserve_in(session, {account.id: Charge(1, 1, 0, 0)})
            return account.window

        return database.run(run)

    def by_hand(other: Database) -> None:
        with suppress(WindowReplaced):  # another was first
            other.run(lambda session: ledger.open_window(session, books.owner, 1).window)

    make_due(database, books.owner)
    with ThreadPoolExecutor(10) as pool:
        charged = pool.map(charge, range(60))
        looks = [pool.submit(renewals.open_due, other) for other in others for _ in range(4)]
        renewed = pool.submit(by_hand, others[0])
        windows = list(charged)
        assert not any(look.result() for look in looks)
        renewed.result()
    with database.read() as session:
        accounts = session.scalars(
            select(Account).where(Account.owner_id == books.owner).order_by(Account.window)
        ).all()
        assert [account.window for account in accounts] == [1, 2]
        assert [account.epsilon_spent for account in accounts] == [windows.count(1), windows.count(2)]
        ends = [
            session.scalars(select(Entry.at).where(Entry.account_id == each.id).order_by(Entry.seq)).all()
            for each in accounts
        ]
        assert ends[0][-1] <= ends[1][0]  # none was charged to a window that was over
    assert not books.faults()
    for other in others:
        other.close()


def test_a_kill_between_the_look_and_the_commit_leaves_the_old_window(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(database)
    rule(books, MONTHLY)
    make_due(database, books.owner)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("privest_service.ledger.windows.begin", killed)
        with pytest.raises(KeyboardInterrupt):
            renewals.open_due(database)
    with database.read() as session:
        assert ledger.owner_account(session, books.owner).window == 1
    renewals.open_due(database)
    renewals.open_due(database)
    with database.read() as session:
        assert ledger.owner_account(session, books.owner).window == 2
    assert not books.faults()


def test_a_restored_budget_with_a_number_of_windows_gets_none(database: Database) -> None:
    """Windows that were opened since the backup may have been the last."""
    books = Books(database)
    rule(books, Renewal("month", "per-window", 12, None))
    with database.write() as session:
        ledger.lose(session, books.owner)
        ledger.set_frozen(session, books.owner, False, by="owner")
    renewals.open_due(database)
    with database.write() as session, pytest.raises(WindowNotAllowed):
        ledger.open_window(session, books.owner)
