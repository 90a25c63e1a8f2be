"""Requests and answers about estimates; what is one estimator's own is made in `catalogue`."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, model_validator

from privest_service.datasets.schemas import DatasetSchema
from privest_service.inputs import ColumnName, Id, Input, QuestionTag, like
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.schemas import Amount, Delta

M = TypeVar("M", bound=BaseModel)

State = Literal[
    "requested", "reserved", "claimed", "committed", "failed", "voided", "denied", "expired", "withdrawn"
]

FINAL: frozenset[str] = frozenset({"committed", "failed", "voided", "denied", "expired", "withdrawn"})

MOST_DATASETS = 100
"""Most datasets that one query may ask about."""


def _is_zero(given: object) -> bool:
    return given == 0


MayLeave = Annotated[
    int,
    Field(
        ge=0,
        le=99,
        exclude_if=_is_zero,
        description="of several datasets at sites: so many sites may stay away once the run has begun. "
        "The answer then goes on without their records, and states no error",
    ),
]
"""Sites that a run can go on without."""


class SiteView(BaseModel):
    """What the site of one dataset did about a question."""

    dataset: str
    state: Annotated[
        Literal["asked", "accepted", "ended", "refused", "left"],
        Field(
            description="a site that accepted has charged its own ledger; one that left stayed away, and the "
            "answer went on without it"
        ),
    ]
    reason: Annotated[str | None, Field(description="why it refused or left, in its own words")] = None
    receipt: Annotated[
        Receipt | None, Field(description="of the charge at the site, signed with the site's own key")
    ] = None


class DatasetRef(Input):
    """A registered dataset."""

    id: Id
    dummy: Annotated[
        bool,
        Field(
            description="answer from synthetic rows, made of the schema alone: free, and marked",
            exclude_if=lambda dummy: not dummy,
        ),
    ] = False


class RequestedPrivacy(Input):
    """(ε, δ) of this query, under replacement of one record."""

    epsilon: Annotated[float, Field(gt=0, description="ε, above 0")]
    delta: Annotated[
        Delta | None,
        Field(description="δ; default 1/n^1.5, and 0 on a basic budget whose own δ is 0"),
    ] = None


class Accuracy(Input):
    """How small the error is to be that a plan foretells: one figure of it."""

    within: Annotated[
        float | None,
        Field(
            gt=0,
            description="how far off the answer may be in 95 of 100 runs, whatever the records are that "
            "public facts allow: `radius_95` of means, bounds and scores, `unfavourable` of subspaces and "
            "coefficients",
        ),
    ] = None
    radius_95: Annotated[
        float | None, Field(gt=0, description="`expected_error.radius_95`, at most this")
    ] = None
    standard_deviation: Annotated[
        float | None, Field(gt=0, description="`expected_error.standard_deviation`, at most this")
    ] = None
    unfavourable: Annotated[
        float | None, Field(gt=0, description="`expected_error.unfavourable`, at most this")
    ] = None
    columns: Annotated[
        dict[ColumnName, Annotated[float, Field(gt=0)]] | None,
        Field(
            min_length=1,
            description="of means of a table: by column, half the length of its interval of 95 %, in the "
            "column's own units; of a column of categories, of the share of each",
        ),
    ] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _require_one(self, *type(self).model_fields)


class PlanPrivacy(Input):
    """The ε and δ of a question that is only planned, or what its ε is to be found by."""

    epsilon: Annotated[float | None, Field(gt=0, description="ε, above 0")] = None
    target: Annotated[
        Accuracy | None,
        Field(description="find the least ε, within 5 %, with which the error is foretold to be so small"),
    ] = None
    share: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="find the largest ε that takes at most this share of what is left of the budget or "
            "cap with least room, of those that the caller may know",
        ),
    ] = None
    delta: Annotated[
        Delta | None,
        Field(description="δ; default 1/n^1.5, and 0 on a basic budget whose own δ is 0"),
    ] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return _require_one(self, "epsilon", "target", "share")


def _require_one(given: M, *names: str) -> M:
    if sum(getattr(given, name) is not None for name in names) != 1:
        raise ValueError(f"must have exactly one of {', '.join(names)}")
    return given


class DatasetPart(DatasetRef):
    """One of several datasets that are asked about together."""

    privacy: Annotated[
        RequestedPrivacy | None, Field(description="of its records, where it is not that of the question")
    ] = None


def _once_each(parts: list[DatasetPart]) -> list[DatasetPart]:
    if len({part.id for part in parts}) < len(parts):
        raise ValueError("must name each dataset once")
    if len({part.dummy for part in parts}) > 1:
        raise ValueError("must set dummy for all datasets of a question or for none")
    return parts


DatasetParts = Annotated[
    list[DatasetPart], Field(min_length=1, max_length=MOST_DATASETS), AfterValidator(_once_each)
]
"""Datasets of one owner or of several, each charged for itself."""


class InlineRows(Input):
    """Records that come with the question, as in a JSON file."""

    declared: Annotated[DatasetSchema, Field(alias="schema")]
    rows: Annotated[list[Any], Field(min_length=2)]
    # Left out of what a key is bound to where it is not said: keys of before stay bound to what they were.
    rows_of: Annotated[
        Id | None,
        Field(
            description="a dataset of yours that holds the same rows: its cap holds for this question too",
            exclude_if=lambda given: given is None,
        ),
    ] = None


class InlineRef(Input):
    """Records that are the caller's own, for this question alone."""

    inline: InlineRows


