"""The contract of an estimator: what its declaration says of it, and what all plans have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from privest.estimators.uncertainty import Answer, ExpectedError
from privest.metadata import DatasetMetadata
from privest.options import Options
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic


@dataclass(frozen=True, kw_only=True)
class BasePlan(ABC):
    """Everything about a run, before any row is read: what the plans of all estimators have in common.

    Attributes:
        target: privacy as requested.
        shape: public facts of the data.
        releases: the noisy sums that the gate will answer, in order.
        cost: of all releases together, as certified.
        expected_error: error that the noise is expected to cause, from public facts alone.
        mechanism: the noise in words.
        warnings: what the analyst should know.
    """

    target: PrivacyTarget
    shape: DatasetMetadata
    releases: tuple[Release, ...]
    cost: Cost
    expected_error: ExpectedError
    mechanism: str
    warnings: tuple[str, ...]

    @property
    def steps(self) -> int:
        """Number of steps of the whole run: of those that may see a record."""
        return sum(release.count for release in self.releases)

    @property
    @abstractmethod
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """What the gate may sum, by the names that the releases use."""


S = TypeVar("S", bound=Options)
M = TypeVar("M", bound=DatasetMetadata)
P = TypeVar("P", bound=BasePlan)
A = TypeVar("A", bound=Answer)


def require(holds: bool, rule: str) -> None:
    """Refuse a choice that breaks a rule.

    Raises:
        ValueError: it does; the rule, in words fit for whoever made the choice.
    """
    if not holds:
        raise ValueError(rule)


def _never(_: object) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Estimator(Generic[S, M, P, A]):
    """All that others need to know of one estimator: from it follow its routes, schemas, pages and clients.

    The fields of `spec`, `answer` and `error`, and the shown ones of `plan_type`, may bear an `Option` or a
    `Doc` as the metadata of their types. Everything that these say is said nowhere else.

    Attributes:
        name: in paths, in ledgers and in messages, like `robust-pca`.
        schema_name: with which the names of its schemas begin, like `RobustPCA`.
        title: what people call it in a table.
        summary: what it estimates, in one line.
        metadata: the public facts of the datasets that it takes.
        spec: a dataclass of what an analyst may choose.
        plan_type: the plan's dataclass.
        error: the dataclass of a plan's `expected_error`.
        answer: the dataclass of what a run answers, with the run's own uncertainty.
        plan: plans a run for a target (ε, δ) from public facts alone; raises ValueError, in words fit for
            whoever chose, if a choice is out of range.
        run: estimates; sees the plan and an oracle's noisy answers, never a row.
        shown: names of fields and properties of `plan_type` that become fields of the plan in JSON, besides
            those of every plan (`Plan`). Type and description are read from their annotations.
        error_meaning: what `standard_deviation` of the expected error measures, in words that stand alone,
            like "distance by which the noise alone moves the mean, root mean square".
        error_title: what that number is called in headings.
        is_heavy: whether a plan of this spec takes long, or libraries that a web process does without.
    """

    name: str
    schema_name: str
    title: str
    summary: str
    metadata: type[M]
    spec: type[S]
    plan_type: type[P]
    error: type[ExpectedError]
    answer: type[A]
    plan: Callable[[S, M, PrivacyTarget], P]
    run: Callable[[P, Oracle], A]
    shown: tuple[str, ...] = ()
    error_meaning: str
    error_title: str = "Error to expect"
    is_heavy: Callable[[S], bool] = _never
