"""The job queue: jobs wait, are claimed, and end. Every function works inside the caller's transaction.

reserved → claimed → committed | failed, and reserved → voided. The claim is the point of no return: from
there on the charge is final, whatever happens to the job. What a job is charged is the ledger's business.

A job that has to be approved comes before that: requested → reserved | denied | expired | withdrawn.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from privest_service.database import now, once_committed
from privest_service.database.tables import behind, cursor_at
from privest_service.jobs.models import Decision, IdempotencyKey, Job, JointRun, SitePart, Transition
from privest_service.notices import service as notices
from privest_service.problems import Unavailable
from privest_service.security.models import Owner
from privest_service.telemetry import metrics

_WHOLE = Job.part_of.is_(None)
"""Condition on jobs: they are whole jobs, not parts of one. Parts follow the whole."""

_PART = aliased(Job)

_HELD = and_(
    ~Job.dummy,
    or_(
        exists().where(Owner.id == Job.owner_id, Owner.frozen_by.is_not(None)),
        exists().where(
            # Said twice, as a database that looks up all parts at once finds them by their index then.
            _PART.part_of.is_not(None),
            _PART.part_of == Job.id,
            Owner.id == _PART.owner_id,
            Owner.frozen_by.is_not(None),
        ),
    ),
)
"""Condition on jobs: an owner whose rows they read is frozen."""

RESERVED = and_(Job.state == "reserved", _WHOLE, ~_HELD)
"""Condition on jobs: they are charged, and wait for a worker or for sites."""

_WAITING = and_(RESERVED, ~exists().where(JointRun.job_id == Job.id, JointRun.state == "waiting"))
"""Condition on jobs: they wait for nothing but a worker."""


_ENDED_AT_SITES = (
    select(Job, JointRun)
    .join(JointRun, JointRun.job_id == Job.id)
    .where(Job.state == "claimed", JointRun.state == "ready", JointRun.hub_job.is_(None))
)
"""Selects the jobs at a hub that have to be computed from what the sites gave."""


def add(session: Session, job: Job, key: IdempotencyKey, parts: Sequence[Job] = ()) -> None:
    """Write a job with its parts, and the key under which it was asked for. Nobody is charged here."""
    session.add_all([job, *parts])
    session.flush()  # before what refers to them
    session.add_all([key, *(Transition(job_id=each.id, state=job.state) for each in (job, *parts))])


def submitted(
    session: Session,
    submitter_id: str,
    *conditions: ColumnElement[bool],
    dataset_id: str | None = None,
    limit: int = 100,
    cursor: str = "",
) -> tuple[list[Job], str | None]:
    """Questions of a submitter, newest first, and the cursor of those that follow.

    Args:
        session: to read in.
        submitter_id: who asked.
        conditions: on the jobs.
        dataset_id: that they are about, alone or with others.
        limit: most that are listed.
        cursor: tells where an earlier list ended.
    """
    theirs = select(Job).where(Job.submitter_id == submitter_id, _WHOLE, *conditions)
    if dataset_id is not None:
        parts = select(Job.part_of).where(Job.dataset_id == dataset_id, Job.part_of.is_not(None))
        theirs = theirs.where(or_(Job.dataset_id == dataset_id, Job.id.in_(parts)))
    if cursor:
        theirs = theirs.where(behind(cursor, Job.created_at, Job.id))
    found = list(session.scalars(theirs.order_by(Job.created_at.desc(), Job.id).limit(limit + 1)))
    listed = found[:limit]
    return listed, cursor_at(listed[-1].created_at, listed[-1].id) if found[limit:] else None


def voided_lately(session: Session, submitter_id: str, since: datetime) -> int:
    """How many questions of a submitter were given back since then."""
    entered = and_(Transition.job_id == Job.id, Transition.state == "voided", Transition.at > since)
    theirs = select(func.count()).select_from(Job).join(Transition, entered)
    return session.scalar(theirs.where(Job.submitter_id == submitter_id, _WHOLE)) or 0


def queue(session: Session) -> tuple[int, float]:
    """Count the jobs that wait for a worker, and the seconds that the oldest of them has waited.

    Jobs of frozen owners are left out: they wait for the freeze to end. The time that a request waited for
    its owner does not count.
    """
    entered = and_(Transition.job_id == Job.id, Transition.state == "reserved")
    found = select(func.count(), func.min(Transition.at)).select_from(Job).join(Transition, entered)
    found = found.where(_WAITING)
    count, since = session.execute(found).one()
    return count, max(0.0, (now() - since).total_seconds()) if since else 0.0


def in_states(session: Session, *states: str) -> dict[str, int]:
    """Count the jobs in each of these states. They must be states that no job stays in."""
    counted = select(Job.state, func.count()).where(Job.state.in_(states), _WHOLE).group_by(Job.state)
    return dict.fromkeys(states, 0) | dict(session.execute(counted).all())


def next_waiting(session: Session, not_of: Collection[str] = ()) -> Job | None:
    """The job of whoever has fewest claimed that has waited longest, dummies last: held, to be claimed.

    Jobs of frozen owners, of whose parts one is enough, are passed over. Submitters in `not_of` have their
    share of the workers already.
    """
    while (job := session.scalar(_next(not_of))) is not None:
        if job.dummy or not frozen_meanwhile(session, job):
            return job
    return None


def claim(session: Session, job: Job, lease: timedelta) -> Job | None:
    """Claim a job. From here on its charge is final. It is lost when the lease ends."""
    return move(session, Job.id == job.id, "reserved", "claimed", lease_until=now() + lease)


def take_ended_at_sites(session: Session) -> Job | None:
    """Take a claimed job of which all sites have given their answers, if there is one."""
    found = session.execute(
        _ENDED_AT_SITES.limit(1).with_for_update(skip_locked=True, of=JointRun)
    ).one_or_none()
    if found is None:
        return None
    found.JointRun.state = "taken"
    return found.Job


def joint_run(session: Session, job_id: str) -> JointRun | None:
    """What a hub and its sites need to run a job together; None for all other jobs."""
    return session.get(JointRun, job_id, populate_existing=True)


def frozen_meanwhile(session: Session, job: Job) -> bool:
    """Whether an owner was frozen since the look that found a job: the next look will not find it.

    Owners are held from here on, so that no freeze is answered before the claim is committed.
    """
    owners = [part.owner_id for part in parts_of(session, job)] or [job.owner_id]
    held = select(Owner).where(Owner.id.in_(owners)).order_by(Owner.id).with_for_update(read=True)
    found = session.scalars(held.execution_options(populate_existing=True)).all()
    return any(owner.frozen_by is not None for owner in found)


def _next(not_of: Collection[str]) -> Select[Job]:
    """The job that is to be claimed next, held."""
    under_way = (
        select(Job.submitter_id, func.count().label("jobs"))
        .where(Job.state == "claimed", _WHOLE)
        .group_by(Job.submitter_id)
        .subquery()
    )
    return (
        select(Job)
        .outerjoin(under_way, under_way.c.submitter_id == Job.submitter_id)
        .where(_WAITING, Job.submitter_id.not_in(not_of))
        .order_by(Job.dummy, func.coalesce(under_way.c.jobs, 0), Job.created_at, Job.id)
        .limit(1)
        # Not against keys that charges bind to the job meanwhile. SQLite has one writer and leaves this out.
        .with_for_update(skip_locked=True, of=Job, key_share=True)
        .execution_options(populate_existing=True)
    )


def before(job: Job) -> ColumnElement[bool]:
    """Condition on jobs: they come after this one where the newest are first."""
    return or_(Job.created_at < job.created_at, and_(Job.created_at == job.created_at, Job.id < job.id))


def parts_of(session: Session, job: Job) -> list[Job]:
    """The parts of a job on several datasets, in the order in which these were named; of another none."""
    if job.dataset_id is not None:
        return []
    return list(session.scalars(select(Job).where(Job.part_of == job.id).order_by(Job.place)))


def fail(session: Session, job_id: str) -> bool:
    """End a claimed job without an answer; it stays charged."""
    return move(session, Job.id == job_id, "claimed", "failed") is not None


OVERDUE: Select[str] = select(Job.id).where(Job.state == "claimed", Job.lease_until < bindparam("now"))
"""Selects the claimed jobs whose lease ran out `now`."""

TO_DO: Select[str] = select(literal("")).where(
    or_(
        OVERDUE.exists(),
        select(Job.id).where(_WAITING).exists(),
        _ENDED_AT_SITES.with_only_columns(Job.id).exists(),
    )
)
"""Selects a row if there is a job to be run, or to be ended, `now`: asked once a second, so made once."""


def overdue(session: Session, moment: datetime) -> list[str]:
    """The claimed jobs whose lease ran out: their worker is gone."""
    return list(session.scalars(OVERDUE, {"now": moment}))


def fail_overdue(session: Session, moment: datetime) -> list[str]:
    """End the claimed jobs whose worker is gone."""
    return [job_id for job_id in overdue(session, moment) if fail(session, job_id)]


def abandon(session: Session) -> None:
    """End all jobs that are under way, unanswered and charged: they may have been answered elsewhere.

    Requests end too, uncharged: they may have been decided elsewhere.
    """
    for job_id in session.scalars(select(Job.id).where(Job.state == "requested", _WHOLE)).all():
        move(session, Job.id == job_id, "requested", "expired")
    for job_id in session.scalars(select(Job.id).where(Job.state == "reserved", _WHOLE)).all():
        move(session, Job.id == job_id, "reserved", "claimed")
    for job_id in session.scalars(select(Job.id).where(Job.state == "claimed", _WHOLE)).all():
        fail(session, job_id)


def held_waiting(session: Session, *, dataset_id: str, submitter_id: str | None = None) -> Sequence[str]:
    """The jobs on a dataset, alone or with others, that no worker has: held, by id.

    Without a submitter, everybody's jobs are meant. Requests are ended here: nobody was charged for them.
    """
    whole = func.coalesce(Job.part_of, Job.id)
    states = ("requested", "reserved")
    found = select(whole).where(Job.state.in_(states), Job.dataset_id == dataset_id)
    if submitter_id is not None:
        found = found.where(Job.submitter_id == submitter_id)
    held = select(Job.id).where(Job.id.in_(found), Job.state.in_(states)).order_by(Job.id)
    waiting = session.scalars(held.with_for_update(key_share=True)).all()
    return [job_id for job_id in waiting if move(session, Job.id == job_id, "requested", "withdrawn") is None]


def requests_of(session: Session, submitter_id: str) -> int:
    """Count the jobs of a submitter that wait for an owner's approval."""
    theirs = (Job.state == "requested", Job.submitter_id == submitter_id, _WHOLE)
    return session.scalar(select(func.count()).where(*theirs)) or 0


