"""How a site takes a question of its hub: it plans it by itself, and charges its own ledger, or refuses.

The hub is an analyst here. Its grants, with their caps, terms and approvals, hold for every question. Nothing
that it sends is believed: the site makes the plan again from public facts of its own dataset, and a question
whose plan at the hub is another one is refused.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from privest.estimators.federation import Federated, Plan
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.terms import has_ended, require_kind
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.charging import EstimateCommand, PlannedQuery
from privest_service.estimates.questions import ASKED, Joint, QueryTarget, ResolvedQuery, digest_of
from privest_service.estimates.schemas import MOST_DATASETS, EstimateRequest
from privest_service.estimates.service import Planner, Submissions
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun
from privest_service.ledger import charges
from privest_service.ledger.mechanisms import mechanism, versions
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import Charge
from privest_service.problems import Invalid, Problem
from privest_service.security.models import Owner
from privest_service.security.principals import Principal
from privest_service.sites.schemas import SiteQuestion


class RefusedError(Exception):
    """A question that this site does not take; its text says why, in words for whoever asked."""


@dataclass(frozen=True)
class Taking:
    """Takes questions of a hub, which is an analyst here.

    Attributes:
        database: of datasets, grants and budgets.
        planner: of questions.
        submissions: which charge them.
        analyst: id of the hub here.
    """

    database: Database
    planner: Planner
    submissions: Submissions
    analyst: str

    @property
    def caller(self) -> Principal:
        """The hub, as it is known here."""
        return Principal("analyst", self.analyst)

    def offered(self) -> dict[str, Dataset]:
        """The datasets that the hub may ask about, by id: a grant is what offers one."""
        theirs = select(Dataset, Grant).join(Grant).where(Grant.analyst_id == self.analyst)
        with self.database.read() as session:
            found = session.execute(
                theirs.where(Dataset.deleted_at.is_(None), Grant.revoked_at.is_(None))
            ).all()
        return {dataset.id: dataset for dataset, grant in found if not has_ended(grant)}

    def job_of(self, hub_job: str) -> Job | None:
        """The job here that a question of the hub became."""
        known = select(Job).join(JointRun).where(JointRun.hub_job == hub_job)
        with self.database.read() as session:
            return session.scalar(known)

    def states(self, job_ids: Iterable[str]) -> dict[str, str]:
        """The states that these jobs are in, by their ids."""
        with self.database.read() as session:
            found = session.execute(select(Job.id, Job.state).where(Job.id.in_(job_ids)))
            return {str(job_id): str(state) for job_id, state in found}

    def take(self, asked: SiteQuestion) -> None:
        """Charge a question, or have it wait for its owner's approval, once: the hub's id is its key.

        Raises:
            RefusedError: it is not to be charged here.
            Problem: it cannot be looked at now.
        """
        if asked.versions != versions():
            raise RefusedError("The hub and the site must have the same versions of the program.")
        try:
            whole, request = self._question(asked)
            planned = self.planner.make_plan(whole, free=False)
        except (ValidationError, Invalid, ValueError):
            raise RefusedError("The question is not one that the site's dataset can be asked.") from None
        own = replace(whole, about=(whole.about[asked.place],))
        digest = digest_of({"asked by the hub": asked.job})
        command = EstimateCommand(self.caller, own.kind, request, asked.job, digest)
        part = _planned(asked, command, own, planned)
        if hashlib.sha256(part.stored.encode()).hexdigest() != asked.plan:
            raise RefusedError("The site came to another plan than the hub.")
        self.submissions.charge([part])

    def _question(self, asked: SiteQuestion) -> tuple[ResolvedQuery, EstimateRequest]:
        """The whole question, resolved against the public facts of the dataset here, and the request for it.

        Raises:
            RefusedError: there is no such dataset for the hub, or its records are not as many.
            ValueError: it is no question on such datasets.
        """
        if (kind := KINDS.get(asked.kind)) is None:
            raise RefusedError("The site has no such estimator.")
        given = ASKED.validate_python(asked.asked)
        with self.database.read() as session:
            try:
                dataset, grant = datasets.require_access(session, self.caller, asked.dataset)
                if grant is not None:
                    require_kind(grant, kind.name)
            except Problem as refused:
                raise RefusedError(refused.detail or "The site does not offer this dataset.") from None
        if len(given.parts) > MOST_DATASETS or not 0 <= asked.place < len(given.parts):
            raise RefusedError("The question has no such part.")
        target = given.parts[asked.place].target
        privacy = {"epsilon": target.epsilon, "delta": target.delta}
        body = {"dataset": {"id": dataset.id}, "privacy": privacy, "reuse": False}
        request = kind.request.model_validate_json(json.dumps(given.choice | given.options | body))
        shape = kind.metadata_of(SCHEMA.validate_json(dataset.dataset_schema).shape(dataset.n), request)
        if given.parts[asked.place].n != dataset.n:
            raise RefusedError("The site's dataset has another number of records.")
        about = tuple(
            QueryTarget(f"{dataset.id} {place}", dataset.owner_id, replace(shape, n=part.n), part.target)
            for place, part in enumerate(given.parts)
        )
        own = replace(about[asked.place], dataset_id=dataset.id)
        about = (*about[: asked.place], own, *about[asked.place + 1 :])
        return ResolvedQuery(self.analyst, kind, about, kind.resolved(request, shape)), request

    def begin(self, job: Job) -> None:
        """Let a worker have a job, as all sites have accepted its question: one of an owner's at a time.

        A hub that begins several has them run one after the other, so that what it asks in one run follows
        from answers of runs that are over, and of this run.
        """

        def ready(session: Session) -> None:
            owner = str((jobs.parts_of(session, job) or [job])[0].owner_id)
            session.get_one(Owner, owner, with_for_update=True)
            joint = jobs.joint_run(session, job.id)
            if joint is not None and joint.state == "waiting" and not _in_session(session, owner):
                joint.state = "ready"

        self.database.run(ready)
        self.submissions.notify()

    def give_back(self, job: Job) -> None:
        """End a question that the hub does not ask any more, if no worker has it."""

        def end(session: Session) -> None:
            if jobs.move(session, Job.id == job.id, "requested", "withdrawn") is None:
                charges.void(session, job.id)

        self.database.run(end)

    def waiting(self) -> Sequence[tuple[Job, str]]:
        """The jobs here that no worker has yet, with their ids at the hub."""
        theirs = select(Job, JointRun.hub_job).join(JointRun).where(JointRun.hub_job.is_not(None))
        with self.database.read() as session:
            rows = session.execute(theirs.where(Job.state.in_(("requested", "reserved")))).all()
        return [(job, str(hub_job)) for job, hub_job in rows]

    def end_of(self, job: Job) -> tuple[Receipt, Any]:
        """The receipt of a committed job as the hub may read it, and the answer that is the site's alone."""
        with self.database.read() as session:
            receipt = charges.receipt_for(session, job, self.analyst)
        assert receipt is not None  # noqa: S101 - committed jobs have one
        return receipt, None if job.dataset_id is None else json.loads(str(job.result))


