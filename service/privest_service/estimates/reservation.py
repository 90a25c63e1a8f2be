"""A planned question becomes a charged job, with its key and all debits in one transaction, or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Part, Plan
from privest_service import acts
from privest_service.acts import Actor
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.joint import Joint, joint_at_hub
from privest_service.estimates.questions import ResolvedQuery, digest_of
from privest_service.estimates.schemas import EstimateRequest
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import asked_for, mechanism
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge
from privest_service.problems import IdempotencyKeyReused
from privest_service.security.models import Owner
from privest_service.security.principals import Principal


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged, or requested."""

    job: Job
    plan: Plan
    charged: list[tuple[Account, str | None, Charge]]
    """Accounts with the dataset and the amount of each charge."""


@dataclass(frozen=True)
class Answer:
    """The job that answers a request, and whether it was there before."""

    job_id: str
    reused: bool
    fresh: Reservation | None = None


@dataclass(frozen=True)
class EstimateCommand:
    """A request of a caller, under a key; its digest binds the key to it."""

    caller: Principal
    kind: Kind
    request: EstimateRequest
    key: str
    digest: str
    actor: Actor = field(default_factory=lambda: acts.present().actor)
    """Whoever sends it, which the job and its charges tell of: a command is made where it arrives."""


class Bound:
    """What the keys of several requests are bound to, looked up for all at once."""

    def __init__(self, session: Session, asks: Iterable[EstimateCommand]) -> None:
        self._found = jobs.all_bound(session, {(ask.caller.id, ask.key) for ask in asks})

    def to(self, ask: EstimateCommand) -> IdempotencyKey | None:
        """The key of a request, bound to a job; None if it is new.

        Raises:
            IdempotencyKeyReused: the key came with another request.
        """
        found = self._found.get((ask.caller.id, ask.key))
        if found is not None and found.body_digest != ask.digest:
            raise IdempotencyKeyReused
        return found

    def note(self, bound: IdempotencyKey) -> None:
        """Note that a key is bound to a job from now on."""
        self._found[bound.principal_id, bound.key] = bound

    def replay(self, ask: EstimateCommand) -> Answer | None:
        """Return what a caller got under a key before; None if the key is new.

        Raises:
            IdempotencyKeyReused: the key came with another request.
        """
        bound = self.to(ask)
        return bound and Answer(bound.job_id, bound.reused)


@dataclass(frozen=True)
class Access:
    """A dataset that a caller may ask about, held until the transaction ends."""

    dataset: Dataset
    grant: Grant | None

    @property
    def since(self) -> datetime:
        """When the present access began; earlier answers were given on another one."""
        return (self.grant or self.dataset).created_at


@dataclass(frozen=True)
class Draft:
    """All that will be written about a planned question, made before any lock is held.

    Attributes:
        planned: the plan.
        digest: of the question.
        plan: the plan as JSON, as it is stored.
        parts: the part of each dataset as JSON, where the plan is on several datasets; else none.
        charges: what each dataset is charged, and for what.
        joint: what is noted where a hub and sites run it together.
    """

    planned: Plan
    digest: str
    plan: str
    parts: list[str]
    charges: list[tuple[Charge, Mechanism]]
    joint: Joint | None = None

    @property
    def length(self) -> int:
        """About how many characters it is."""
        return len(self.plan) + sum(map(len, self.parts)) + sum(len(why.content) for _, why in self.charges)

    @classmethod
    def of(cls, question: ResolvedQuery, planned: Plan) -> "Draft":
        """Draft a job of all that was asked."""
        kind = question.kind
        parts = planned.parts if isinstance(planned, Federated) else ()
        charges = [
            (
                Charge.of(each.target, each.cost),
                mechanism(kind.name, subject.dataset_id, each.target, each.releases),
            )
            for subject, each in zip(question.about, parts or [planned], strict=True)
        ]

        def written(plan: Plan | Part) -> str:
            return kind.plans.dump_json(plan).decode()

        own = [written(part) for part in parts]
        joint = joint_at_hub(question, planned) if question.at_sites else None
        return cls(planned, question.digest, written(planned), own, charges, joint)


Asked = tuple[EstimateCommand, ResolvedQuery, Draft]
"""A planned question, as it is to be charged."""


