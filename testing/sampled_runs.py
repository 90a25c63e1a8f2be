"""Sampled runs whose charge is compared with their true ε, by an accountant that is not ours."""

from collections.abc import Iterable
from functools import reduce
from math import sqrt

from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from privest.privacy.subsampling import SubsampledRun
from testing.accounting import composed

RUNS = ((0.001, 1000), (0.01, 100), (0.01, 1), (0.01, 1000), (0.1, 100))
"""Rate and number of steps."""


def true_epsilon(runs: Iterable[SubsampledRun], delta: float, *, cell: float = 5e-4) -> float:
    """The ε of a run's parts together, by dp-accounting's composition on a grid far finer than ε."""
    whole = reduce(lambda one, other: one.compose(other), (composed(run, cell) for run in runs))
    return float(whole.get_epsilon_for_delta(delta))


def right_angles_epsilon(run: SubsampledRun, delta: float) -> float:
    """The ε of a run over Poisson batches if two records' vectors are orthogonal, each as long as may be.

    Their sums are independent: the record leaves one, and the replacement comes in to the other.
    """
    step = from_gaussian_mechanism(
        run.noise, sampling_prob=run.rate, value_discretization_interval=min(1e-4, 0.01 / sqrt(run.steps))
    )
    apart = step._pmf_remove.compose(step._pmf_add)  # pyright: ignore[reportPrivateUsage]
    return float(apart.self_compose(run.steps).get_epsilon_for_delta(delta))
