"""How a hub brings the noisy answers of sites together, inside the caller's transaction."""

import json
from base64 import b64encode

import numpy as np
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from privest.arrays import Array
from privest.optim.pooled import weighted
from privest_service.estimates.joint import MOST_NUMBERS
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, SiteAnswer, SitePart
from privest_service.problems import SessionOver

_BYTES = np.dtype("<f8")
"""Numbers on the wire: float64, the lowest byte first."""

_FURTHEST = 1e100
"""Largest number in an answer."""


def is_answer(numbers: bytes) -> bool:
    """Whether bytes are numbers that an answer may have."""
    if not numbers or len(numbers) % 8 or len(numbers) > 8 * MOST_NUMBERS:
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
        .where(Job.part_of == whole_id, or_(SitePart.state != "left", SitePart.answers > number))
        .order_by(Job.place)
    ).all()
    if not found or any(numbers is None for _, _, numbers in found):
        return None
    answers = [np.frombuffer(numbers, _BYTES).astype(np.float64) for _, _, numbers in found]
    weights = [weight for weight, _, _ in found]
    if len(found) < _datasets(session, whole_id):  # the others' weights add up to one again
        weights = [weight / sum(weights) for weight in weights]
    return found[0].label, weighted(answers, weights)


def _datasets(session: Session, whole_id: str) -> int:
    return session.scalar(select(func.count()).where(Job.part_of == whole_id)) or 0


def record_of(session: Session, whole: Job) -> str:
    """The pooled answers of a run, as JSON: what was asked and the numbers, in order."""
    found = list[tuple[str, str]]()
    while (answer := _weighted(session, whole.id, len(found))) is not None:
        found.append((answer[0], b64encode(answer[1].astype(_BYTES).tobytes()).decode()))
    return json.dumps(found)


def left_of(session: Session, whole: Job) -> str:
    """The places of the sites that left a run before its end, as JSON."""
    parts = {part.id: part.place for part in jobs.parts_of(session, whole)}
    left = [parts[part.job_id] for part in jobs.site_parts(session, *parts) if part.state == "left"]
    return json.dumps(sorted(place or 0 for place in left))
