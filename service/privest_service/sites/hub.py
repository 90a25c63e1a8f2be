"""What a hub does: it notes offers, hands questions to sites, and brings their noisy answers together.

Every function works inside the caller's transaction. A site is the owner of its datasets here, and calls a
question by the job, or the part of one, that is on its dataset.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session, aliased

from privest.estimators.federation import Federated, Part
from privest_service import acts
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.views import WITHOUT, read_answer
from privest_service.inputs import require_printable
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun, SiteAnswer, SitePart
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import versions
from privest_service.ledger.receipts import Receipt, digest_of, digest_of_plan, signed_by
from privest_service.problems import Invalid, NotFound, SessionOver
from privest_service.security.models import Owner
from privest_service.security.principals import Principal
from privest_service.sites import pooling
from privest_service.sites.schemas import (
    LARGEST_LISTED,
    MOST_OFFERED,
    MOST_QUESTIONS,
    OfferedDataset,
    SiteEnd,
    SiteQuestion,
    SiteQuestions,
    SiteState,
)

_OVER = ("ended", "left")
"""States of sites that have nothing more to do with a run that goes on."""

_own, _whole = aliased(Job), aliased(Job)


def _of_owner(*told: Any) -> Select[*tuple[Any, ...]]:
    """What is told of an owner's own jobs or parts of jobs, the whole ones, and their runs."""
    return (
        select(*told)
        .select_from(_own)
        .join(_whole, _whole.id == func.coalesce(_own.part_of, _own.id))
        .join(JointRun, JointRun.job_id == _whole.id)
        .where(_own.owner_id == bindparam("owner"), JointRun.hub_job.is_(None))
    )


def _holding(*told: Any) -> Select[*tuple[Any, ...]]:
    """Select the same of one, whose whole job is held from then on, and so is as it is told."""
    one = _of_owner(*told).where(_own.id == bindparam("job"))
    return one.with_for_update(of=_whole, key_share=True).execution_options(populate_existing=True)


# Made once, as in `pooling`.
_HELD, _HELD_ID = _holding(_own, _whole), _holding(_whole.id)
_ASKED = (
    _of_owner(_own, _whole, JointRun, Dataset, SitePart)
    .join(Dataset, Dataset.id == _own.dataset_id)
    .outerjoin(SitePart, SitePart.job_id == _own.id)
    .where(
        _own.state.in_(("reserved", "claimed")),
        Dataset.at_site.is_not(None),
        func.coalesce(SitePart.state, "").not_in(_OVER),
    )
    .order_by(_own.created_at, _own.id)
    .limit(MOST_QUESTIONS)
)


def offer(session: Session, caller: Principal, at_site: str, offered: OfferedDataset) -> Dataset:
    """Note a dataset that stays at a site; the same offer again changes nothing.

    One that was withdrawn and is offered again is another dataset, with the caps of the former.

    Raises:
        Invalid: it was offered with other public facts, which plans and charges rest on, a name in the schema
            is not printable, or the site offers as many datasets as one may.
    """
    session.get_one(Owner, caller.id, with_for_update=True)
    schema = offered.declared.model_dump_json()
    theirs = select(Dataset).where(Dataset.owner_id == caller.id, Dataset.at_site == at_site)
    former = session.scalars(theirs.order_by(Dataset.created_at.desc()).limit(1)).one_or_none()
    if former is not None and former.deleted_at is None:
        if (former.n, former.dataset_schema) != (offered.n, schema):
            raise Invalid("It was offered with another schema or number of records. Withdraw that first.")
        return former
    offers = select(func.count()).where(
        Dataset.owner_id == caller.id, Dataset.at_site.is_not(None), Dataset.deleted_at.is_(None)
    )
    if (session.scalar(offers) or 0) >= MOST_OFFERED:
        raise Invalid(f"A site offers at most {MOST_OFFERED:,} datasets. Withdraw one that is not needed.")
    require_printable(offered.declared.model_dump(mode="json", by_alias=True), ("schema",))
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


def questions(session: Session, owner_id: str) -> SiteQuestions:
    """List the questions that wait for an owner's site, or are run there, oldest first.

    The list ends where it would be longer than a site takes. What is listed stays so until it is over,
    because whatever comes later is listed after it. A question that all have accepted while another run was
    under way is asked about once more when that is over.
    The mark does not change by what the site itself decided, so that its next look waits for the others.
    """
    found = session.execute(_ASKED, {"owner": owner_id})
    listed, told, size = list[SiteQuestion](), list[str](), 0
    for own, asked, joint, dataset, part in found:
        size += len(joint.terms.encode())
        if listed and size > LARGEST_LISTED:
            break
        anew = part is not None and _may_begin(session, asked)
        state = "asked" if anew else _state(asked, part)
        told.append(f"{own.id} {state == 'begun'} {anew}")
        listed.append(
            SiteQuestion(
                job=own.id,
                dataset=str(dataset.at_site),
                kind=own.kind,
                place=own.place or 0,
                state=state,
                asked=json.loads(joint.terms),
                plan=hashlib.sha256(asked.plan.encode()).hexdigest(),
                seed=seed_of(asked),
                versions=versions(),
            )
        )
    return SiteQuestions(questions=listed, mark=hashlib.sha256(" ".join(told).encode()).hexdigest())


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
        several = isinstance(plan, Federated)
        weight = plan.weights[own.place or 0] if several else 1.0
        # Of the whole course: whoever takes no part in a round exchanges its last answer there.
        answers = sum(release.count for release in (plan.course if several else plan).releases)
        session.add(SitePart(job_id=own.id, state="accepted", weight=weight, answers=answers))
        session.flush()
    if whole.state == "reserved":
        _hold_owners(session, parts)
        if _may_begin(session, whole) and not jobs.frozen_meanwhile(session, whole):
            jobs.claim(session, whole, lease)
    return _state(whole, session.get(SitePart, own.id))


