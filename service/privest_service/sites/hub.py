"""What a hub does: it notes offers, hands questions to sites, and brings their noisy answers together.

Every function works inside the caller's transaction. A site is the owner of its datasets here, and calls a
question by the job, or the part of one, that is on its dataset.
"""

import hashlib
import json
from base64 import b64encode
from datetime import timedelta
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from privest.arrays import Array
from privest.estimators.federation import Federated, Part
from privest.optim.pooled import weighted
from privest_service import acts
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.views import read_answer
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun, SiteAnswer, SitePart
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import versions
from privest_service.ledger.receipts import Receipt, signed_by
from privest_service.problems import Invalid, NotFound, SessionOver
from privest_service.security.models import Owner
from privest_service.security.principals import Principal
from privest_service.sites.schemas import OfferedDataset, SiteEnd, SiteQuestion, SiteState

_BYTES = np.dtype("<f8")
"""Numbers on the wire: float64, the lowest byte first."""

_FURTHEST = 1e100
"""Largest number in an answer."""

_LARGEST = 1_000_000
"""Most numbers of one answer, and so of what a hub keeps of it."""


def offer(session: Session, caller: Principal, at_site: str, offered: OfferedDataset) -> Dataset:
    """Note a dataset that stays at a site; the same offer again changes nothing.

    One that was withdrawn and is offered again is another dataset, with the caps of the former.

    Raises:
        Invalid: it was offered with other public facts, which plans and charges rest on.
    """
    session.get_one(Owner, caller.id, with_for_update=True)
    schema = offered.declared.model_dump_json()
    theirs = select(Dataset).where(Dataset.owner_id == caller.id, Dataset.at_site == at_site)
    former = session.scalars(theirs.order_by(Dataset.created_at.desc()).limit(1)).one_or_none()
    if former is not None and former.deleted_at is None:
        if (former.n, former.dataset_schema) != (offered.n, schema):
            raise Invalid("It was offered with another schema or number of records. Withdraw that first.")
        return former
    dataset_id = new_id("ds")
    dataset = Dataset(
        id=dataset_id,
        owner_id=caller.id,
        name=offered.name,
        kind=offered.declared.kind,
        dataset_schema=schema,
        n=offered.n,
        fingerprint=hashlib.sha256(dataset_id.encode()).hexdigest(),  # that no rows have
        lineage=dataset_id if former is None else former.lineage,
        at_site=at_site,
    )
    session.add(dataset)
    session.flush()
    ledger.ensure_account(session, caller.id, "dataset", dataset.lineage)
    details = {"name": offered.name, "n": offered.n, "at_site": at_site}
    acts.record(session, caller.id, "dataset.made", subject=dataset_id, details=details)
    return dataset


def questions(session: Session, owner_id: str) -> list[SiteQuestion]:
    """The questions that wait for an owner's site, or are run there, oldest first."""
    whole = aliased(Job)
    found = session.execute(
        select(Job, whole, JointRun, Dataset, SitePart)
        .join(whole, whole.id == func.coalesce(Job.part_of, Job.id))
        .join(JointRun, JointRun.job_id == whole.id)
        .join(Dataset, Dataset.id == Job.dataset_id)
        .outerjoin(SitePart, SitePart.job_id == Job.id)
        .where(
            Job.owner_id == owner_id,
            Job.state.in_(("reserved", "claimed")),
            Dataset.at_site.is_not(None),
            JointRun.hub_job.is_(None),
            SitePart.state.is_distinct_from("ended"),
        )
        .order_by(Job.created_at, Job.id)
    )
    return [
        SiteQuestion(
            job=own.id,
            dataset=str(dataset.at_site),
            kind=own.kind,
            place=own.place or 0,
            state=_state(asked, part),
            asked=json.loads(joint.terms),
            plan=hashlib.sha256(asked.plan.encode()).hexdigest(),
            seed=seed_of(asked),
            versions=versions(),
        )
        for own, asked, joint, dataset, part in found
    ]


