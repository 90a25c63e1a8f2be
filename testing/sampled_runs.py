"""Sampled runs whose charge is compared with their true ε, by an accountant that is not ours."""

from collections.abc import Iterable
from functools import reduce

from privest.privacy.subsampling import SubsampledRun
from testing.accounting import composed

RUNS = ((0.001, 1000), (0.01, 100), (0.01, 1), (0.01, 1000), (0.1, 100))
"""Rate and number of steps."""


def true_epsilon(runs: Iterable[SubsampledRun], delta: float) -> float:
    """The ε of a run's parts together, by dp-accounting's composition on a grid far finer than ε."""
    whole = reduce(lambda one, other: one.compose(other), (composed(run, 2e-4) for run in runs))
    return float(whole.get_epsilon_for_delta(delta))