def _hold_owners(session: Session, parts: Sequence[Job]) -> None:
    """Hold the owners of these jobs until the transaction ends, so that no other run of theirs begins."""
    owners = select(Owner.id).where(Owner.id.in_({part.owner_id for part in parts})).order_by(Owner.id)
    session.execute(owners.with_for_update())


def _may_begin(session: Session, whole: Job) -> bool:
    """Whether all sites have accepted a question and none of them is in another run.

    Two runs that sites take up in another order would wait for each other.
    """
    parts = jobs.parts_of(session, whole) or [whole]
    if whole.state != "reserved" or len(jobs.site_parts(session, *(part.id for part in parts))) < len(parts):
        return False
    other = aliased(Job)
    under_way = (
        select(Job.id)
        .join(other, other.id == func.coalesce(Job.part_of, Job.id))
        .join(JointRun, JointRun.job_id == other.id)
        .where(
            Job.owner_id.in_({part.owner_id for part in parts}),
            other.state == "claimed",
            JointRun.state == "waiting",
            JointRun.hub_job.is_(None),
        )
    )
    return session.scalar(under_way.limit(1)) is None


def refuse(session: Session, caller: Principal, job_id: str, reason: str | None) -> list[str]:
    """A site does not take part, or not any more: what was not begun is given back, all else is over.

    A run of which sites may stay away goes on without it.

    Returns:
        ids of the parts of all sites.
    """
    own, whole = _held(session, caller, job_id)
    parts = [each.id for each in jobs.parts_of(session, whole) or [whole]]
    part = session.get(SitePart, own.id)
    if part is None:
        part = SitePart(job_id=own.id, state="asked", weight=0.0, answers=0)
        session.add(part)
    if part.state in _OVER or whole.state not in ("reserved", "claimed"):
        return parts
    if not _go_on_without(session, whole, [part], reason or "It did not go on."):
        part.state, part.reason = "refused", reason
        session.flush()
        if not charges.void(session, whole.id):
            jobs.fail(session, whole.id)
    return parts


def _go_on_without(session: Session, whole: Job, leaving: Sequence[SitePart], reason: str) -> bool:
    """Have a run go on without sites, if the question allows that so many stay away.

    What they gave counts up to the first answer that one of them did not give: it is noted in `answers`, as
    all that a site gets must be the same bits whenever it asks.
    """
    allowed = json.loads(session.get_one(JointRun, whole.id).terms).get("may_leave", 0)
    if whole.state != "claimed" or not allowed:
        return False
    parts = jobs.site_parts(session, *(part.id for part in jobs.parts_of(session, whole)))
    if sum(part.state == "left" for part in parts) + len(leaving) > allowed:
        return False
    for part in leaving:
        given = select(func.count()).where(SiteAnswer.job_id == part.job_id)
        part.state, part.reason, part.answers = "left", reason, session.scalar(given) or 0
    session.flush()
    _note_end(session, whole)
    return True


def leave_behind(session: Session, whole_id: str, number: int) -> bool:
    """Go on without the sites that have not given an answer which others have, if so many may stay away."""
    held = select(Job).where(Job.id == whole_id).with_for_update(key_share=True)
    whole = session.scalars(held.execution_options(populate_existing=True)).one()
    parts = jobs.site_parts(session, *(part.id for part in jobs.parts_of(session, whole)))
    missing = [
        part
        for part in parts
        if part.state == "accepted" and session.get(SiteAnswer, (part.job_id, number)) is None
    ]
    staying = sum(part.state == "accepted" for part in parts) - len(missing)
    return bool(missing and staying) and _go_on_without(session, whole, missing, "It stayed away.")


class Taken(NamedTuple):
    """An answer that was taken, or ended the run.

    Attributes:
        whole: id of the whole job.
        parts: ids of the parts of all sites.
        pooled: the weighted sum of all sites' answers, once it was the last one.
        over: whether it was no answer of this run, which is over by that.
    """

    whole: str
    parts: Sequence[str]
    pooled: bytes | None
    over: bool