def _in_session(session: Session, owner_id: str) -> bool:
    """Whether a run of the hub on an owner's rows is under way here, or is about to be."""
    whole = aliased(Job)
    under_way = (
        select(Job.id)
        .join(whole, whole.id == func.coalesce(Job.part_of, Job.id))
        .join(JointRun, JointRun.job_id == whole.id)
        .where(
            Job.owner_id == owner_id,
            JointRun.hub_job.is_not(None),
            JointRun.state == "ready",
            whole.state.in_(("reserved", "claimed")),
        )
    )
    return session.scalar(under_way.limit(1)) is not None


def _planned(asked: SiteQuestion, command: EstimateCommand, own: ResolvedQuery, plan: Plan) -> PlannedQuery:
    """All that is written of a query here: the whole plan, and the charge of this site's part."""
    (target,) = own.about
    several = isinstance(plan, Federated)
    part = plan.parts[asked.place] if several else plan
    write = own.kind.plans.dump_json
    why = mechanism(own.kind.name, target.dataset_id, part.target, part.releases)
    terms = {"hub_job": asked.job, "place": asked.place, "seed": asked.seed}
    return PlannedQuery(
        command,
        own,
        plan,
        command.digest,
        write(plan).decode(),
        [write(part).decode()] if several else [],
        [(Charge.of(part.target, part.cost), why)],
        Joint(json.dumps(terms), asked.job),
    )
