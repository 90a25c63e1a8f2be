"""How a hub brings the noisy answers of sites together, inside the caller's transaction."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, aliased

from privest.arrays import Array
from privest.optim.pooling import weighted
from privest_service.estimates.questions import MOST_NUMBERS
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, SiteAnswer, SitePart
from privest_service.problems import SessionOver

_BYTES = np.dtype("<f8")
"""Numbers on the wire: float64, the lowest byte first."""

_FURTHEST = 1e100
"""Largest number in an answer."""

_whole, _before = aliased(Job), aliased(SiteAnswer)

_PARTS = (  # made once: to make it takes longer than the database does
    select(
        *(Job.id, _whole.state, SitePart.state, SitePart.weight, SitePart.answers),
        *(_before.number.is_not(None), SiteAnswer.label, SiteAnswer.numbers),
    )
    .select_from(Job)
    .join(_whole, _whole.id == Job.part_of)
    .join(SitePart, SitePart.job_id == Job.id)
    .outerjoin(SiteAnswer, (SiteAnswer.job_id == Job.id) & (SiteAnswer.number == bindparam("number")))
    .outerjoin(_before, (_before.job_id == Job.id) & (_before.number == bindparam("number") - 1))
    .where(Job.part_of == bindparam("whole"))
    .order_by(Job.place)
)


class GivenPart(NamedTuple):
    """What a site gave for one number of a run.

    Attributes:
        job_id: of its part.
        run: state of the whole job.
        state: of its part.
        weight: of its answers.
        answers: most of them that its plan allows; of one that left, as many as count.
        follows: whether it gave an answer of the number before.
        label: what was asked; None where it has given nothing.
        numbers: its answer, likewise.
    """

    job_id: str
    run: str
    state: str
    weight: float
    answers: int
    follows: bool
    label: str | None
    numbers: bytes | None


def parts_at(session: Session, whole_id: str, number: int) -> list[GivenPart]:
    """What all sites gave for a number, in the order of the datasets."""
    found = session.execute(_PARTS, {"whole": whole_id, "number": number})
    return [GivenPart(*row) for row in found]


def sum_of(parts: Sequence[GivenPart], number: int) -> Array | None:
    """The weighted sum of all sites' answers of a number; None until all are there."""
    found = [part for part in parts if part.state != "left" or part.answers > number]
    answers = [np.frombuffer(part.numbers, _BYTES) for part in found if part.numbers is not None]
    if not found or len(answers) < len(found):
        return None
    weights = [part.weight for part in found]
    if len(found) < len(parts):  # the others' weights add up to one again
        weights = [weight / sum(weights) for weight in weights]
    return weighted([answer.astype(np.float64) for answer in answers], weights)


def as_bytes(numbers: Array) -> bytes:
    """Numbers as they are on the wire."""
    return numbers.astype(_BYTES).tobytes()


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
    parts = parts_at(session, whole_id, number)
    found = sum_of(parts, number)
    if found is None and any(part.run != "claimed" for part in parts):
        raise SessionOver
    return None if found is None else as_bytes(found)


def record_of(session: Session, whole: Job) -> str:
    """The pooled answers of a run, as JSON: what was asked and the numbers, in order."""
    found = list[tuple[str, str]]()
    while (answer := sum_of(parts := parts_at(session, whole.id, len(found)), len(found))) is not None:
        label = next(part.label for part in parts if part.label is not None)
        found.append((label, b64encode(as_bytes(answer)).decode()))
    return json.dumps(found)


def left_of(session: Session, whole: Job) -> str:
    """The places of the sites that left a run before its end, as JSON."""
    parts = {part.id: part.place for part in jobs.parts_of(session, whole)}
    left = [parts[part.job_id] for part in jobs.site_parts(session, *parts) if part.state == "left"]
    return json.dumps(sorted(place or 0 for place in left))
