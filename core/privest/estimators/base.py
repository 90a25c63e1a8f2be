"""`Estimator`, the declaration of an estimator, and `BasePlan`, the fields that all plans have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Annotated, Generic, TypeVar

from privest.data.metadata import DatasetMetadata
from privest.estimators.uncertainty import Answer, ExpectedError
from privest.options import Doc, Options
from privest.privacy.accounting import Cost, PrivacyTarget, mu_for
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class Finding:
    """What it costs a run to find where records are, or how far they spread, which nobody declared."""

    share: Annotated[float, Doc("of the run's budget that this takes: of ε where δ is 0, else of μ²")]
    rounds: Annotated[int, Doc("noisy sums by which it is found, each on what those before told")]
    times: Annotated[
        float,
        Doc(
            "at most so many times as large is the error as if the schema declared, rightly, what is found: "
            "by the noise of the share that is left"
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class BasePlan(ABC):
    """The plan of a run, made before any row is read: the base of all estimators' plans.

    Attributes:
        target: (ε, δ) as requested.
        shape: public facts about the dataset.
        releases: the noisy sums that the gate will release, in order.
        cost: the certified cost of all releases together.
        expected_error: the error that the noise is expected to cause, from public facts alone.
        mechanism: description of the noise for analysts.
        warnings: warnings for the analyst.
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
        """Number of steps of the whole run that may see a record."""
        return sum(release.count for release in self.releases)

    @property
    def fewest_owners(self) -> int:
        """Least number of owners that the plan is for."""
        return 1

    @property
    def one_dataset(self) -> str | None:
        """Why the plan works on one dataset only, in words fit for the analyst; None if it takes several."""
        return None

    def counts(self, place: int) -> tuple[int, ...]:  # noqa: ARG002 - here all owners do the same
        """How often the owner at a place among several makes each release; it is public, as all of a plan."""
        return tuple(release.count for release in self.releases)

    @property
    def looks(self) -> tuple[Release, ...]:
        """The releases by which the run finds what the schema leaves open; none unless a plan says so."""
        return ()

    @property
    def finding(self) -> Finding | None:
        """What these looks cost; None where there are none."""
        if not self.looks:
            return None
        if self.target.delta == 0:
            rest = fsum(each.epsilon * each.count for each in self.releases if each not in self.looks)
            left, power = rest / self.target.epsilon, 1.0
        else:
            rest = self.cost.mu_squared - fsum(look.cost.mu_squared for look in self.looks)
            left, power = rest / mu_for(self.target.epsilon, self.target.delta) ** 2, 0.5
        return Finding(1 - left, len(self.looks), left**-power)

    @property
    @abstractmethod
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that the releases use."""


S = TypeVar("S", bound=Options)
M = TypeVar("M", bound=DatasetMetadata)
P = TypeVar("P", bound=BasePlan)
A = TypeVar("A", bound=Answer)
T = TypeVar("T")


def require(holds: bool, rule: str) -> None:
    """Refuse an option that breaks a rule.

    Raises:
        ValueError: `holds` is false. The message is `rule`, in words fit for the analyst.
    """
    if not holds:
        raise ValueError(rule)


def least_noisy(
    planner: Callable[[PrivacyTarget], T], target: PrivacyTarget, error: Callable[[T], float]
) -> T:
    """Return the plan of a target, or of its ε with δ = 0 where that costs no more and has the smaller error.

    Where budgets add up ε and δ, a run with Laplace noise is charged ε and no δ. It has the smaller error in
    few dimensions.

    Args:
        planner: plans a run for a target.
        target: (ε, δ) as requested.
        error: forecast of a plan's error.

    Raises:
        ValueError: there is no plan for the target.
    """
    plan = planner(target)
    if target.delta == 0 or not target.adds_up:
        return plan
    try:
        pure = planner(PrivacyTarget(target.epsilon, 0.0))
    except ValueError:  # noise that hides what a plan with delta above 0 shows
        return plan
    return pure if error(pure) < error(plan) else plan


def _none(_: object) -> int:
    return 0


def _no_defaults(_: object) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Estimator(Generic[S, M, P, A]):
    """The declaration of one estimator. Routes, schemas, dashboard pages and client methods follow from it.

    The fields of `spec`, `answer` and `error`, and the shown fields of `plan_type`, may have an `Option` or a
    `Doc` in their annotations. This is the only place that describes them.

    A question on a table becomes one on `metadata`. `tables.metadata.metadata_for` makes these public facts
    of the table and of the columns that were chosen, with the recipe that makes such records of its rows
    beside them. Plans keep the recipe with their shape. Whoever reads the rows applies it, and
    `Answer.in_columns` adds what an answer says of columns. So estimators know nothing of tables.

    Attributes:
        name: name in paths, ledgers and messages, such as `robust-pca`.
        schema_name: first part of the names of its schemas, such as `RobustPCA`.
        title: name in tables.
        summary: the estimated quantity, in one line.
        plain_words: what it answers, for people who are no statisticians.
        metadata: class of the public facts of datasets that it takes.
        spec: dataclass of the options that an analyst may choose.
        plan_type: dataclass of its plans.
        error: dataclass of a plan's `expected_error`.
        answer: dataclass of a run's answer, with the run's own uncertainty.
        planner: plans a run for a target (ε, δ) from public facts that float64 can work with. It raises
            ValueError, in words fit for the analyst, if an option is out of range.
        run: computes the estimate from the plan and an oracle's noisy answers. It never sees a row.
        shown: names of fields and properties of `plan_type` that the plan has in JSON, besides those that
            every plan has. Types and descriptions are read from their annotations.
        error_meaning: meaning of the expected error's `standard_deviation`, in words that stand alone, such
            as "distance by which the noise alone moves the mean, root mean square".
        error_title: title of that number in headings.
        unit: of stated errors, where they have one.
        defaults: values of the options that depend on the kind of data where a request leaves them None.
        unset: what digests of requests have for such an option that is left None, by its name: the default of
            before it depended on the data, so that keys of before are found.
        errors_apart: whether all errors that its answer states are in its `uncertainty`, if the records are
            no rows of a table.
        certificates: number of certificates of random batches that a plan with a spec takes for each
            dataset, in units of one for batches of equal noise, about 0.2 s. Plans with any import libraries
            that a web process avoids.
    """

    name: str
    schema_name: str
    title: str
    summary: str
    plain_words: str
    metadata: type[M]
    spec: type[S]
    plan_type: type[P]
    error: type[ExpectedError]
    answer: type[A]
    planner: Callable[[S, M, PrivacyTarget], P]
    run: Callable[[P, Oracle], A]
    shown: tuple[str, ...] = ()
    error_meaning: str
    error_title: str = "Error to expect"
    unit: str = ""
    defaults: Callable[[M], Mapping[str, object]] = _no_defaults
    unset: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    errors_apart: bool = False
    certificates: Callable[[S], int] = _none

    def plan(self, spec: S, metadata: M, target: PrivacyTarget) -> P:
        """Plan a run for a target (ε, δ), from public facts alone.

        Raises:
            ValueError: an option is out of range, or float64 cannot work with a declared bound or scale. The
                message is fit for the analyst.
        """
        metadata.require_resolvable()
        return self.planner(spec, metadata, target)
