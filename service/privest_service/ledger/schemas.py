"""Requests and answers about budgets and entries."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from privest_service.inputs import Input
from privest_service.ledger.units import Composition, Limits

Epsilon = Annotated[float, Field(gt=0, le=1e6, description="ε, above 0")]
Delta = Annotated[float, Field(ge=0, lt=1, description="δ, from 0 to below 1")]


class NewBudget(Input):
    """All that may ever be spent: (ε, δ) under replacement of one record."""

    epsilon: Epsilon
    delta: Delta
    composition: Composition = "gdp"

    def limits(self) -> Limits:
        """The limits as the ledger counts them."""
        return Limits.of(self.epsilon, self.delta, self.composition)

    @model_validator(mode="after")
    def _has_room(self) -> "NewBudget":
        self.limits()
        return self


class BudgetChange(Input):
    """A higher limit, a freeze, its end, or a new window; what is left out stays as it is."""

    epsilon: Epsilon | None = None
    delta: Delta | None = None
    frozen: bool | None = None
    window: Annotated[
        Literal["new"] | None,
        Field(description="renew the budget: accounts with nothing spent, and a promise of their own"),
    ] = None
    replaces: Annotated[
        int | None,
        Field(
            ge=1,
            lt=2**31,
            description="the window that the new one replaces: a request that is sent twice opens one, and "
            "is then refused with 409, which names the present window",
        ),
    ] = None

    @model_validator(mode="after")
    def _replaces_with_something(self) -> "BudgetChange":
        if self.replaces is not None and self.window is None:
            raise ValueError('must have "window": "new" where it has replaces')
        return self


class Amount(BaseModel):
    """(ε, δ)."""

    epsilon: float
    delta: float


class Spent(Amount):
    """(ε, δ) that all charges together guarantee; for gdp budgets with μ and slack behind it."""

    mu: float
    slack: float


class Budget(BaseModel):
    """The state of a budget."""

    composition: Composition
    window: Annotated[int, Field(description="counted from 1; each promises (ε, δ) for itself")]
    frozen: bool
    frozen_by: Annotated[
        Literal["owner", "admin", "both"] | None,
        Field(description="who froze it; an administrator alone ends an administrator's freeze"),
    ] = None
    limit: Amount
    spent: Annotated[Spent, Field(description="for gdp: the least ε that all charges guarantee at δ")]
    remaining: Annotated[Amount, Field(description="the largest single further query")]
    queries: int
    basic: Annotated[Amount, Field(description="the plain sums of ε and δ of all charges")]


class EntryView(BaseModel):
    """One movement of budget."""

    seq: int
    kind: Literal["debit", "void", "limit", "loss"]
    job: str | None
    estimate: str | None
    dataset: str | None
    submitter: str | None
    state: str | None
    epsilon: float
    delta: float
    mu_squared: float
    slack: float
    at: datetime
    prev: str
    hash: str


class LedgerPage(BaseModel):
    """Entries, newest first, and the cursor of the next page."""

    entries: list[EntryView]
    next: str | None


class SigningKey(BaseModel):
    """A public key in base64, and the name by which entries call it."""

    id: str
    public_key: str


class SigningKeys(BaseModel):
    """The keys that this service signs with."""

    keys: list[SigningKey]