def held(session: Session, caller: Principal, dataset_ids: Sequence[str]) -> list[Access]:
    """The datasets of a question, which none of its parties can withdraw now.

    Raises:
        GrantRefuses: the caller's grant on one of them has ended.
        NotFound: one of them was withdrawn meanwhile.
    """
    found = datasets.Held(session, {(dataset_id, caller.id) for dataset_id in dataset_ids})
    return [Access(*found.require_access(caller, dataset_id)) for dataset_id in dataset_ids]


def jobs_of(
    ask: EstimateCommand, question: ResolvedQuery, draft: Draft, due: Mapping[str, datetime] | None = None
) -> tuple[Job, list[Job]]:
    """The job of a question, and its parts by dataset; `due` tells until when owners have to approve it."""
    due = due or {}

    def job(plan: str, digest: str, **of: Any) -> Job:
        return Job(
            id=new_id("job"),
            kind=question.kind.name,
            submitter_id=ask.caller.id,
            person=ask.actor.person,
            through=ask.actor.through,
            spec_digest=digest,
            plan=plan,
            dummy=question.dummy,
            tag=ask.request.tag,
            state="requested" if due else "reserved",
            **of,
        )

    first = min(due.values(), default=None)
    if not draft.parts:
        (subject,) = question.about
        of = {"owner_id": subject.owner_id, "dataset_id": subject.dataset_id, "decide_by": first}
        return job(draft.plan, draft.digest, **of), []
    whole = job(draft.plan, draft.digest, decide_by=first)
    parts = [
        job(
            plan,
            digest_of({"part of": draft.digest, "place": place}),  # that no question has
            part_of=whole.id,
            place=place,
            owner_id=subject.owner_id,
            dataset_id=subject.dataset_id,
            decide_by=due.get(subject.dataset_id),
        )
        for place, (subject, plan) in enumerate(zip(question.about, draft.parts, strict=True))
    ]
    return whole, parts


Concerned = list[tuple[Owner, dict[ledger.Scope, str]]]
"""Owners, each with the subjects of the accounts that a question concerns, by dataset."""


def debits_of(
    asked: Sequence[Job],
    priced: Sequence[tuple[Charge, Mechanism]],
    concerned: Concerned,
    accounts: Sequence[Account],
) -> list[charges.Debits]:
    """What a question costs each owner, by dataset, from each of the accounts that it concerns.

    Args:
        asked: the job, or its parts.
        priced: what each dataset is charged, and for what.
        concerned: owners, by dataset.
        accounts: of all of them.
    """
    debits, by_subject = list[charges.Debits](), {(a.owner_id, a.scope, a.subject): a for a in accounts}
    for each, (charge, why), (owner, subjects) in zip(asked, priced, concerned, strict=True):
        own = {"owner": "", **subjects}
        named = ((owner.id, scope, own[scope]) for scope in get_args(ledger.Scope) if scope in own)
        theirs = [by_subject[each_of] for each_of in named if each_of in by_subject]
        told = asked_for(why, each.person, each.through)
        debits.append(charges.Debits(each, theirs, [charge] * len(theirs), told))
    return debits


def concerned_by(session: Session, caller: Principal, accesses: Sequence[Access]) -> Concerned:
    """Return every owner with the budgets that a query concerns besides the owner's own, by dataset.

    Owners are held, so that none opens a new window or is frozen meanwhile, in a fixed order.
    """
    ledger.held_owners(session, {access.dataset.owner_id for access in accesses})
    return concerned_with(session, caller, accesses)


def concerned_with(session: Session, caller: Principal, accesses: Sequence[Access]) -> Concerned:
    """Every owner with the budgets that a query concerns besides the owner's own, by dataset; not held."""
    found = list[tuple[Owner, dict[ledger.Scope, str]]]()
    for access in accesses:
        # Rows that came with a question have an account to be counted in only where one was declared.
        subjects: dict[ledger.Scope, str] = {"dataset": access.dataset.lineage}
        if access.grant is not None:
            subjects["analyst"] = datasets.grant_subject(access.dataset.id, caller.id)
        found.append((session.get_one(Owner, access.dataset.owner_id), subjects))
    return found
