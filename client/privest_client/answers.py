"""Estimates as numpy arrays, with their uncertainty and their price."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from privest_client import models
from privest_client.showing import Shown, rows_of_answer

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """What is the same of all answers, and all there is of those that have no class of their own here.

    Attributes:
        job: as the service tells it; the answer is its `estimate`.
        model: the model of that job, by which `make openapi` finds the class of an estimator's answers.
    """

    job: Any
    model: ClassVar[Any]

    @property
    def id(self) -> str:
        """The id of the job, under which the answer can be read again."""
        return self.job.id

    @property
    def privacy(self) -> models.Privacy:
        """What the run guarantees."""
        return self.job.privacy

    @property
    def charges(self) -> list[models.ChargeView]:
        """What accounts were charged."""
        return self.job.charges

    def _table(self) -> tuple[str, list[tuple[str, str]]]:
        return f"Answer of {self.job.kind}", rows_of_answer(self.job)

    @property
    def uncertainty(self) -> Any:
        """How far off the answer may be, from what (`of`, in words), and by what."""
        return self.job.uncertainty

    @property
    def warnings(self) -> list[str]:
        """What the plan and the run want the analyst to know."""
        return self.job.warnings

    @property
    def receipt(self) -> models.Receipt | None:
        """The service's signature under charge and answer."""
        return self.job.receipt

    @property
    def free(self) -> bool:
        """Whether nothing was charged: an answer of before, or one from synthetic rows."""
        return self.job.reused or self.job.dummy


@dataclass(frozen=True, repr=False)
class FrechetMean(Estimate):
    """A private mean on a manifold."""

    model = models.FrechetMeanJob

    @property
    def point(self) -> Array:
        """The mean, of the shape of one record."""
        return np.array(self.job.estimate.point)

    @property
    def standard_deviation(self) -> float:
        """How far it may be off, root mean square; see `uncertainty` for what that covers."""
        return self.job.uncertainty.standard_deviation

    @property
    def radius_95(self) -> float:
        """How far it is off in 95 % of runs at most."""
        return self.job.uncertainty.radius_95


@dataclass(frozen=True, repr=False)
class Subspace(Estimate):
    """A private subspace: of robust PCA."""

    model = models.RobustPCAJob

    @property
    def basis(self) -> Array:
        """(d, r) with orthonormal columns."""
        return np.array(self.job.estimate.basis)

    @property
    def center(self) -> Array | None:
        """(d,) if one was estimated."""
        center = self.job.estimate.center
        return None if center is None else np.array(center)

    @property
    def explained(self) -> Array | None:
        """(r,) share of variance along each column, if it was estimated."""
        explained = self.job.estimate.explained
        return None if explained is None else np.array(explained)

    @property
    def standard_deviation(self) -> float:
        """Angle by which it may be off, root mean square, in radians; see `uncertainty`."""
        return self.job.uncertainty.standard_deviation

    @property
    def radius_95(self) -> float:
        """Angle by which it is off in 95 % of runs at most."""
        return self.job.uncertainty.radius_95


@dataclass(frozen=True, repr=False)
class Completion(Estimate):
    """The private subspace that vectors with gaps lie in."""

    model = models.MatrixCompletionJob

    @property
    def basis(self) -> Array:
        """(d, r) with orthonormal columns."""
        return np.array(self.job.estimate.basis)

    @property
    def radius_95(self) -> float:
        """Angle between it and the subspace that 95 % of runs do not exceed."""
        return self.job.uncertainty.radius_95

    def complete(self, vector: Array) -> Array:
        """A vector whose unknown entries, NaN, are filled in: least squares on those that are known.

        Args:
            vector: (d,).
        """
        known = np.isfinite(vector)
        weights, *_ = np.linalg.lstsq(self.basis[known], vector[known])
        return np.where(known, vector, self.basis @ weights)


@dataclass(frozen=True, repr=False)
class LinearClassifier(Estimate):
    """A private linear classifier."""

    model = models.LogisticRegressionJob

    @property
    def classes(self) -> list[str]:
        """A positive score means the second of two, the highest one of more."""
        return self.job.estimate.classes

    @property
    def coefficients(self) -> Array:
        """(d,), or (classes, d), in the units of the uploaded features."""
        return np.array(self.job.estimate.coefficients)

    @property
    def intercept(self) -> Array:
        """The intercept, of shape () or (classes,)."""
        return np.array(self.job.estimate.intercept)

    @property
    def standard_errors(self) -> Array:
        """Standard errors of the coefficients and, last, the intercept.

        They include the noise, and the sampling of rows where its share is known.
        """
        noise = np.array(self.job.estimate.noise.standard_errors)
        if self.job.estimate.sampling is None:
            return noise
        return np.hypot(noise, np.array(self.job.estimate.sampling.standard_errors))

    def scores(self, features: Array) -> Array:
        """(n,) or (n, classes) scores of (n, d) features."""
        return np.asarray(features) @ self.coefficients.T + self.intercept

    def predict(self, features: Array) -> list[str]:
        """The likeliest class of each of (n, d) features."""
        scores = self.scores(features)
        places = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return [self.classes[place] for place in places]


@dataclass(frozen=True, repr=False)
class Score(Estimate):
    """The private score of a classifier."""

    model = models.ClassifierScoreJob

    @property
    def value(self) -> float:
        """The share of right answers, or the area under the ROC curve."""
        return self.job.estimate.value

    @property
    def standard_error(self) -> float:
        """Standard error from the noise and from the sampling of rows."""
        return float(np.hypot(self.job.estimate.standard_error, self.job.estimate.sampling_error))


@dataclass(frozen=True)
class Kind:
    """A kind of estimate.

    Attributes:
        name: in paths.
        request: what it is asked with.
        plan: what its plan is.
        job: what answers the request.
        answer: what its answer becomes.
    """

    name: str
    request: type[BaseModel]
    plan: type[BaseModel]
    job: type[BaseModel]
    answer: type[Estimate]
