"""What an owner reads of a question before it decides: what is asked, why, its price and what it tells."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Part, Plan
from privest_service.acts import readable
from privest_service.acts.models import LONGEST_REASON
from privest_service.datasets.models import Grant
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.plans import asked_columns, asked_label, stored_plan
from privest_service.estimates.schemas import Privacy
from privest_service.estimates.views import privacy_of
from privest_service.inputs import Input
from privest_service.jobs.models import Job
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.ledger.units import Charge
from privest_service.security.models import Analyst


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
        epsilon=views.epsilon_of(limits, charge),
        share=views.share_of_charge(limits, charge),
        left=max(0.0, 1 - views.share(limits, account)),
        guess=views.chance_of_guessing(limits, charge, ""),
    )
