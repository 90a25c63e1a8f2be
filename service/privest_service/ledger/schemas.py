"""Requests and answers about budgets and entries."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from privest_service.inputs import Input, Name, like
from privest_service.ledger.renewals import Promise, Renewal
from privest_service.ledger.units import Composition, Limits
from privest_service.ledger.windows import Every

Epsilon = Annotated[float, Field(gt=0, le=1e6, description="ε, above 0")]
Delta = Annotated[float, Field(ge=0, lt=1, description="δ, from 0 to below 1")]


class RenewalRules(Input):
    """How the windows of a budget follow each other: by themselves, by hand, and how many of them."""

    every: Annotated[
        Every | None,
        Field(
            description="the period at whose beginning (UTC) a window opens by itself; null for by hand alone"
        ),
    ] = None
    promise: Annotated[
        Promise,
        Field(
            description="whether ε and δ are promised for each window, or divided among all of them; "
            "the latter needs `most`, is chosen in the first window, and stays"
        ),
    ] = "per-window"
    most: Annotated[
        int | None, Field(ge=1, le=10_000, description="largest number of windows that there may ever be")
    ] = None
    least_days: Annotated[
        int | None,
        Field(
            ge=0,
            le=3660,
            description="fewest days between the beginnings of two windows, by hand too; by default those of "
            "the shortest period, or none",
        ),
    ] = None

    def renewal(self) -> Renewal:
        """The rules as the ledger takes them."""
        return Renewal(self.every, self.promise, self.most, self.least_days)


Pace = Annotated[
    float,
    Field(
        ge=1e-6,
        le=1,
        description="largest share of a window's budget that any seven days may take; 1 for no such limit",
    ),
]


class NewBudget(Input):
    """All that may ever be spent: (ε, δ) under replacement of one record."""

    epsilon: Epsilon
    delta: Delta
    composition: Composition = "gdp"
    renewal: Annotated[RenewalRules | None, like({"every": "month", "most": 12})] = None
    pace: Pace | None = None

    def limits(self) -> Limits:
        """The limits as the ledger counts them."""
        return Limits.of(self.epsilon, self.delta, self.composition)

    @model_validator(mode="after")
    def _has_room(self) -> "NewBudget":
        self.limits()
        return self


class BudgetChange(Input):
    """A higher limit, a freeze, its end, a new window, or rules for windows; what is left out stays."""

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
    renewal: Annotated[RenewalRules | None, like({"every": "month", "most": 12})] = None
    pace: Pace | None = None

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


class Together(BaseModel):
    """What so many windows promise together to a record that is in the data through all of them."""

    windows: int
    promise: Annotated[Amount | None, Field(description="null where δ would be 1 or more: nothing")]


class Windows(BaseModel):
    """How the windows of a budget follow each other, and what they promise together if none is raised."""

    every: Every | None
    promise: Promise
    most: int | None
    least_days: int
    opened: Annotated[datetime, Field(description="when the present window was opened")]
    next: Annotated[datetime | None, Field(description="when the next one opens by itself")]
    pace: float | None
    paced_left: Annotated[
        float | None, Field(description="share of the window's budget that the pace leaves for now")
    ]
    so_far: Together
    in_a_year: Annotated[
        Together | None,
        Field(description="of the most windows that a year can meet; null where any number can"),
    ]
    in_all: Annotated[
        Together | None, Field(description="of the largest number of windows; null where there is none")
    ]


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
    remaining: Annotated[
        Amount,
        Field(
            description="what is left for single queries; for gdp at nine tenths of δ, because a tenth is "
            "kept for queries with random batches"
        ),
    ]
    largest_query: Annotated[
        Amount,
        Field(
            description="the largest further query without random batches that is admitted at the δ of the "
            "limit; for basic at the δ that is left"
        ),
    ]
    share: Annotated[
        float, Field(description="of the limit that is spent, in the currency in which charges add up")
    ]
    queries: int
    basic: Annotated[Amount, Field(description="the plain sums of ε and δ of all charges")]
    windows: Windows | None = None


class EntryView(BaseModel):
    """One movement of budget."""

    seq: int
    kind: Literal["debit", "void", "limit", "loss"]
    job: str | None
    estimate: str | None
    dataset: str | None
    submitter: str | None
    person: Annotated[str | None, Field(description="who asked by a token, or by a key of one")] = None
    through: Annotated[str | None, Field(description="service account that asked for this person")] = None
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


class NewOwner(Input):
    """An owner to be made."""

    name: Name
    budget: Annotated[NewBudget, like({"epsilon": 3, "delta": 1e-5})]


class CreatedOwner(BaseModel):
    """A new owner; the key is shown this once."""

    id: str
    name: str
    budget: NewBudget
    key: str
