"""A task that a scheduler runs: a mean of a dataset for each period, asked once however often it is tried.

    python examples/scheduled_mean.py DATASET PERIOD

`mean_of` is a plain function of plain values, which all schedulers take as it is:

    from airflow.sdk import task        # Airflow 3
    from prefect import task            # Prefect 3
    ask = task(retries=3)(mean_of)

PRIVEST_URL and PRIVEST_KEY are in its environment, where the scheduler's store of secrets puts them. The key
is that of an analyst, for the scopes read and estimate.
"""

import sys
from typing import Any

from privest_client import Client


def mean_of(dataset: str, period: str, epsilon: float = 0.1) -> dict[str, Any]:
    """Ask for the mean of a dataset, for one period of a schedule.

    A scheduler tries again what it does not know the end of. The name of the period is the question's
    idempotency key, so that all tries of one period are one question, charged once, with one answer.

    Args:
        dataset: its id.
        period: the scheduler's name of the run's period, such as 2026-W48.
        epsilon: what one period costs.

    Returns:
        The mean, its error, its price, and the job whose receipt proves them: what fits through any
        scheduler's channel between tasks.

    Raises:
        privest_client.BudgetExceeded: the budget does not cover it. To try again later does not help.
        privest_client.PrivestError: anything else; nothing was charged twice.
    """
    with Client.from_env(progress=False) as client:
        found = client.frechet_mean(
            dataset, epsilon=epsilon, key=f"mean of {dataset} in {period}", reuse=False
        )
    return {
        "period": period,
        "mean": found.point.tolist(),
        "radius_95": found.radius_95,
        "epsilon": found.privacy.epsilon,
        "job": found.id,
    }


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(mean_of(sys.argv[1], sys.argv[2]))
