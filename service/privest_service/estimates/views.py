"""How jobs and plans are shown."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import sqrt
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Part, Plan
from privest.privacy.mechanisms import AlternativeSum, Release, SampledSum, SubsampledSum
from privest_service.acts import readable
from privest_service.acts.models import LONGEST_REASON
from privest_service.datasets.models import Grant
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.charging import Reservation
from privest_service.estimates.plans import asked_columns, asked_label, plain, stored_plan
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.room import warnings_of
from privest_service.estimates.schemas import (
    ApprovalView,
    ChargeView,
    JobView,
    PartView,
    PlanView,
    Privacy,
    ReleaseView,
    Room,
    SecondOpinion,
    SiteView,
)
from privest_service.inputs import Input
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import EPSILON, MU_SQUARED, PROBABILITY, Charge, as_number
from privest_service.ledger.views import chance_of_guessing, epsilon_of, share, share_of_charge
from privest_service.security.models import Analyst
from privest_service.security.principals import Principal

_SURPRISE = 2.0
"""An answer tells where it may be off by more than this many times the forecast."""

WITHOUT = "without"
"""In a stored answer: the places of the datasets whose sites left before the end, if any did."""

_Charged = tuple[Account, str | None, Entry | Charge]
"""An account, for which dataset it was charged, and how much."""


def job_view(session: Session, caller: Principal, job: Job, *, reused: bool = False) -> JobView:
    """A job as its submitter reads it; its owner reads what was charged, not the answer."""
    parts = jobs.parts_of(session, job) or [job]
    about = {each.id: each.dataset_id for each in parts}
    found = session.execute(
        select(Account, Entry)
        .join(Entry, Account.id == Entry.account_id)
        .where(Entry.job_id.in_(about), Entry.kind == "debit")
    )
    places = list(about)
    by_part = sorted(found, key=lambda charge: places.index(charge[1].job_id or ""))
    charged = [(account, about[entry.job_id or ""], entry) for account, entry in by_part]
    receipt = charges.receipt_for(session, job, caller.id)
    view = _view(caller, job, stored_plan(job.kind, job.plan), charged, reused, receipt)
    view.approval = approval_of(session, caller, job, list(about))
    view.sites = sites_of(session, job, parts)
    return view


def sites_of(session: Session, job: Job, parts: Sequence[Job]) -> list[SiteView]:
    """What the sites of a question did; of one that is run here alone there are none."""
    joint = jobs.joint_run(session, job.id)
    if joint is None or joint.hub_job is not None:
        return []
    found = {each.job_id: each for each in jobs.site_parts(session, *(part.id for part in parts))}
    return [
        SiteView(
            dataset=str(part.dataset_id),
            state=told.state if told else "asked",  # pyright: ignore[reportArgumentType]
            reason=told and told.reason,
            receipt=Receipt.model_validate_json(told.receipt) if told and told.receipt else None,
        )
        for part in parts
        for told in [found.get(part.id)]
    ]


def approval_of(session: Session, caller: Principal, job: Job, parts: Sequence[str]) -> ApprovalView | None:
    """What was decided, as far as a caller may know: an owner its own decision, others a denial."""
    if job.decide_by is None:
        return None
    decisions = jobs.decisions_on(session, *parts)
    told = next((each for each in decisions if job.owner_id == caller.id or not each.approved), None)
    verdict = None if told is None else "approve" if told.approved else "deny"
    return ApprovalView(
        decide_by=job.decide_by,
        decision=verdict,
        reason=told and told.reason,
        decided_at=told and told.at,
    )


def fresh_job_view(caller: Principal, reserved: Reservation) -> JobView:
    """Show a job that was just charged to its submitter, without asking the database again."""
    return _view(caller, reserved.job, reserved.plan, reserved.charged, reused=False)


def _view(
    caller: Principal,
    job: Job,
    plan: Plan | Part | None,
    charged: Sequence[_Charged],
    reused: bool,
    receipt: Receipt | None = None,
) -> JobView:
    model = KINDS[job.kind].job if plan else JobView  # without a plan its estimator is not there any more
    answered = caller.id == job.submitter_id and job.result is not None
    told = read_answer(plan, job.result) if answered and job.result else Answered()
    return model(
        id=job.id,
        kind=job.kind,
        state=job.state,  # pyright: ignore[reportArgumentType]
        estimate=told.estimate,
        uncertainty=told.uncertainty,
        forecast=told.forecast,
        warnings=list(told.warnings),
        privacy=privacy_of(plan) if plan else _charged_privacy(amount for _, _, amount in charged),
        charges=[
            ChargeView(
                scope=account.scope,
                dataset=dataset,
                epsilon=as_number(amount.epsilon, EPSILON),
                delta=as_number(amount.delta, PROBABILITY),
                mu_squared=as_number(amount.mu_squared, MU_SQUARED),
                slack=as_number(amount.slack, PROBABILITY),
            )
            for account, dataset, amount in _in_order(charged)
            if account.scope == "owner" or ledger.limits_of(account).capped
        ],
        receipt=receipt,
        reused=reused,
        tag=job.tag,
        person=job.person,
        through=job.through,
        dummy=job.dummy,
        approval=None if job.decide_by is None else ApprovalView(decide_by=job.decide_by),
    )


@dataclass(frozen=True)
class Answered:
    """A stored answer, as JSON has it.

    Attributes:
        estimate: without its uncertainty.
        uncertainty: that the run found out; the plan's forecast for an answer that has none; None where a
            site stayed away, of which neither tells.
        forecast: the plan's; None where nobody can read the plan any more.
        warnings: of the plan, and of what the run found out.
    """

    estimate: dict[str, Any] | None = None
    uncertainty: dict[str, Any] | None = None
    forecast: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


def read_answer(plan: Plan | Part | None, result: str) -> Answered:
    """Take a stored answer apart.

    Args:
        plan: of the answer; None where nobody can read it any more.
        result: as it is stored.
    """
    estimate: dict[str, Any] = json.loads(result)
    found: dict[str, Any] | None = estimate.pop("uncertainty", None)
    if left := estimate.pop(WITHOUT, None):
        warnings = () if plan is None else plan.warnings
        return Answered(estimate, warnings=(*warnings, _without(left)))
    if plan is None or isinstance(plan, Part):
        return Answered(estimate, found, warnings=tuple((found or {}).get("warnings", ())))
    foretold = asdict(plan.expected_error)
    if found is None:
        return Answered(estimate, foretold, foretold, plan.warnings)
    warnings = (*plan.warnings, *found["warnings"])
    radius, expected = found["radius_95"], foretold.get("radius_95")
    if expected and radius > _SURPRISE * expected:
        surprise = (
            f"the answer may be off by {radius:.3g}, {radius / expected:.3g} times what the plan foretold: "
            "the records are not as the forecast assumed"
        )
        warnings += (surprise,)
    return Answered(estimate, foretold | found, foretold, warnings)


def _without(left: Sequence[int]) -> str:
    """The warning that sites stayed away, of which no error that the plan knows tells."""
    which = ", ".join(str(place + 1) for place in left)
    return (
        f"the sites of these datasets left before the end: number {which}. From there on the answer is of "
        "the others' records, with other noise than was planned, so that no error is stated"
    )


def _in_order(given: Sequence[_Charged]) -> list[_Charged]:
    """Charges by dataset, as they were named, and by scope: the order of accounts is random."""
    scopes = get_args(ledger.Scope)
    datasets = list(dict.fromkeys(dataset for _, dataset, _ in given))
    return sorted(given, key=lambda each: (datasets.index(each[1]), scopes.index(each[0].scope)))


def privacy_of(plan: Plan | Part) -> Privacy:
    """What a plan guarantees."""
    return Privacy(
        epsilon=plan.target.epsilon,
        delta=plan.target.delta,
        mu=sqrt(plan.cost.mu_squared),
        slack=plan.cost.slack,
        mechanism=plan.mechanism,
    )


def _charged_privacy(amounts: Iterable[Entry | Charge]) -> Privacy:
    """What a run guaranteed whose estimator is not there any more: all that is known is what was charged."""
    most = [(each.epsilon, each.delta, each.mu_squared, each.slack) for each in amounts] or [(0, 0, 0, 0)]
    epsilon, delta, mu_squared, slack = map(max, zip(*most, strict=True))
    return Privacy(
        epsilon=as_number(epsilon, EPSILON),
        delta=as_number(delta, PROBABILITY),
        mu=sqrt(as_number(mu_squared, MU_SQUARED)),
        slack=as_number(slack, PROBABILITY),
        mechanism="that of an estimator which this version of the service does not have any more",
    )


def plan_view(
    question: ResolvedQuery, plan: Plan, opinion: SecondOpinion | None, room: Room | None = None
) -> PlanView:
    """Return a plan as an analyst reads it.

    Args:
        question: the query.
        plan: its plan.
        opinion: the ε that another accountant computes for the plan.
        room: the impact on the tightest account visible to the caller.
    """
    kind = question.kind
    several = plan if isinstance(plan, Federated) else None
    own = {name: plain(getattr(several.course if several else plan, name)) for name in kind.estimator.shown}
    parts = zip(question.about, several.weights, several.parts, strict=True) if several else ()
    return kind.plan_view(
        **own,
        kind=kind.name,
        privacy=privacy_of(plan),
        steps=plan.steps,
        releases=[_release_view(release) for release in plan.releases],
        warnings=[*plan.warnings, *warnings_of(room, question.target)],
        expected_error=asdict(plan.expected_error),
        finding=asdict(found) if (found := plan.finding) else None,
        parts=[
            PartView(
                dataset=subject.dataset_id,
                weight=weight,
                answers=sum(release.count for release in part.releases),
                privacy=privacy_of(part),
            )
            for subject, weight, part in parts
        ],
        may_leave=question.may_leave,
        second_opinion=opinion,
        room=room,
        approval="required" if question.approval else None,
    )


def _release_view(release: Release) -> ReleaseView:
    sampled = isinstance(release, SampledSum | SubsampledSum)
    return ReleaseView(
        statistic=release.statistic,
        count=release.count,
        noise=release.noise,
        scale=release.scale / release.divisor,
        clip=release.clip,
        mu_squared=None if isinstance(release, SubsampledSum) else release.cost.mu_squared,
        batch=release.divisor if sampled else None,
        sampling=release.scheme if sampled else None,
        run=release.run if isinstance(release, AlternativeSum) else None,
    )


# Requests


class Verdict(Input):
    """A decision of an owner on a question about its dataset."""

    decision: Literal["approve", "deny"]
    reason: Annotated[
        Annotated[str, AfterValidator(readable)] | None,
        Field(max_length=LONGEST_REASON, description="told to whoever asked where the question is denied"),
    ] = None


class RequestView(BaseModel):
    """A question that waits for the approval of the owner of a dataset, as that owner reads it."""

    job: str
    kind: str
    analyst: str
    analyst_name: str
    dataset: str
    purpose: Annotated[str | None, Field(description="of the grant, as it is now")]
    tag: Annotated[str | None, Field(description="words of the analyst on the question")] = None
    asked_at: datetime
    decide_by: Annotated[datetime, Field(description="when the request ends by itself")]
    several: Annotated[bool, Field(description="whether it is on other datasets as well")]
    columns: Annotated[list[str] | None, Field(description="of a table; null where records have no names")]
    label: Annotated[str | None, Field(description="the one of them that is told by the others")] = None
    options: Annotated[dict[str, Any], Field(description="what the analyst chose, or what follows from it")]
    privacy: Privacy
    epsilon: Annotated[float, Field(description="what it costs by itself, as ε at the δ of the budget")]
    share: Annotated[float, Field(description="of the whole budget that it takes")]
    left: Annotated[float, Field(description="share of the budget that is left before it")]
    guess: Annotated[
        float,
        Field(
            description="how often, at most, an attacker who knows all other records and hesitates between "
            "two values of one guesses right by this answer; ½ without it"
        ),
    ]


class RequestList(BaseModel):
    """Questions that wait for a decision of the caller, oldest first."""

    requests: list[RequestView]


def request_view(session: Session, asked: Job) -> RequestView | None:
    """A request, or a part of one, as its owner reads it; None where nobody can read its plan any more."""
    whole = session.get_one(Job, asked.part_of or asked.id)
    own, plan = stored_plan(asked.kind, asked.plan), stored_plan(whole.kind, whole.plan)
    if own is None or plan is None or isinstance(plan, Part) or asked.decide_by is None:
        return None
    course: Plan = plan.course if isinstance(plan, Federated) else plan
    grant = session.get(Grant, (asked.dataset_id, asked.submitter_id))
    account = ledger.owner_account(session, str(asked.owner_id))
    limits, charge = ledger.limits_of(account), Charge.of(own.target, own.cost)
    return RequestView(
        job=asked.id,
        kind=asked.kind,
        analyst=asked.submitter_id,
        analyst_name=session.get_one(Analyst, asked.submitter_id).name,
        dataset=str(asked.dataset_id),
        purpose=grant and grant.purpose,
        tag=asked.tag,
        asked_at=asked.created_at,
        decide_by=asked.decide_by,
        several=asked.part_of is not None,
        columns=asked_columns(course),
        label=asked_label(course),
        options={name: getattr(course, name) for name in KINDS[asked.kind].estimator.shown},
        privacy=privacy_of(own),
        epsilon=epsilon_of(limits, charge),
        share=share_of_charge(limits, charge),
        left=max(0.0, 1 - share(limits, account)),
        guess=chance_of_guessing(limits, charge, ""),
    )
