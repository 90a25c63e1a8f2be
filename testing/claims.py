"""Claims of jobs without an engine."""

from datetime import timedelta

from sqlalchemy.orm import Session

from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job


def claim_next(session: Session, lease: timedelta) -> Job | None:
    """Claim the job that is next, if there is one."""
    job = jobs.next_waiting(session)
    return job and jobs.claim(session, job, lease)
