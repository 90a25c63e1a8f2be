"""The kinds of estimates: how a request becomes a plan, and how a worker runs it.

The web process plans; what only runs need (noise, rows, other accountants) is imported in workers.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from privest.metadata import DatasetMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.records import Records
from privest_service.estimates.kinds.classifier_score import CLASSIFIER_SCORE
from privest_service.estimates.kinds.frechet_mean import FRECHET_MEAN
from privest_service.estimates.kinds.kind import Kind, Plan
from privest_service.estimates.kinds.logistic_regression import LOGISTIC_REGRESSION
from privest_service.estimates.kinds.matrix_completion import MATRIX_COMPLETION
from privest_service.estimates.kinds.robust_pca import ROBUST_PCA
from privest_service.estimates.schemas import SecondOpinion

__all__ = ["KINDS", "Kind", "OpenRows", "Plan", "opinion_job", "plan_job", "run", "run_job"]

OpenRows = Callable[[str, DatasetMetadata], Records]
"""Opens the rows in a file, of a public shape."""

KINDS = {
    kind.name: kind
    for kind in (FRECHET_MEAN, ROBUST_PCA, MATRIX_COMPLETION, LOGISTIC_REGRESSION, CLASSIFIER_SCORE)
}


def plan_job(
    kind: str, options: dict[str, Any], about: Sequence[tuple[DatasetMetadata, PrivacyTarget]]
) -> str:
    """Plan in a worker process what would take the web process too long.

    Raises:
        ValueError: a choice is out of range.
    """
    found = KINDS[kind]
    return found.plans.dump_json(found.plan_for(options, about)).decode()


def opinion_job(releases: tuple[Release, ...], delta: float) -> str:
    """Another accountant's view of a plan: the work of a worker process, as that accountant is heavy.

    Returns:
        a `SecondOpinion` as JSON.
    """
    from privest.privacy.second_opinion import second_opinion  # noqa: PLC0415 - for workers alone

    return SecondOpinion(**asdict(second_opinion(releases, delta))).model_dump_json()


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
        PermitGoneError: the rows were read for this job before, or its time is over; they are not touched.
        ValueError: what gates released came to no finite answer.
    """
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

    found = KINDS[kind]
    planned = found.plans.validate_json(plan)
    worker.use_up(run_token)
    answer = found.run_plan(planned, worker.gates(paths, planned, records))
    return json.dumps(answer.model_dump(), allow_nan=False, separators=(",", ":"))


def run_job(*job: str, records: OpenRows | None = None) -> str:
    """The same at a public moment: the work of a worker process, as others see it."""
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

    with worker.padded():
        return run(*job, records=records)
