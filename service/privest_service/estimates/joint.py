"""What is written down of a question that a hub and the sites of its datasets run together."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Plan
from privest.privacy.cost import PrivacyTarget
from privest_service.estimates.questions import ResolvedQuery
from privest_service.jobs.models import Job, JointRun
from privest_service.problems import Invalid


@dataclass(frozen=True)
class Joint:
    """A joint run that is to be noted with its job; see `JointRun`."""

    terms: str
    hub_job: str | None = None

    def noted(self, session: Session, job: Job) -> None:
        """Write it down with its job, before anybody can take that."""
        session.add(JointRun(job_id=job.id, terms=self.terms, hub_job=self.hub_job))
        session.flush()


@dataclass(frozen=True)
class AskedPart:
    """Public facts of one dataset of a question: its number of records, and what they are promised."""

    n: int
    target: PrivacyTarget


@dataclass(frozen=True)
class Asked:
    """All of a question that a site needs to plan it by itself, besides the public facts of its own dataset.

    Attributes:
        options: of the estimator, as they were resolved.
        choice: of columns of a table.
        parts: of all datasets, in order.
        may_leave: sites that may stay away once the run has begun.
    """

    options: dict[str, Any]
    choice: dict[str, Any]
    parts: tuple[AskedPart, ...]
    may_leave: int = 0


ASKED: TypeAdapter[Asked] = TypeAdapter(Asked)
"""Reads and writes what was asked."""


LARGEST_TERMS = 2**20
"""Most bytes of what sites need to plan a question."""

MOST_NUMBERS = 1_000_000
"""Most numbers of one answer that sites exchange, and so of what a hub keeps of it."""


def joint_at_hub(question: ResolvedQuery, planned: Plan) -> Joint:
    """Return what a hub notes of a question on datasets of sites.

    Raises:
        Invalid: a noisy sum is too long to be exchanged, or what was asked too long to be handed to sites.
    """
    largest = max((release.size for release in planned.releases), default=0)
    if isinstance(planned, Federated) and largest > MOST_NUMBERS:
        raise Invalid(
            f"A noisy sum of this plan has {largest:,} numbers, and sites exchange at most {MOST_NUMBERS:,}: "
            "ask about fewer columns, or about one dataset."
        )
    parts = tuple(AskedPart(subject.shape.n, subject.target) for subject in question.about)
    asked = Asked(question.options, dict(question.choice), parts, question.may_leave)
    terms = json.dumps(asdict(asked), allow_nan=False)
    if len(terms) > LARGEST_TERMS:
        raise Invalid(
            f"The query has {len(terms):,} bytes, and sites take at most {LARGEST_TERMS:,}: "
            "give shorter options."
        )
    return Joint(terms)
