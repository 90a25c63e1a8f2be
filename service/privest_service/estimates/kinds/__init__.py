"""The kinds of estimates: how a request becomes a plan, and how a worker runs it.

The web process plans; what only runs need (noise, rows, other accountants) is imported in workers.
"""

from dataclasses import asdict
from typing import Any

from privest.privacy.certificates import Release
from privest.privacy.cost import PrivacyTarget
from privest.shapes import Shape
from privest_service.estimates.kinds.classifier_score import CLASSIFIER_SCORE
from privest_service.estimates.kinds.frechet_mean import FRECHET_MEAN
from privest_service.estimates.kinds.kind import Kind, Plan
from privest_service.estimates.kinds.logistic_regression import LOGISTIC_REGRESSION
from privest_service.estimates.kinds.robust_pca import ROBUST_PCA
from privest_service.estimates.schemas import SecondOpinion

__all__ = ["KINDS", "Kind", "Plan", "opinion_job", "plan_job", "run_job"]

KINDS = {kind.name: kind for kind in (FRECHET_MEAN, ROBUST_PCA, LOGISTIC_REGRESSION, CLASSIFIER_SCORE)}


def plan_job(kind: str, options: dict[str, Any], shape: Shape, target: PrivacyTarget) -> str:
    """Plan in a worker process what would take the web process too long.

    Raises:
        ValueError: a choice is out of range.
    """
    found = KINDS[kind]
    return found.plans.dump_json(found.plan(options, shape, target)).decode()


def opinion_job(releases: tuple[Release, ...], delta: float) -> str:
    """Another accountant's view of a plan: the work of a worker process, as that accountant is heavy.

    Returns:
        a `SecondOpinion` as JSON.
    """
    from privest.privacy.second_opinion import second_opinion  # noqa: PLC0415 - for workers alone

    return SecondOpinion(**asdict(second_opinion(releases, delta))).model_dump_json()


def run_job(kind: str, plan: str, path: str) -> str:
    """Run a plan over the rows in a file: the work of a worker process.

    Args:
        kind: name of the estimator.
        plan: the plan as JSON, exactly as it was charged.
        path: of the rows.

    Returns:
        the estimate as JSON.
    """
    found = KINDS[kind]
    return found.run(found.plans.validate_json(plan), path).model_dump_json()
