"""Resolved queries: all choices made by public facts of datasets; and what sites need to run one together."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import rfc8785
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from privest.data.metadata import DatasetMetadata
from privest.estimators.federation import Federated, Plan
from privest.privacy.accounting import PrivacyTarget
from privest_service.estimates.catalogue import Kind
from privest_service.jobs.models import Job, JointRun
from privest_service.problems import Invalid


def digest_of(content: Any) -> str:
    """SHA-256 of a JSON document in canonical form (RFC 8785)."""
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()


@dataclass(frozen=True)
class QueryTarget:
    """One dataset of a query, and the privacy of its records.

    Attributes:
        dataset_id: the dataset.
        owner_id: who is charged.
        shape: public facts of the dataset.
        target: (ε, δ) that the query is planned and charged with, in whole units of the ledger.
        requested: (ε, δ) as requested, by which the digest tells queries apart; None where it is the target.
    """

    dataset_id: str
    owner_id: str
    shape: DatasetMetadata
    target: PrivacyTarget
    requested: PrivacyTarget | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts by which the digest tells this dataset and its privacy from others."""
        recipe = self.shape.recipe
        chosen: dict[str, Any] = {}
        if recipe is not None:
            chosen = {"columns": list(recipe.chosen), "label": recipe.label}
            # Left out where they are the usual ones, as digests of before have none.
            chosen |= {} if recipe.is_usual else {"indicators": recipe.indicators}
        requested = self.requested or self.target
        facts = {"dataset": self.dataset_id, "epsilon": requested.epsilon, "delta": requested.delta}
        return facts | chosen


@dataclass(frozen=True)
class ResolvedQuery:
    """A request, resolved against the public facts of its datasets."""

    caller_id: str
    kind: Kind
    about: tuple[QueryTarget, ...]
    options: dict[str, Any]
    dummy: bool = False
    approval: bool = False
    """Whether it waits for the approval of an owner."""
    at_sites: bool = False
    """Whether the rows are at sites of their owners, which run it together."""
    choice: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The columns that it chooses of tables, by the names of the request."""
    may_leave: int = 0
    """Sites that may stay away once all have begun."""

    @property
    def target(self) -> PrivacyTarget:
        """(ε, δ) that holds for the records of each of its datasets."""
        targets = [subject.target for subject in self.about]
        return PrivacyTarget(max(each.epsilon for each in targets), max(each.delta for each in targets))

    @cached_property
    def digest(self) -> str:
        """Digest of the datasets and the resolved choices. It does not depend on who asks."""
        facts = sorted((subject.facts for subject in self.about), key=lambda each: each["dataset"])
        about = facts[0] if len(facts) == 1 else {"datasets": facts}
        further: dict[str, Any] = {"dummy": True} if self.dummy else {}
        further |= {"may_leave": self.may_leave} if self.may_leave else {}
        return digest_of({"kind": self.kind.name, "options": self.options} | about | further)

    @cached_property
    def name(self) -> str:
        """All that its plan follows from, and whose it is: time would tell what others asked.

        It tells the order of the datasets, too, their sizes and what their budgets make of (ε, δ), of which
        the digest knows nothing.
        """
        about = (f"{each.dataset_id} {each.shape.n} {each.target}" for each in self.about)
        return " ".join([self.caller_id, self.digest, *about])


# Runs of a hub and its sites


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