def _state(whole: Job, part: SitePart | None) -> SiteState:
    return "asked" if part is None else "begun" if whole.state == "claimed" else "accepted"


def seed_of(whole: Job) -> int:
    """A public number that all sites of a question have alike."""
    return int.from_bytes(hashlib.sha256(whole.id.encode()).digest()[:6])


def accept(session: Session, caller: Principal, job_id: str, lease: timedelta) -> SiteState:
    """A site has charged its ledger and would run its part; the last one to say so claims the job for all.

    Raises:
        SessionOver: the question was given back, or is over.
    """
    own, whole = _held(session, caller, job_id)
    if whole.state not in ("reserved", "claimed"):
        raise SessionOver
    parts = jobs.parts_of(session, whole) or [whole]
    if session.get(SitePart, own.id) is None:
        plan = stored_plan(whole.kind, whole.plan)
        assert plan is not None and not isinstance(plan, Part)  # noqa: S101, PT018 - it was made here
        weight = plan.weights[own.place or 0] if isinstance(plan, Federated) else 1.0
        answers = sum(release.count for release in plan.releases)
        session.add(SitePart(job_id=own.id, state="accepted", weight=weight, answers=answers))
        session.flush()
    if whole.state == "reserved":
        accepted = jobs.site_parts(session, *(part.id for part in parts))
        if len(accepted) == len(parts) and not jobs.frozen_meanwhile(session, whole):
            jobs.claim(session, whole, lease)
    return _state(whole, session.get(SitePart, own.id))


def refuse(session: Session, caller: Principal, job_id: str, reason: str | None) -> None:
    """A site does not take part, or not any more: what was not begun is given back, all else is over."""
    own, whole = _held(session, caller, job_id)
    part = session.get(SitePart, own.id)
    if part is None:
        part = SitePart(job_id=own.id, weight=0.0, answers=0)
        session.add(part)
    if part.state == "ended" or whole.state not in ("reserved", "claimed"):
        return
    part.state, part.reason = "refused", reason
    session.flush()
    if not charges.void(session, whole.id):
        jobs.fail(session, whole.id)


def take_answer(
    session: Session, caller: Principal, job_id: str, number: int, label: str, numbers: bytes
) -> str:
    """Note a site's noisy answer, once; the same one again changes nothing.

    What is not as the plan or the other sites have it ends the run: the answer would be nobody's.

    Returns:
        the id of the whole job.

    Raises:
        SessionOver: the run is over, or ends by this.
    """
    own, whole = _held(session, caller, job_id)
    part = session.get(SitePart, own.id)
    if part is None or part.state != "accepted" or whole.state != "claimed":
        raise SessionOver
    known = session.get(SiteAnswer, (own.id, number))
    if known is not None and (known.label, known.numbers) == (label, numbers):
        return whole.id
    before = session.get(SiteAnswer, (own.id, number - 1)) if number else None
    others = session.scalars(
        select(SiteAnswer)
        .join(Job, Job.id == SiteAnswer.job_id)
        .where(Job.part_of == whole.id, SiteAnswer.number == number)
        .limit(1)
    )
    if (
        known is not None
        or number >= part.answers
        or (number and before is None)
        or not _is_answer(numbers)
        or any((other.label, len(other.numbers)) != (label, len(numbers)) for other in others)
    ):
        part.state, part.reason = "refused", "It sent what is no answer of this run."
        jobs.fail(session, whole.id)
        return ""
    session.add(SiteAnswer(job_id=own.id, number=number, label=label, numbers=numbers))
    session.flush()
    return whole.id


def _is_answer(numbers: bytes) -> bool:
    if not numbers or len(numbers) % 8 or len(numbers) > 8 * _LARGEST:
        return False
    return bool((np.abs(np.frombuffer(numbers, _BYTES)) <= _FURTHEST).all())