def _way(given: Any) -> str:
    if isinstance(given, list):
        return "several"
    inline = (
        "inline" in cast("dict[str, Any]", given) if isinstance(given, dict) else hasattr(given, "inline")
    )
    return "rows" if inline else "registered"


About = Annotated[
    Annotated[DatasetRef, Tag("registered")]
    | Annotated[DatasetParts, Tag("several")]
    | Annotated[InlineRef, Tag("rows")],
    Discriminator(_way),
    like({"id": "ds_1a2b3c"}, list),
]
"""What a question is about."""


def _is_none(given: object) -> bool:
    return given is None


class EstimateRequest(Input):
    """A request for an estimate, with the fields that all estimators share.

    Keys are bound to digests of requests for ever: choices that came later leave themselves out of these
    (`exclude_if`) where they are not made.
    """

    dataset: About
    privacy: Annotated[RequestedPrivacy, like({"epsilon": 0.5})]
    reuse: Annotated[
        bool, Field(description="give an earlier answer of yours to the same question again, free of charge")
    ] = True
    tag: Annotated[
        QuestionTag | None,
        Field(
            description="words of yours, by which lists find the question again; owners of the data read "
            "them, and they change nothing else",
            exclude_if=_is_none,
        ),
    ] = None
    may_leave: MayLeave = 0


_Columns = Annotated[list[ColumnName], Field(min_length=1, max_length=2_000)]


class ColumnsRequest(EstimateRequest):
    """A request that may choose columns of a table."""

    columns: Annotated[
        _Columns | None,
        Field(description="of a table: names of the columns; by default all", exclude_if=_is_none),
    ] = None


class LabelRequest(EstimateRequest):
    """A request that names a label and features of a table."""

    label: Annotated[
        ColumnName | None,
        Field(description="of a table: a column of categories, or a boolean one", exclude_if=_is_none),
    ] = None
    features: Annotated[
        _Columns | None,
        Field(
            description="of a table: the features; by default all other columns. A column of categories "
            "stands for an indicator of every category but its reference. Single ones are named as "
            "`species=Adelie`, those of several categories together as `species=Adelie|Gentoo`, and those of "
            "gaps as `sex missing`",
            exclude_if=_is_none,
        ),
    ] = None


class Privacy(BaseModel):
    """The privacy that a run guarantees: the cost that its releases are certified for."""

    epsilon: float
    delta: float
    mu: float
    slack: float
    adjacency: Literal["replace-one"] = "replace-one"
    mechanism: str


class PartView(BaseModel):
    """One of several datasets."""

    dataset: str
    weight: Annotated[float, Field(description="of its gate's answers, by public facts")]
    answers: Annotated[int, Field(description="noisy sums that its gate releases, in its turns alone")]
    privacy: Privacy


class ChargeView(BaseModel):
    """The charge of one account."""

    scope: str
    dataset: str | None
    epsilon: float
    delta: float
    mu_squared: float
    slack: float


class ApprovalView(BaseModel):
    """What became of a question that had to be approved."""

    decide_by: Annotated[datetime, Field(description="when it ends by itself if not every owner decided")]
    decision: Annotated[
        Literal["approve", "deny"] | None, Field(description="of the caller, who owns the dataset")
    ] = None
    reason: Annotated[
        str | None, Field(description="of the caller's decision; to whoever asked, of the denial")
    ] = None
    decided_at: Annotated[
        datetime | None, Field(description="when that was decided; to whoever asked, the denial")
    ] = None


