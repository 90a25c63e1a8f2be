"""Workloads: many questions priced together, as they are charged in turn and by one certificate."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from privest.estimators.federation import Federated, Part, Plan
from privest.privacy.accounting import Cost, epsilon_for
from privest_service.database import Database
from privest_service.declarations import model
from privest_service.estimates.catalogue import KINDS, Job
from privest_service.estimates.epsilon_found import to_plan
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.room import known_accounts, times_covered
from privest_service.estimates.schemas import EstimateRequest, InlineRef, Privacy
from privest_service.estimates.service import Planner
from privest_service.estimates.views import privacy_of
from privest_service.inputs import Input
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.ledger.views import share, share_of_charge
from privest_service.problems import Invalid, in_place
from privest_service.security.principals import Principal

_MOST = 50
"""Most questions of one workload."""


def _several(name: str, about: str, bodies: Mapping[str, type[EstimateRequest]]) -> type[Any]:
    """The model of several questions, each with its kind and the body of that kind."""
    each = [
        model(
            f"{body.__name__.removesuffix('Request')}Question",
            f"A question of kind {kind}, one of several.",
            {"kind": (Literal[kind], ...), "body": (body, ...)},  # pyright: ignore[reportInvalidTypeForm]
            Input,
        )
        for kind, body in bodies.items()
    ]
    question: Any = Annotated[reduce(or_, each), Field(discriminator="kind")]
    bounded = Annotated[list[question], Field(min_length=1, max_length=_MOST)]
    return model(name, about, {"questions": (bounded, ...)}, Input)


PlannedWorkload = _several(
    "PlannedWorkload",
    "Questions that are priced together.",
    {name: kind.plan_request for name, kind in KINDS.items()},
)
Workload = _several(
    "Workload",
    "Questions that are asked together.",
    {name: kind.request for name, kind in KINDS.items()},
)


class JobList(BaseModel):
    """The jobs of a workload, in the order of its questions."""

    jobs: list[Job]


class PricedQuestion(BaseModel):
    """One question of a workload, as its own plan tells it."""

    kind: str
    datasets: list[str]
    privacy: Privacy
    radius_95: Annotated[float | None, Field(description="`expected_error.radius_95` of its plan")]
    warnings: list[str]


class Total(BaseModel):
    """What questions about one dataset cost together."""

    mu: float
    slack: float
    epsilon: Annotated[
        float | None, Field(description="that they guarantee together at `delta`; null where there is none")
    ]


class DatasetPrice(BaseModel):
    """The price of all questions about one dataset."""

    dataset: str
    questions: int
    delta: Annotated[float, Field(description="the largest of its questions")]
    sequence: Annotated[Total, Field(description="as they are charged one after another")]
    together: Annotated[
        Total | None,
        Field(
            description="by one certificate for all random batches, and never more; null where no worker "
            "could be asked for it"
        ),
    ]


class LimitTaken(BaseModel):
    """What a workload takes of a budget or a cap that its caller may know, in shares of the whole limit."""

    scope: Literal["owner", "dataset", "analyst"]
    datasets: Annotated[list[str], Field(description="of the workload, that are charged to it")]
    share: Annotated[float, Field(description="that all questions take, one after another")]
    left: Annotated[float, Field(description="that is left before them")]
    covered: bool


class WorkloadView(BaseModel):
    """The price of a workload; charges nothing, reads no row."""

    plans: list[PricedQuestion]
    datasets: list[DatasetPrice]
    limits: Annotated[list[LimitTaken], Field(description="as far as the caller may know of any")]
    covered: Annotated[bool, Field(description="whether all these limits cover all questions")]


@dataclass(frozen=True)
class _Paid:
    """What one question costs one dataset."""

    question: ResolvedQuery
    place: int
    plan: Plan | Part

    @property
    def dataset_id(self) -> str:
        return self.question.about[self.place].dataset_id

    @property
    def charge(self) -> Charge:
        return Charge.of(self.plan.target, self.plan.cost)


def price(database: Database, planner: Planner, caller: Principal, workload: Any) -> WorkloadView:
    """Price questions together.

    Args:
        database: of datasets and budgets.
        planner: makes the plans.
        caller: who asks.
        workload: a `PlannedWorkload`.

    Raises:
        Invalid: a question brings rows of its own.
        Problem: whatever refuses to plan one of them.
    """
    planned = list[tuple[ResolvedQuery, Plan]]()
    for place, each in enumerate(registered(workload)):
        question = in_place(place, to_plan, database, planner, caller, KINDS[each.kind], each.body)
        planned.append((question, in_place(place, planner.make_plan, question)))
    paid = [
        _Paid(question, place, part)
        for question, plan in planned
        for place, part in enumerate(plan.parts if isinstance(plan, Federated) else [plan])
        if not question.dummy
    ]
    by_dataset = defaultdict[str, list[_Paid]](list)
    for each in paid:
        by_dataset[each.dataset_id].append(each)
    limits = _limits(database, caller, paid)
    return WorkloadView(
        plans=[
            PricedQuestion(
                kind=question.kind.name,
                datasets=[subject.dataset_id for subject in question.about],
                privacy=privacy_of(plan),
                radius_95=getattr(plan.expected_error, "radius_95", None),
                warnings=list(plan.warnings),
            )
            for question, plan in planned
        ],
        datasets=[_dataset_price(planner, caller, *each) for each in by_dataset.items()],
        limits=limits,
        covered=all(limit.covered for limit in limits),
    )


def registered(workload: Any) -> list[Any]:
    """The questions of a workload, none of which brings rows of its own.

    Raises:
        Invalid: one does.
    """
    if any(isinstance(each.body.dataset, InlineRef) for each in workload.questions):
        raise Invalid("Several questions are asked about registered datasets. Upload the rows first.")
    return workload.questions


def _dataset_price(
    planner: Planner, caller: Principal, dataset_id: str, paid: Sequence[_Paid]
) -> DatasetPrice:
    delta = max(each.plan.target.delta for each in paid)
    total = sum((each.plan.cost for each in paid), Cost())
    joint = planner.joint_cost(caller.id, [each.plan.releases for each in paid], total)
    return DatasetPrice(
        dataset=dataset_id,
        questions=len(paid),
        delta=delta,
        sequence=_total(total, delta),
        together=None if joint is None else _total(joint, delta),
    )


def _total(cost: Cost, delta: float) -> Total:
    mu = sqrt(cost.mu_squared)
    promised = delta > cost.slack and mu > 0
    return Total(mu=mu, slack=cost.slack, epsilon=epsilon_for(mu, delta - cost.slack) if promised else None)


def _limits(database: Database, caller: Principal, paid: Sequence[_Paid]) -> list[LimitTaken]:
    """What is taken of each account that the caller may know."""
    taken = dict[int, tuple[Account, Charge, list[str]]]()
    with database.read() as session:
        for each in paid:
            for account in known_accounts(session, caller, each.question.about[each.place]):
                _, charge, datasets = taken.get(account.id, (account, Charge(0, 0, 0, 0), list[str]()))
                taken[account.id] = account, charge + each.charge, [*datasets, each.dataset_id]
        return [
            LimitTaken(
                scope=account.scope,  # pyright: ignore[reportArgumentType]
                datasets=list(dict.fromkeys(datasets)),
                share=share_of_charge(ledger.limits_of(account), charge),
                left=max(0.0, 1 - share(ledger.limits_of(account), account)),
                covered=times_covered(account, charge) > 0,
            )
            for account, charge, datasets in taken.values()
        ]
