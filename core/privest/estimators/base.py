"""The contract of an estimator: what its declaration says of it, and what all plans have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from privest.metadata import DatasetMetadata
from privest.options import Options
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic


class ExpectedError(Protocol):
    """How far an answer is expected to be off, from public facts; a dataclass."""

    @property
    def standard_deviation(self) -> float:
        """The one number that is shown where there is room for one."""
        ...


class Plan(Protocol):
    """Everything about a run, before any row is read; a dataclass."""

    @property
    def target(self) -> PrivacyTarget:
        """As requested."""
        ...

    @property
    def shape(self) -> DatasetMetadata:
        """Public facts of the data."""
        ...

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """What the gate may sum."""
        ...

    @property
    def cost(self) -> Cost:
        """As certified."""
        ...

    @property
    def releases(self) -> tuple[Release, ...]:
        """What the gate will answer."""
        ...

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        ...

    @property
    def expected_error(self) -> Any:
        """Error that the noise is expected to cause, from public facts alone."""
        ...

    @property
    def mechanism(self) -> str:
        """In words."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """For the analyst."""
        ...


S = TypeVar("S", bound=Options)
M = TypeVar("M", bound=DatasetMetadata)
P = TypeVar("P", bound=Plan)
A = TypeVar("A")


def _never(_: Any) -> bool:
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
        plan_type: a dataclass of everything about a run, before any row is read.
        error: the dataclass of a plan's `expected_error`.
        answer: the dataclass of what a run answers.
        plan: plans a run from public facts alone; raises ValueError for a choice that is out of range.
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
