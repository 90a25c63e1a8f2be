"""What runs a job that a hub and sites have together."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from privest_service.estimates.engine import Run
from privest_service.estimates.tasks import run_job
from privest_service.jobs.models import Job, JointRun, SitePart
from privest_service.sites import hub, pooling
from privest_service.sites.link import Hub
from privest_service.sites.tasks import join_job, replay_job, result_job


def joint_runs(to: Hub | None, session: Session, job: Job, joint: JointRun, given: Sequence[str]) -> Run:
    """What runs a joint job here: at a hub the answer is computed, at a site a part is taken.

    Args:
        to: the hub of this site; None where it has none.
        session: of the claim.
        job: the job.
        joint: what is noted of its run.
        given: the permit, and the paths of the rows.
    """
    if joint.hub_job is None:
        if job.dataset_id is not None:
            return Run(result_job, [str(session.get_one(SitePart, job.id).result)], again=True)
        record, left = pooling.record_of(session, job), pooling.left_of(session, job)
        return Run(replay_job, [job.kind, job.plan, record, str(hub.seed_of(job)), left], again=True)
    if job.dataset_id is not None or to is None:
        return Run(run_job, [job.kind, job.plan, *given])
    return Run(join_job, [job.kind, job.plan, joint.terms, to.as_json(), *given])
