"""The protocol of solvers of a logistic regression, and what most of them share."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, Self

from privest.data.metadata import LabelledMetadata
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit
from privest.estimators.linear_model.logistic_spec import LogisticSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

LARGE = 5.0
"""Root mean square of coefficients in an unfavourable case: what features share tells classes apart."""

ORDER = "standardised coefficients are of the order of one"
"""The assumption of solvers that do not measure how large coefficients are."""


class Variances(NamedTuple):
    """Variance of a coefficient of standardised features, as a plan expects it.

    Attributes:
        favourable: in a favourable case.
        unfavourable: in an unfavourable one.
        assumes: what these assume, in words.
        accuracy: α of `CoefficientError`, where a solver has such a guarantee.
    """

    favourable: float
    unfavourable: float
    assumes: str
    accuracy: float | None = None


class LinearSolver(Protocol):
    """A solver with its constants, all of which follow from public facts.

    Attributes:
        knows_sampling: whether its own releases tell the sampling errors.
        needs_lengths: whether it needs a bound on the length of rows, from the schema or found first.
        learns_units: whether a run may begin with the units of features.
    """

    knows_sampling: ClassVar[bool]
    needs_lengths: ClassVar[bool]
    learns_units: ClassVar[bool]

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        ...

    @classmethod
    def usual_penalty(cls, spec: LogisticSpec, shape: LabelledMetadata) -> float:
        """Return the default λ."""
        ...

    @classmethod
    def certificates(cls, spec: LogisticSpec) -> int:
        """Return the number of certificates that planning takes."""
        ...

    @classmethod
    def of(
        cls,
        spec: LogisticSpec,
        shape: LabelledMetadata,
        target: PrivacyTarget,
        budget: PrivacyBudget,
        penalty: float,
    ) -> Self:
        """Return the solver of a spec that was not refused.

        Args:
            spec: what was asked for.
            shape: public facts of the data.
            target: privacy as requested.
            budget: what the solver itself may spend.
            penalty: λ.
        """
        ...

    @property
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees."""
        ...

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the analyst, from public facts."""
        ...

    def releases(self) -> Sequence[Release]:
        """Return all that a run releases.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        ...

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """Return the classifier, by what the gate answers."""
        ...

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        ...


class SolverDefaults:
    """Base of solvers, with the answers of `LinearSolver` that most of them share."""

    knows_sampling: ClassVar[bool] = False
    needs_lengths: ClassVar[bool] = False
    learns_units: ClassVar[bool] = True

    @classmethod
    def usual_penalty(cls, spec: LogisticSpec, shape: LabelledMetadata) -> float:
        """Return the default λ: none."""
        del spec, shape
        return 0.0

    @classmethod
    def certificates(cls, spec: LogisticSpec) -> int:
        """Return the number of certificates that planning takes: none without random batches."""
        del spec
        return 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the analyst, from public facts: none."""
        return ()
