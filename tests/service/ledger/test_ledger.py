"""The ledger itself: arithmetic of charges, rounding, limits, and a verifier that misses no forgery."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf

import mpmath
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.orm import Session

from privest.privacy.accounting import Cost, PrivacyTarget
from privest_service.database import Database
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges, views
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import EPSILON, INFORMATIVE_CAP, MU_SQUARED, PROBABILITY, Charge, Limits
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid
from testing.books import Books, tenth
from testing.claims import claim_next
from testing.ledger_model import LedgerModel, basic, gdp


@pytest.fixture
def books(database: Database) -> Books:
    return Books(database)


# Arithmetic


@pytest.mark.parametrize(
    ("limits", "charge"),
    [
        (gdp(100, 5), Charge(10**12, 10**12, 40, 2)),
        (basic(100, 5), Charge(40, 2, 10**12, 10**12)),
    ],
    ids=["gdp", "basic"],
)
def test_an_account_is_held_to_both_sums_of_its_own_currency(
    books: Books, limits: Limits, charge: Charge
) -> None:
    account = books.open(limits)
    first, _ = (books.reserve({account: charge}) for _ in range(2))
    with pytest.raises(BudgetExceeded):
        books.reserve({account: charge})
    with books.database.write() as session:
        assert charges.void(session, first)
        assert not charges.void(session, first)
    books.reserve({account: charge})
    found = books.account(account)
    assert (found.epsilon_spent, found.delta_spent) == (2 * charge.epsilon, 2 * charge.delta)
    assert (found.mu_squared_spent, found.slack_spent) == (2 * charge.mu_squared, 2 * charge.slack)
    assert found.seq == 5
    assert books.faults() == []


@pytest.mark.parametrize("over", [Charge(1, 1, 101, 0), Charge(1, 1, 0, 6)])
def test_either_sum_refuses(books: Books, over: Charge) -> None:
    account = books.open(gdp(100, 5))
    with pytest.raises(BudgetExceeded):
        books.reserve({account: over})
    books.reserve({account: Charge(10**18, 10**17, 100, 5)})


def test_a_reservation_is_all_or_nothing(books: Books) -> None:
    rich, poor = books.open(gdp(100)), books.open(gdp(10))
    for asked in ({rich: Charge(1, 1, 11, 0), poor: Charge(1, 1, 11, 0)},):
        with pytest.raises(BudgetExceeded):
            books.reserve(asked)
    with books.database.read() as session:
        assert session.query(Job).count() == 0
        assert session.execute(text("SELECT count(*) FROM idempotency_keys")).scalar() == 0
        assert session.execute(text("SELECT count(*) FROM job_transitions")).scalar() == 0
    assert [books.account(account).mu_squared_spent for account in (rich, poor)] == [0, 0]
    assert books.faults() == []


def test_accounts_of_a_frozen_owner_are_not_debited(books: Books) -> None:
    account = books.open(gdp(100))
    for frozen in (True, False):
        with books.database.write() as session:
            ledger.set_frozen(session, books.owner, frozen, by="owner")
        if frozen:
            with pytest.raises(AccountFrozen):
                books.reserve({account: Charge(1, 1, 1, 0)})
    books.reserve({account: Charge(1, 1, 1, 0)})


def test_limits_rise_and_never_fall(books: Books) -> None:
    def limits(epsilon: int, delta: int) -> Limits:
        return Limits("basic", epsilon, delta, 0, 0)

    with books.database.write() as session:
        account = ledger.owner_account(session, books.owner).id
        ledger.raise_limits(session, account, limits(100, 5))
    books.reserve({account: Charge(100, 5, 1, 1)})
    for lower in (limits(99, 5), limits(200, 4)):
        with pytest.raises(Invalid), books.database.write() as session:
            ledger.raise_limits(session, account, lower)
    with books.database.write() as session:
        ledger.raise_limits(session, account, limits(101, 5))
    books.reserve({account: Charge(1, 0, 1, 1)})
    with pytest.raises(BudgetExceeded):
        books.reserve({account: Charge(1, 0, 1, 1)})
    assert books.faults() == []


def test_a_claim_is_final(books: Books) -> None:
    account = books.open(gdp(100))
    reserved = [books.reserve({account: Charge(1, 1, 10, 0)}) for _ in range(3)]
    with books.database.write() as session:
        claimed = [claim_next(session, timedelta(hours=1)) for _ in range(2)]
        assert [job.id for job in claimed if job] == reserved[:2]
        assert not charges.void(session, reserved[0])
        assert charges.commit(session, reserved[0], "{}")
        assert jobs.fail(session, reserved[1])
        # Every further move is refused.
        for job in reserved[:2]:
            assert not charges.commit(session, job, "{}")
            assert not jobs.fail(session, job)
            assert not charges.void(session, job)
        assert not jobs.fail(session, reserved[2])
        assert not charges.commit(session, reserved[2], "{}")
    assert books.account(account).mu_squared_spent == 30


def test_the_largest_charges_do_not_overflow(books: Books) -> None:
    most = 2**61
    account = books.open(basic(10, 10))
    for _ in range(3):
        books.reserve({account: Charge(1, 1, most, most)})
    assert books.account(account).mu_squared_spent == INFORMATIVE_CAP
    with pytest.raises(BudgetExceeded):
        books.reserve({account: Charge(most, most, most, most)})
    assert books.faults() == []


def test_a_sum_that_is_not_known_any_more_stays_what_it_is_at_least(books: Books) -> None:
    most = 2**61
    account = books.open(basic(10, 10))
    jobs = [books.reserve({account: Charge(1, 1, most, 5)}) for _ in range(4)]
    for left, job in zip((3, 2, 1, 0), jobs, strict=True):
        with books.database.write() as session:
            assert charges.void(session, job)
        found = books.account(account)
        assert (found.epsilon_spent, found.delta_spent, found.slack_spent) == (left, left, 5 * left)
        assert found.mu_squared_spent == INFORMATIVE_CAP
    assert books.faults() == []


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("epsilon", "admitted"), [(1.0, 121), (2.0, 424), (3.0, 874)])
def test_how_many_queries_a_gdp_budget_admits(books: Books, epsilon: float, admitted: int) -> None:
    """targets.md: exact Gaussian composition, less the slack share."""
    charge, account = tenth(), books.open(Limits.of(epsilon, 1e-5, "gdp"))
    with books.database.write() as session:
        for _ in range(admitted):
            books.reserve_in(session, {account: charge})
    with pytest.raises(BudgetExceeded), books.database.write() as session:
        books.reserve_in(session, {account: charge})
    found = books.account(account)
    assert found.mu_squared_spent == admitted * charge.mu_squared
    with books.database.read() as session:
        budget = views.budget(session.get_one(Account, account))
    assert budget.queries == admitted
    assert budget.spent.epsilon <= epsilon
    assert budget.remaining.epsilon < 0.1
    assert books.faults() == []


@pytest.mark.parametrize(("epsilon", "admitted"), [(1.0, 10), (2.0, 20), (3.0, 30)])
def test_how_many_queries_a_basic_budget_admits(books: Books, epsilon: float, admitted: int) -> None:
    charge, account = tenth(), books.open(Limits.of(epsilon, 1e-5, "basic"))
    for _ in range(admitted):
        books.reserve({account: charge})
    with pytest.raises(BudgetExceeded):
        books.reserve({account: charge})
    assert books.account(account).epsilon_spent == books.account(account).epsilon_limit


# The chain


FORGED_FIELDS: dict[str, tuple[str, str]] = {
    "account_id": ("(SELECT min(id) FROM accounts WHERE id <> :a), seq = 99", "does not end"),
    "seq": ("99", "does not follow"),
    "kind": ("'void'", "entry 3 was changed"),
    "job_id": ("NULL", "entry 3 was changed"),
    "mechanism": ("NULL", "entry 3 was changed"),
    "epsilon": ("epsilon + 1", "entry 3 was changed"),
    "delta": ("delta + 1", "entry 3 was changed"),
    "mu_squared": ("mu_squared + 1", "entry 3 was changed"),
    "slack": ("slack + 1", "entry 3 was changed"),
    "epsilon_spent": ("0", "entry 3 does not bear the sums of its chain"),
    "delta_spent": ("0", "entry 3 does not bear the sums of its chain"),
    "mu_squared_spent": ("0", "entry 3 does not bear the sums of its chain"),
    "slack_spent": ("1", "entry 3 does not bear the sums of its chain"),
    "queries": ("9", "entry 3 does not bear the sums of its chain"),
    "at": ("(SELECT max(at) FROM entries)", "entry 3 was changed"),
    "prev": ("'x'", "entry 3 was changed"),
    "hash": ("'x'", "entry 3 was changed"),
    "signer": ("'x'", "entry 3 is signed with a key that was not given"),
    "signature": ("'x'", "entry 3 has no true signature"),
}
"""A false value of each column of an entry, in SQL, and what the verifier reports."""

FORGERIES: dict[str, tuple[str, str]] = {
    column: (f"UPDATE entries SET {column} = {value} WHERE account_id = :a AND seq = 3", words)  # noqa: S608
    for column, (value, words) in FORGED_FIELDS.items()
} | {
    "place": ("UPDATE entries SET seq = 99 WHERE account_id = :a AND seq = 4", "does not follow"),
    "removed": ("DELETE FROM entries WHERE account_id = :a AND seq = 3", "does not follow"),
    "last removed": ("DELETE FROM entries WHERE account_id = :a AND seq = 4", "does not end"),
    "first removed": ("DELETE FROM entries WHERE account_id = :a AND seq = 1", "does not follow"),
    "all removed": ("DELETE FROM entries WHERE account_id = :a", "does not end"),
    "sum": ("UPDATE accounts SET mu_squared_spent = 0 WHERE id = :a", "spent mu_squared"),
    "other sum": ("UPDATE accounts SET epsilon_spent = 0 WHERE id = :a", "spent epsilon"),
    "limit": ("UPDATE accounts SET mu_squared_limit = 1000 WHERE id = :a", "limit of mu_squared"),
    "queries": ("UPDATE accounts SET queries = 0 WHERE id = :a", "number of queries"),
    "head": ("UPDATE accounts SET head = 'x' WHERE id = :a", "does not end"),
    "length": ("UPDATE accounts SET seq = 9 WHERE id = :a", "does not end"),
}


def disarm(session: Session) -> None:
    """Take away what keeps entries as they are, as somebody with the database in hand could."""
    if session.get_bind().dialect.name == "sqlite":
        for action in ("update", "delete"):
            session.execute(text(f"DROP TRIGGER entries_no_{action}"))
    else:
        session.execute(text("ALTER TABLE entries DISABLE TRIGGER ALL"))
        session.execute(text("GRANT UPDATE, DELETE ON entries TO CURRENT_USER"))


def test_every_column_of_an_entry_is_forged_below() -> None:
    assert [*FORGED_FIELDS] == Entry.__table__.columns.keys()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_the_verifier_sees(books: Books, forgery: str) -> None:
    account, other = books.open(gdp(100)), books.open(gdp(100))
    for target in (account, other):
        for _ in range(3):
            books.reserve({target: Charge(1, 1, 10, 0)})
    assert books.faults() == []
    command, words = FORGERIES[forgery]
    with books.database.write() as session:
        disarm(session)
        assert session.execute(text(command), {"a": account}).rowcount >= 1  # pyright: ignore
    faults = books.faults()
    assert any(words in fault for fault in faults), faults
    of_all = "the heads are not the ends of all chains"
    theirs = (f"account {account}", f"the cap of everybody on {books.account(account).subject}")
    if forgery != "account_id":  # which moves the entry to another chain, and so breaks two
        assert all(any(of in fault for of in theirs) for fault in faults if fault != of_all), faults


def test_the_database_itself_refuses_what_is_over_a_limit(books: Books) -> None:
    from sqlalchemy.exc import IntegrityError

    account = books.open(gdp(100))
    for change in ("mu_squared_spent = 101", "mu_squared_spent = -1", "slack_spent = 1"):
        with pytest.raises(IntegrityError), books.database.write() as session:
            session.execute(text(f"UPDATE accounts SET {change} WHERE id = {account}"))  # noqa: S608


# Against a model of integers


@pytest.mark.few(1)
def test_the_ledger_is_a_model_of_integers(books: Books) -> None:
    class OnThisDatabase(LedgerModel):
        pass

    OnThisDatabase.books = books
    OnThisDatabase.TestCase.settings = settings(
        max_examples=15,
        stateful_step_count=25,
        database=None,
        phases=[Phase.generate],  # each step is a transaction: shrinking takes minutes
        suppress_health_check=list(HealthCheck),
    )
    OnThisDatabase.TestCase("runTest").runTest()


# Units


_amounts = st.floats(0, 1e6, allow_nan=False)
_probabilities = st.floats(0, 1, exclude_max=True)


@given(epsilon=st.floats(0, 1e6, exclude_min=True), delta=_probabilities, mu=_amounts, slack=_probabilities)
def test_costs_are_rounded_up_by_less_than_a_unit(
    epsilon: float, delta: float, mu: float, slack: float
) -> None:
    charge = Charge.of(PrivacyTarget(epsilon, delta), Cost(mu, slack))
    # As requested: the decimal that was written. As certified: the float's exact value.
    for units, exact, per_one in (
        (charge.epsilon, Fraction(repr(epsilon)), EPSILON),
        (charge.delta, Fraction(repr(delta)), PROBABILITY),
        (charge.mu_squared, Fraction(mu), MU_SQUARED),
        (charge.slack, Fraction(slack), PROBABILITY),
    ):
        assert 0 <= units - exact * per_one < 1


@given(cost=st.floats(3e6, 1e300))
def test_huge_costs_stay_huge(cost: float) -> None:
    charge = Charge.of(PrivacyTarget(cost, 0.0), Cost(cost, 0.0))
    most = Limits.of(1e6, 0.9, "gdp").mu_squared
    assert most < charge.mu_squared < 2**62
    assert charge.epsilon >= min(int(cost) * EPSILON, 2**61)


@given(epsilon=st.floats(1e-9, 1e6), delta=_probabilities)
def test_limits_are_rounded_down_by_less_than_a_unit(epsilon: float, delta: float) -> None:
    limits = Limits.of(epsilon, delta, "basic")
    assert 0 <= Fraction(repr(epsilon)) * EPSILON - limits.epsilon < 1
    assert 0 <= Fraction(repr(delta)) * PROBABILITY - limits.delta < 1
    assert (
        Limits.of(Decimal(limits.epsilon) / EPSILON, Decimal(limits.delta) / PROBABILITY, "basic") == limits
    )


def _delta(epsilon: mpmath.mpf, mu: mpmath.mpf) -> mpmath.mpf:
    """δ_Gμ(ε), as Dong, Roth and Su write it."""
    return mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


@settings(max_examples=60)
@given(epsilon=st.floats(1e-3, 20), exponent=st.floats(-12, -1))
def test_gdp_limits_are_the_largest_safe_ones(epsilon: float, exponent: float) -> None:
    delta = 10.0**exponent
    limits = Limits.of(epsilon, delta, "gdp")
    assert limits.slack == limits.delta // 10
    with mpmath.workdps(60):
        room = mpmath.mpf(limits.delta - limits.slack) / PROBABILITY
        exact = mpmath.mpf(limits.epsilon) / EPSILON

        def at(mu_squared: float) -> mpmath.mpf:
            return _delta(exact, mpmath.sqrt(mpmath.mpf(mu_squared) / MU_SQUARED))

        assert at(limits.mu_squared) <= room
        assert at(limits.mu_squared * (1 + mpmath.mpf("3e-9")) + 1) > room


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limits.of(0.0, 0.1, "gdp"),
        lambda: Limits.of(-1.0, 0.1, "basic"),
        lambda: Limits.of(1.0, 1.0, "gdp"),
        lambda: Limits.of(1.0, -0.1, "basic"),
        lambda: Limits.of(1.0, 0.0, "gdp"),
        lambda: Limits.of(1e-10, 0.0, "basic"),
        lambda: Limits.of(1e-9, 1e-17, "gdp"),
        lambda: Limits.of(float("nan"), 0.1, "basic"),
        lambda: Limits.of(inf, 0.1, "basic"),
        lambda: Limits.of(1.0, float("nan"), "gdp"),
    ],
)
def test_budgets_that_are_none(make: Callable[[], Limits]) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        make()


@pytest.mark.parametrize("delta", [0.0, 1e-30, 9e-18])
def test_a_delta_that_is_too_small_for_gdp_is_refused_with_the_least_one(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be at least 1e-17 in a gdp budget"):
        Limits.of(1.0, delta, "gdp")
    assert Limits.of(1.0, 1e-17, "gdp").delta == 10
