"""How many jobs wait to be run, and whether there is room for one more."""

from collections import Counter
from collections.abc import Collection

from sqlalchemy import bindparam, case, func, select
from sqlalchemy.orm import Session

from privest_service.jobs.models import Job
from privest_service.jobs.service import RESERVED
from privest_service.problems import Unavailable

_THEIRS = Job.submitter_id.in_(bindparam("submitters", expanding=True))
_COUNTED = (
    select(case((_THEIRS, Job.submitter_id)).label("theirs"), func.count(), func.count().filter(Job.dummy))
    .where(RESERVED)
    .group_by("theirs")
)
"""Counts the jobs that wait to be run: made once, as it takes longer to make than to run."""


class Waiting:
    """The jobs that wait to be run: all of them, and those of some submitters. They are counted once.

    Attributes:
        everybodys: number of all.
        own: number of each submitter's.
        dummies: number of each submitter's dummies, which are free, among these.
    """

    def __init__(self, session: Session, submitter_ids: Collection[str]) -> None:
        rows = session.execute(_COUNTED, {"submitters": list(submitter_ids)}).all()
        self.everybodys: int = sum(count for _, count, _ in rows)
        self.own = Counter[str]({who: count for who, count, _ in rows})
        self.dummies = Counter[str]({who: dummies for who, _, dummies in rows})

    def require_room(self, submitter_id: str, most: int, *, dummy: bool, more: int = 1) -> None:
        """Keep the queue short, at `most`, and room in it for others whatever one caller asks.

        Raises:
            Unavailable: too many jobs wait, or too many of this submitter, or of its dummies.
        """
        if self.everybodys + more > most:
            raise Unavailable("Too many jobs are waiting. Try again later.", retry_after=5)
        dummies = self.dummies[submitter_id]
        if self.own[submitter_id] + more > max(2, most // 4) or (dummy and dummies >= max(1, most // 100)):
            raise Unavailable(
                "Too many of your jobs are waiting. Try again when some of them have ended.", retry_after=5
            )

    def note(self, submitter_id: str, *, dummy: bool) -> None:
        """Note that one more waits."""
        self.everybodys += 1
        self.own[submitter_id] += 1
        self.dummies[submitter_id] += dummy
