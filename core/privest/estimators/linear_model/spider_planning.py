"""A linear classifier by gradients kept up by their changes, each record seen once (Liu and Talwar 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np

from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Curvature, Fit, same_steps
from privest.estimators.linear_model.nonconvex import Nonconvex
from privest.estimators.linear_model.spider import curvatures_at, spider
from privest.estimators.linear_model.spider_schedule import Problem, SpiderPlan, plan
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.matrix_mechanism import PrefixSums, variance_of_total
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

_SADDLE = "along some direction the loss falls away on both sides of the answer: it is no minimum"


@dataclass(frozen=True)
class SpiderSolver(Nonconvex):
    """Descent from zero with escapes, until the records run out.

    Attributes:
        target: privacy as requested.
    """

    target: PrivacyTarget

    @cached_property
    def planned(self) -> SpiderPlan:
        """The public constants of the run.

        Raises:
            ValueError: not one batch fits; or float64 cannot carry this privacy.
        """
        # A row's Hessian is of rank one, but for what a penalty adds to its diagonal.
        rank = self.objective.size if self.penalty else 1
        return plan(Problem(self.objective, rank, self.excess, self.shape.n, self.target))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may add up, by the names that releases use."""
        return self.planned.statistics

    def releases(self) -> tuple[PrefixSums, PrefixSums, PrefixSums]:
        """The streams of Hessians, of gradients, and of the Hessian at the answer."""
        return self.planned.releases

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The point of least released gradient. Its noise is what the steps since the last escape added.

        Its error is that of a whole segment at least, by which it is held to stand out: soon after an escape
        noise decided which point it is.
        """
        schedule = self.planned.schedule
        found = spider(gate.streams, start=np.zeros(self.objective.size), schedule=schedule)
        gradients = self.planned.releases[1]
        steps = sum(variance_of_total(gradients.factorisation, *prefixes) for prefixes in found.way)
        variance = steps * (schedule.step_size * gradients.scale) ** 2
        answer, segment = found.answer[None], self.noise_variance(releases)
        whole = same_steps(feature_map, answer, max(variance, segment))
        noise = same_steps(feature_map, answer, variance or segment).noise
        least = float(curvatures_at(gate.streams, found.answer, schedule)[0])
        curvature = Curvature(least, max(least - self.planned.doubt, -self.objective.gradient_lipschitz))
        warnings = (_SADDLE,) if least < -self.planned.doubt else ()
        return replace(whole, noise=noise, hidden=whole.is_useless, curvature=curvature, warnings=warnings)

    def noise_variance(self, releases: Sequence[Release]) -> float:  # noqa: ARG002
        """Variance of a weight, by the steps of one whole segment of the run, of which there may be more."""
        schedule, gradients = self.planned.schedule, self.planned.releases[1]
        whole = variance_of_total(gradients.factorisation, 1, schedule.leaves)
        return whole * (schedule.step_size * gradients.scale) ** 2

    @property
    def segments(self) -> int:
        """Most segments for which there are records: each begins with a batch."""
        return max(1, ceil(self.shape.n / self.planned.schedule.batch))
