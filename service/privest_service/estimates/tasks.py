"""Tasks of worker processes: make a plan that takes long, ask another accountant, run a plan over rows.

What only they need (noise, rows, other accountants) is imported here when it is needed, and by workers alone.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from privest.data.metadata import DatasetMetadata
from privest.data.records import Records
from privest.estimators.registry import ESTIMATORS
from privest.privacy.budget import cost_of_runs
from privest.privacy.mechanisms import Release
from privest_service.estimates.plans import Subjects, plan_for, run_plan, stored_plans

OpenRows = Callable[[str, DatasetMetadata], Records]
"""Opens the rows in a file, of a public shape."""


def plan_job(kind: str, options: dict[str, Any], about: Subjects) -> str:
    """Plan in a worker process what would take the web process too long.

    Returns:
        the plan as JSON.

    Raises:
        ValueError: a choice is out of range.
    """
    estimator = ESTIMATORS[kind]
    return stored_plans(estimator).dump_json(plan_for(estimator, options, about)).decode()


def opinion_job(releases: tuple[Release, ...], delta: float) -> str:
    """Another accountant's view of a plan: the work of a worker process, as that accountant is heavy.

    Returns:
        an `Opinion` as JSON.
    """
    from privest.privacy.cross_check import second_opinion  # noqa: PLC0415 - for workers alone

    return json.dumps(asdict(second_opinion(releases, delta)))


def joint_job(runs: Sequence[Sequence[Release]], slack: float) -> str:
    """What runs over the same records cost by one certificate of this slack: a JSON list, μ² and slack."""
    cost = cost_of_runs(runs, slack)
    return json.dumps([cost.mu_squared, cost.slack])


def run(kind: str, plan: str, run_token: str, *paths: str, records: OpenRows | None = None) -> str:
    """Run a plan over the rows in files, and return as soon as that is done.

    Args:
        kind: name of the estimator.
        plan: the plan as JSON, exactly as it was charged.
        run_token: path of the permission to read the rows, which this run uses up.
        paths: of the rows, dataset by dataset; none for synthetic ones.
        records: opens the rows; by default in this process alone.

    Returns:
        the estimate as JSON.

    Raises:
        RunTokenGoneError: the rows were read for this job before, or its time is over; they are not touched.
        ValueError: what gates released came to no finite answer.
    """
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

    estimator = ESTIMATORS[kind]
    planned = stored_plans(estimator).validate_json(plan)
    worker.use_up(run_token)
    answer = run_plan(estimator, planned, worker.gates(paths, planned, records))
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))


def run_job(*job: str, records: OpenRows | None = None) -> str:
    """Run a plan, and return at a public moment: the work of a worker process, as others see it."""
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

    with worker.padded():
        return run(*job, records=records)
