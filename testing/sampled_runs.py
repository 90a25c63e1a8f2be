"""The sampled runs of the table in docs/privacy.md, and their true ε by an accountant that is not ours."""

from privest.privacy.subsampling import SubsampledRun
from testing.accounting import composed

RUNS = ((0.001, 1000), (0.01, 100), (0.01, 1), (0.01, 1000), (0.1, 100))
"""Rate and number of steps of Poisson batches."""


def true_epsilon(run: SubsampledRun, delta: float) -> float:
    """The ε of a run by dp-accounting's composition, pessimistic on a grid far finer than ε."""
    return float(composed(run, 1e-4).get_epsilon_for_delta(delta))
