"""Logistic regression by Newton steps: what it sees of a row, its release, and the run."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.budget import BELOW
from privest.losses.logistic import ClassMoments
from privest.privacy.calibration import mu_for
from privest.privacy.certificates import NoisySum, noisy_sum
from privest.privacy.cost import PrivacyTarget
from privest.solvers.gradient_descent import Oracle
from privest.solvers.newton import newton_step


@dataclass(frozen=True)
class NewtonCourse:
    """One Newton step from zero, of class means and a second moment that come in one release.

    Attributes:
        moments: what is released.
        penalty: λ.
        intercept: whether there is one.
    """

    moments: ClassMoments
    penalty: float
    intercept: bool

    def releases(self, n: int, target: PrivacyTarget) -> tuple[NoisySum, ...]:
        """The one release of a run.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        pure, moments = target.delta == 0, self.moments
        loss = target.epsilon if pure else mu_for(target.epsilon, target.delta)
        release = noisy_sum(
            "laplace" if pure else "gaussian",
            n=n,
            size=moments.size,
            clip=moments.longest,
            loss=loss * BELOW,
            statistic="moments",
            diameter=moments.diameter(moments.longest),
        )
        return (release,)

    def run(self, releases: tuple[NoisySum, ...], gate: Oracle) -> tuple[Array, Array, Array | None]:
        """Weights (columns, size), their standard errors by the noise, and what else the intercept has."""
        (release,), moments = releases, self.moments
        first, moment = moments.parts(gate.mean(None, "moments"))
        noise = sqrt(release.variance) / release.divisor
        two = moments.classes == 2
        factor = 2.0 if two else float(moments.classes)
        weights, errors = newton_step(
            first,
            moment,
            deviations=(noise, noise / moments.scale),
            factor=factor,
            penalty=self.penalty * (8.0 if two else 2.0 * factor),
        )
        # Of more classes, the intercept is that of a discriminant of classes of one covariance.
        shift = None if two or not self.intercept else -0.5 * np.vecdot(weights, first)
        return weights, errors, shift