def site_parts(session: Session, *job_ids: str) -> list[SitePart]:
    """What sites did about these questions, or parts of them."""
    return list(session.scalars(select(SitePart).where(SitePart.job_id.in_(job_ids))))


def expire_requests(session: Session, moment: datetime) -> list[str]:
    """End the requests on which not every owner decided in time."""
    whole = func.coalesce(Job.part_of, Job.id)
    late = select(whole).where(Job.state == "requested", Job.decide_by <= moment).distinct().order_by(whole)
    return [
        job_id
        for job_id in session.scalars(late).all()
        if move(session, Job.id == job_id, "requested", "expired") is not None
    ]


def decisions_on(session: Session, *job_ids: str) -> list[Decision]:
    """What was decided on these requests, or parts of them, by job."""
    return list(
        session.scalars(select(Decision).where(Decision.job_id.in_(job_ids)).order_by(Decision.job_id))
    )


def move(
    session: Session, which: ColumnElement[bool], before: str, after: str, **values: object
) -> Job | None:
    """Move one job from a state to the next, with its parts; None if it was not in that state."""
    job = session.scalar(
        update(Job)
        .where(which, Job.state == before, _WHOLE)
        .values(state=after, **values)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if job is not None:
        parts = parts_of(session, job)
        for part in parts:
            part.state = after
        session.add_all(Transition(job_id=each.id, state=after) for each in (job, *parts))
        session.flush()
        if after not in ("reserved", "claimed"):
            once_committed(session, metrics.JOBS.labels(job.kind, after).inc)
            facts = {"question": job.id, "estimate": job.kind, "state": after}
            facts |= {"tag": job.tag} if job.tag else {}
            notices.notify(session, job.submitter_id, "question.ended", facts)
    return job


_BOUND = select(IdempotencyKey).where(
    IdempotencyKey.principal_id == bindparam("principal"),
    IdempotencyKey.key.in_(bindparam("keys", expanding=True)),
)


def bound_to(session: Session, principal_id: str, keys: Collection[str]) -> dict[str, IdempotencyKey]:
    """Return the records of a principal's idempotency keys that are bound to jobs, by key."""
    found = session.scalars(_BOUND, {"principal": principal_id, "keys": list(keys)})
    return {each.key: each for each in found}


_ANSWERING = (
    select(Job.id)
    .where(
        Job.submitter_id == bindparam("submitter"),
        Job.spec_digest == bindparam("digest"),
        Job.state.in_(("requested", "reserved", "claimed", "committed")),
        Job.created_at >= bindparam("since"),
    )
    .order_by(Job.created_at, Job.id)
    .limit(1)
)


def answer_to(session: Session, submitter_id: str, digest: str, since: datetime) -> str | None:
    """The oldest job of a submitter since then that answers a query with this digest, or is about to."""
    return session.scalar(_ANSWERING, {"submitter": submitter_id, "digest": digest, "since": since})


_COUNTED = select(
    func.count(),
    func.count().filter(Job.submitter_id == bindparam("submitter")),
    func.count().filter(Job.submitter_id == bindparam("submitter"), Job.dummy),
).where(RESERVED)
"""Counts the jobs that wait to be run: all, a submitter's, and its own that are free."""


def require_room(session: Session, submitter_id: str, most: int, *, dummy: bool, more: int = 1) -> None:
    """Keep the queue short, at `most`, and room in it for others whatever one caller asks.

    Raises:
        Unavailable: too many jobs wait, or too many of this submitter, or of its dummies.
    """
    everybodys, own, dummies = session.execute(_COUNTED, {"submitter": submitter_id}).one()
    if everybodys + more > most:
        raise Unavailable("Too many jobs are waiting. Try again later.", retry_after=5)
    if own + more > max(2, most // 4) or (dummy and dummies >= max(1, most // 100)):
        raise Unavailable(
            "Too many of your jobs are waiting. Try again when some of them have ended.", retry_after=5
        )