def take_answer(
    session: Session, caller: Principal, job_id: str, number: int, label: str, numbers: bytes
) -> Taken:
    """Note a site's noisy answer, once; the same one again changes nothing.

    It is written down before it counts: a hub that lost what went into a sum that a site was told would ask
    that site for it in vain. Whoever is the last to answer holds the job, and so sees what all others gave.
    What is not as the plan or the other sites have it ends the run: the answer would be nobody's.

    Raises:
        NotFound: the caller has no such part.
        SessionOver: the run is over.
    """
    held = session.execute(_HELD_ID, {"job": job_id, "owner": caller.id}).one_or_none()
    if held is None:
        raise NotFound
    parts = pooling.parts_at(session, held.id, number)
    ids = [part.job_id for part in parts]
    own = next((part for part in parts if part.job_id == job_id), None)
    if own is None or own.state != "accepted" or own.run != "claimed":
        raise SessionOver
    if (own.label, own.numbers) != (label, numbers):
        others = [(part.label, len(part.numbers)) for part in parts if part.numbers is not None]
        if (
            own.numbers is not None
            or number >= own.answers
            or (number and not own.follows)
            or not pooling.is_answer(numbers)
            or any(other != (label, len(numbers)) for other in others)
        ):
            # Whoever is wrong, and whatever the question says of sites that stay away: this one is not away.
            part = session.get_one(SitePart, job_id)
            part.state, part.reason = "refused", "It sent what is no answer of this run."
            jobs.fail(session, held.id)
            return Taken(held.id, ids, None, over=True)
        session.add(SiteAnswer(job_id=job_id, number=number, label=label, numbers=numbers))
        parts[ids.index(job_id)] = own._replace(label=label, numbers=numbers)
    found = pooling.sum_of(parts, number)
    return Taken(held.id, ids, None if found is None else pooling.as_bytes(found), over=False)


def end(session: Session, caller: Principal, job_id: str, ended: SiteEnd) -> None:
    """Note that a site's run is over, with its receipt. Once all have ended the answer can be computed.

    Raises:
        Invalid: the receipt is not one of this job, or the answer is none of this kind.
        SessionOver: the run is over.
    """
    own, whole = _held(session, caller, job_id)
    part = session.get(SitePart, own.id)
    if part is None or part.state in ("refused", "left") or whole.state not in ("claimed", "committed"):
        raise SessionOver
    if part.state == "ended":
        return
    dataset = session.get_one(Dataset, own.dataset_id)
    _require_receipt(ended.receipt, own, whole, str(dataset.at_site))
    part.state, part.receipt = "ended", ended.receipt.model_dump_json()
    if own is whole:
        part.result = result = _result(whole, ended.result)
        if ended.receipt.statement.answer != digest_of(result):
            raise Invalid("The receipt is for another answer than the one that was sent.")
    session.flush()
    _note_end(session, whole)


def _note_end(session: Session, whole: Job) -> None:
    """Have a run's answer computed, if all sites that stayed have ended theirs."""
    ids = [each.id for each in jobs.parts_of(session, whole) or [whole]]
    if all(each.state in _OVER for each in jobs.site_parts(session, *ids)):
        session.get_one(JointRun, whole.id).state = "ready"
        session.flush()


def _require_receipt(receipt: Receipt, own: Job, whole: Job, dataset: str) -> None:
    """Refuse a receipt that is not an analyst's, of this job, plan, estimator and dataset, truly signed.

    The statement names the job of the hub for which it was signed, so the receipt of one job is of no other.

    Args:
        receipt: that the site sent.
        own: the job, or the part of one, that is on the site's dataset.
        whole: the whole job, whose plan the site came to.
        dataset: id of the dataset at the site.

    Raises:
        Invalid: it is another receipt.
    """
    told = receipt.statement
    expected = (own.id, whole.kind, digest_of_plan(whole.plan), dataset)
    if (told.hub_job, told.kind, told.plan, told.dataset) != expected or told.entries:
        raise Invalid("The receipt is for another job, plan, estimator or dataset. Send the one of this job.")
    try:
        signed = signed_by(receipt, receipt.public_key)
    except ValueError:  # it has no key, or numbers that JSON does not hold
        signed = False
    if not signed:
        raise Invalid("The receipt is not signed by the key that it names.")


def _result(job: Job, result: Any) -> str:
    """The answer of a site that ran a question alone, if it is one of this kind.

    Raises:
        Invalid: it is none.
    """
    fields = KINDS[job.kind].job.model_fields
    try:
        if WITHOUT in result:
            raise Invalid("A question on one dataset is not answered without it.")
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        told = read_answer(stored_plan(job.kind, job.plan), text)
        for name in ("estimate", "uncertainty"):
            typed: Any = fields[name].annotation
            shown: TypeAdapter[Any] = TypeAdapter(typed)
            shown.validate_python(getattr(told, name))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise Invalid("This is no answer to the question.") from None
    return text


def _held(session: Session, caller: Principal, job_id: str) -> tuple[Job, Job]:
    """A job on the caller's dataset at a site, or its part of one, and the whole, which is held.

    Raises:
        NotFound: the caller has none.
    """
    found = session.execute(_HELD, {"job": job_id, "owner": caller.id}).one_or_none()
    if found is None:
        raise NotFound
    own, whole = found
    return own, whole