class JobView(BaseModel):
    """A job; each kind's own answer narrows `estimate`, `uncertainty` and `forecast`."""

    id: str
    kind: str
    state: State
    estimate: Any = None
    uncertainty: Any = None
    forecast: Any = None
    warnings: Annotated[
        list[str], Field(description="of the plan, and of what the run found out, for whoever asked")
    ] = []
    privacy: Privacy
    charges: list[ChargeView]
    receipt: Annotated[Receipt | None, Field(description="once the job is committed")] = None
    reused: bool
    tag: Annotated[str | None, Field(description="words of whoever asked first for this job")] = None
    person: Annotated[str | None, Field(description="who asked by a token, or by a key of one")] = None
    through: Annotated[str | None, Field(description="service account that asked for this person")] = None
    dummy: Annotated[bool, Field(description="answered from synthetic rows, and charged to nobody")] = False
    approval: Annotated[
        ApprovalView | None, Field(description="null where nobody had to approve the question")
    ] = None
    sites: Annotated[
        list[SiteView],
        Field(description="of datasets that stay at sites, in order", exclude_if=lambda sites: not sites),
    ] = []


class ReleaseView(BaseModel):
    """Noisy sums of one kind that the gate will release."""

    statistic: str
    count: int
    noise: Literal["gaussian", "laplace", "independent-laplace"]
    scale: Annotated[float, Field(description="of the noise on the mean: σ, or Laplace scale")]
    clip: float
    mu_squared: Annotated[
        float | None, Field(description="of all `count`; null for batches, which are certified as a whole")
    ]
    batch: Annotated[float | None, Field(description="expected records in a random batch")]
    sampling: str | None
    run: Annotated[
        int | None,
        Field(description="of alternatives, of which the costliest counts: which one", exclude_if=_is_none),
    ] = None


class SecondOpinion(BaseModel):
    """Another accountant's view of the same noise. Its bounds are looser as a rule, and never charged."""

    accountant: str
    epsilon: Annotated[float | None, Field(description="ε at this δ; null where it finds none")]
    delta: float


class Room(BaseModel):
    """What a question takes of the budget or cap with least room, of those that its caller may know.

    Shares are of the whole limit, in the currency in which charges add up.
    """

    scope: Annotated[
        Literal["owner", "dataset", "analyst"],
        Field(description="the caller's budget, the cap on its dataset, or the cap of its grant"),
    ]
    limit: Annotated[Amount, Field(description="of that budget or cap")]
    cost: Annotated[
        Amount,
        Field(
            description="what the question costs there, as ε at the δ of the limit, less the tenth that "
            "a gdp budget keeps for random batches"
        ),
    ]
    share: Annotated[float, Field(description="that the question takes")]
    left: Annotated[float, Field(description="that is left before it")]
    epsilon: Annotated[
        float | None,
        Field(
            description="the largest ε, rounded down, that all budgets, caps and terms which the caller may "
            "know admit for this question at its δ; 0 for none; null with δ = 0 on a gdp budget"
        ),
    ]
    times: Annotated[
        int,
        Field(
            description="how many such questions, one after another, all budgets and caps it may know cover"
        ),
    ]
    covered: Annotated[
        bool,
        Field(
            description="whether they cover it once, and the terms of the caller's grant allow it; a freeze "
            "or a pace may refuse it all the same"
        ),
    ]


class PlanView(BaseModel):
    """The exact cost of a query and what to expect of it; charges nothing, reads no row."""

    kind: str
    privacy: Privacy
    steps: int
    releases: list[ReleaseView]
    warnings: list[str]
    expected_error: Any
    finding: Any = None
    parts: Annotated[
        list[PartView], Field(description="of a question on several, whose `privacy` covers all of them")
    ]
    may_leave: MayLeave = 0
    second_opinion: Annotated[
        SecondOpinion | None,
        Field(description="null while other plans are being made, or if its process is lost"),
    ]
    room: Annotated[
        Room | None, Field(description="null where the caller may know of no limit but its own question's")
    ] = None
    approval: Annotated[
        Literal["required"] | None,
        Field(description="whether the question would wait for an owner's approval"),
    ] = None