def pooled(session: Session, whole_id: str, number: int) -> bytes | None:
    """The weighted sum of all sites' answers of a number; None until all are there.

    Raises:
        SessionOver: the run is over.
    """
    state = session.scalar(select(Job.state).where(Job.id == whole_id))
    found = _weighted(session, whole_id, number)
    if found is None and state != "claimed":
        raise SessionOver
    return found and found[1].astype(_BYTES).tobytes()


def _weighted(session: Session, whole_id: str, number: int) -> tuple[str, Array] | None:
    """What was asked for a number, and the weighted sum of the answers, in the order of the datasets."""
    found = session.execute(
        select(SitePart.weight, SiteAnswer.label, SiteAnswer.numbers)
        .select_from(Job)
        .join(SitePart, SitePart.job_id == Job.id)
        .outerjoin(SiteAnswer, (SiteAnswer.job_id == Job.id) & (SiteAnswer.number == number))
        .where(Job.part_of == whole_id)
        .order_by(Job.place)
    ).all()
    if not found or any(numbers is None for _, _, numbers in found):
        return None
    answers = [np.frombuffer(numbers, _BYTES).astype(np.float64) for _, _, numbers in found]
    return found[0].label, weighted(answers, [weight for weight, _, _ in found])


def end(session: Session, caller: Principal, job_id: str, ended: SiteEnd) -> None:
    """A site's run is over: its receipt is kept, and once all have ended the answer can be computed.

    Raises:
        Invalid: the receipt is not signed, or the answer is none of this kind.
        SessionOver: the run is over.
    """
    own, whole = _held(session, caller, job_id)
    part = session.get(SitePart, own.id)
    if part is None or part.state == "refused" or whole.state not in ("claimed", "committed"):
        raise SessionOver
    if part.state == "ended":
        return
    if not _is_signed(ended.receipt):
        raise Invalid("The receipt is not signed by the key that it names.")
    part.state, part.receipt = "ended", ended.receipt.model_dump_json()
    if own is whole:
        part.result = _result(whole, ended.result)
    session.flush()
    ids = [each.id for each in jobs.parts_of(session, whole) or [whole]]
    if all(each.state == "ended" for each in jobs.site_parts(session, *ids)):
        session.get_one(JointRun, whole.id).state = "ready"
        session.flush()


def _is_signed(receipt: Receipt) -> bool:
    """Whether a receipt carries a true signature of the key that it names, whatever is in either."""
    try:
        return signed_by(receipt, receipt.public_key)
    except ValueError:  # it is no key, or no numbers that JSON holds
        return False


def _result(job: Job, result: Any) -> str:
    """The answer of a site that ran a question alone, if it is one of this kind.

    Raises:
        Invalid: it is none.
    """
    fields = KINDS[job.kind].job.model_fields
    try:
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        told = read_answer(stored_plan(job.kind, job.plan), text)
        for name in ("estimate", "uncertainty"):
            typed: Any = fields[name].annotation
            shown: TypeAdapter[Any] = TypeAdapter(typed)
            shown.validate_python(getattr(told, name))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise Invalid("This is no answer to the question.") from None
    return text


def record_of(session: Session, whole: Job) -> str:
    """The pooled answers of a run, as JSON: what was asked and the numbers, in order."""
    found = list[tuple[str, str]]()
    while (answer := _weighted(session, whole.id, len(found))) is not None:
        found.append((answer[0], b64encode(answer[1].astype(_BYTES).tobytes()).decode()))
    return json.dumps(found)


def _held(session: Session, caller: Principal, job_id: str) -> tuple[Job, Job]:
    """A job on the caller's dataset at a site, or its part of one, and the whole, which is held.

    Raises:
        NotFound: the caller has none.
    """
    own = session.get(Job, job_id)
    if own is None or own.owner_id != caller.id:
        raise NotFound
    whole_id = own.part_of or own.id
    joint = jobs.joint_run(session, whole_id)
    if joint is None or joint.hub_job is not None:
        raise NotFound
    held = select(Job).where(Job.id == whole_id).with_for_update()
    return own, session.scalars(held.execution_options(populate_existing=True)).one()
