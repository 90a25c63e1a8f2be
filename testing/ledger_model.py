"""The ledger as integers of Python: hypothesis moves it, and the real one must say the same."""

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from privest_service.jobs import service as jobs
from privest_service.ledger import charges as debits
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid
from testing.books import Books
from testing.claims import claim_next


def gdp(mu_squared: int, slack: int = 0) -> Limits:
    """Limits of a budget in Gaussian privacy, in units."""
    return Limits("gdp", 1, 1, mu_squared, slack)


def basic(epsilon: int, delta: int = 0) -> Limits:
    """Limits of a budget of sums, in units."""
    return Limits("basic", epsilon, delta, 0, 0)


class LedgerModel(RuleBasedStateMachine):
    """Accounts as Python integers; every refusal and every sum must be what they say."""

    books: Books

    @initialize(
        accounts=st.lists(
            st.tuples(st.sampled_from(["gdp", "basic"]), st.integers(0, 100), st.integers(0, 10)),
            min_size=1,
            max_size=4,
        )
    )
    def open(self, accounts: list[tuple[str, int, int]]) -> None:
        self.limits = {}
        for composition, loss, probability in accounts:
            limits = gdp(loss, probability) if composition == "gdp" else basic(loss, probability)
            self.limits[self.books.open(limits)] = limits
        self.spent: dict[int, tuple[int, ...]] = dict.fromkeys(self.limits, (0, 0, 0, 0))
        self.unknown: set[tuple[int, int]] = set()
        """Accounts with those of their sums that reached the cap once."""
        self.frozen_by: str | None = None
        self.reserved: dict[str, dict[int, Charge]] = {}
        self.claimed: list[str] = []
        self.moves = dict.fromkeys(self.limits, 1)

    @property
    def in_force(self) -> list[int]:
        """Accounts whose limits may be changed: of the present window."""
        return list(self.limits)

    def _fits(self, account: int, charge: Charge) -> bool:
        limits, spent = self.limits[account], self.spent[account]
        if limits.composition == "gdp":
            return (
                spent[2] + charge.mu_squared <= limits.mu_squared and spent[3] + charge.slack <= limits.slack
            )
        return spent[0] + charge.epsilon <= limits.epsilon and spent[1] + charge.delta <= limits.delta

    def _add(self, account: int, charge: Charge) -> None:
        amounts = (charge.epsilon, charge.delta, charge.mu_squared, charge.slack)
        self.spent[account] = tuple(a + b for a, b in zip(self.spent[account], amounts, strict=True))
        self.unknown |= {(account, i) for i, sum_ in enumerate(self.spent[account]) if sum_ >= 2**62}
        self.moves[account] += 1

    def _told(self, account: int) -> tuple[int, ...]:
        return tuple(2**62 if (account, i) in self.unknown else x for i, x in enumerate(self.spent[account]))

    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(list(self.limits)), unique=True, min_size=1))
        amount = st.builds(
            Charge, *[st.integers(0, 40) if i % 2 == 0 else st.integers(0, 4) for i in range(4)]
        )
        charges = {account: data.draw(amount) for account in chosen}
        if data.draw(st.booleans()):  # as large as a charge can be, in what is not limited
            for account, charge in charges.items():
                most = {"mu_squared": 2**61, "slack": 2**61}
                if self.limits[account].composition == "gdp":
                    most = {"epsilon": 2**61, "delta": 2**61}
                charges[account] = replace(charge, **most)
        refused = next(
            (
                BudgetExceeded
                for account in charges
                if not self._fits(account, charges[account])  # own caps, which come before freezes
            ),
            AccountFrozen if self.frozen_by else None,
        )
        if refused:
            with pytest.raises(refused):
                self.books.reserve(charges)
            return
        self.reserved[self.books.reserve(charges)] = charges
        for account, charge in charges.items():
            self._add(account, charge)

    @rule()
    def claim(self) -> None:
        with self.books.database.write() as session:
            job = claim_next(session, timedelta(hours=1))
        expected = None if self.frozen_by else next(iter(self.reserved), None)
        assert (job.id if job else None) == expected
        if expected:
            del self.reserved[expected]
            self.claimed.append(expected)

    @precondition(lambda self: self.claimed)
    @rule(committed=st.booleans(), data=st.data())
    def end(self, committed: bool, data: st.DataObject) -> None:
        job = self.claimed.pop(data.draw(st.integers(0, len(self.claimed) - 1)))
        with self.books.database.write() as session:
            assert not debits.void(session, job)
            assert debits.commit(session, job, "{}") if committed else jobs.fail(session, job)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def void(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.reserved)))
        with self.books.database.write() as session:
            assert debits.void(session, job)
        for account, charge in self.reserved.pop(job).items():
            self._add(account, -charge)

    @rule(data=st.data(), more=st.integers(-5, 30))
    def raise_limit(self, data: st.DataObject, more: int) -> None:
        account = data.draw(st.sampled_from(self.in_force))
        old = self.limits[account]
        new = Limits(
            old.composition,
            old.epsilon + (more if old.composition == "basic" else 0),
            old.delta,
            old.mu_squared + (more if old.composition == "gdp" else 0),
            old.slack,
        )
        with self.books.database.write() as session:
            if more < 0:
                with pytest.raises(Invalid):
                    ledger.raise_limits(session, account, new)
                return
            # These are caps, not an owner's budget, whose changes are acts.
            self.moves[account] += self.books.set_cap(session, account, new)
        self.limits[account] = new

    @rule(frozen=st.booleans(), by=st.sampled_from(["owner", "owner", "admin"]))
    def freeze(self, frozen: bool, by: Literal["owner", "admin"]) -> None:
        with self.books.database.write() as session:
            if self.frozen_by == "admin" and by == "owner" and not frozen:
                with pytest.raises(AccountFrozen):
                    ledger.set_frozen(session, self.books.owner, frozen, by=by)
                return
            ledger.set_frozen(session, self.books.owner, frozen, by=by)
        before = {"both": {"owner", "admin"}, None: set[str]()}.get(self.frozen_by, {str(self.frozen_by)})
        after = before | {by} if frozen else before - {by} if len(before) == 2 else set[str]()
        self.frozen_by = "both" if len(after) == 2 else next(iter(after), None)

    @invariant()
    def agrees(self) -> None:
        for account in self.spent:
            found = self.books.account(account)
            assert self._told(account) == (
                found.epsilon_spent,
                found.delta_spent,
                found.mu_squared_spent,
                found.slack_spent,
            )
            assert found.seq == self.moves[account]
            assert found.frozen_by == self.frozen_by
            assert ledger.limits_of(found) == self.limits[account]

    def teardown(self) -> None:
        with self.books.database.write() as session:
            for job in self.reserved:  # the queue is the database's, and the next example starts empty
                debits.void(session, job)
            for each in ("admin", "owner"):
                ledger.set_frozen(session, self.books.owner, False, by=each)
        assert self.books.faults() == []
