"""Plans of any estimator, on one dataset or on several: how they are made, stored and run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest.estimators import federation
from privest.estimators.base import BasePlan, Estimator
from privest.estimators.federation import Federated, Part, Plan
from privest.estimators.linear_model.classifier_selection import SelectionPlan
from privest.estimators.registry import ESTIMATORS
from privest.memo import fresh_memo
from privest.optim.pooling import Exchange
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.mechanisms import is_for
from privest.privacy.oracle import Oracle

AnyEstimator = Estimator[Any, Any, Any, Any]

Subjects = Sequence[tuple[DatasetMetadata, PrivacyTarget]]
"""The datasets of a question, each with the privacy of its records."""


@cache
def stored_plans(estimator: AnyEstimator) -> TypeAdapter[Any]:
    """Reads and writes an estimator's plans: on one dataset, on several, and what each owner of those has."""
    several: Any = Federated
    either: Any = estimator.plan_type | several[estimator.plan_type] | Part
    return TypeAdapter(either)


def stored_plan(kind: str, plan: str) -> Plan | Part | None:
    """A plan from its JSON; None where its estimator, or a part of such plans, is no more."""
    if kind not in ESTIMATORS:
        return None
    try:
        return stored_plans(ESTIMATORS[kind]).validate_json(plan)
    except ValidationError:
        return None


def asked_columns(plan: Plan | Part | None) -> list[str] | None:
    """Names of the columns of a table that a plan is about, a label first; None where there are no names."""
    recipe = None if plan is None or isinstance(plan, Part) else plan.shape.recipe
    if recipe is None:
        return None
    label = () if recipe.label is None else (recipe.label,)
    return [recipe.columns[place].name for place in (*label, *recipe.chosen)]


def asked_label(plan: Plan | Part | None) -> str | None:
    """Name of the column that a plan tells by others; None where it tells none, or none has a name."""
    recipe = None if plan is None or isinstance(plan, Part) else plan.shape.recipe
    return None if recipe is None or recipe.label is None else recipe.columns[recipe.label].name


def can_run(kind: str, plan: str) -> bool:
    """Whether a run can follow a stored plan to the letter.

    Another version of the program may have planned what this one does not know, or leave out what this one
    plans: then the plan that is read is written otherwise. Or it asked for sums that there are no more, or
    that are of another size.
    """
    try:
        read = stored_plan(kind, plan)
        if read is None or isinstance(read, Part):
            return False
        same = json.loads(stored_plans(ESTIMATORS[kind]).dump_json(read)) == json.loads(plan)
        parts = read.parts if isinstance(read, Federated) else [read]
        return same and all(is_for(release, read.statistics) for part in parts for release in part.releases)
    except Exception:  # whatever a plan of another version breaks, it cannot be run
        return False


def answered_plan(plan: Plan, answer: Mapping[str, Any]) -> Plan:
    """The plan of what an answer is: of a choice that of the winner."""
    return plan.fits.large[answer["winner"]] if isinstance(plan, SelectionPlan) else plan


@fresh_memo()
def plan_for(estimator: AnyEstimator, options: dict[str, Any], about: Subjects) -> Plan:
    """The plan of a question on one dataset or several.

    Raises:
        ValueError: a choice is out of range, or the datasets do not go together.
    """
    try:
        plan = partial(estimator.plan, estimator.spec.of(options))
        if len(about) == 1:
            alone = plan(*about[0])
            federation.require_owners(alone, 1)
            return alone
        shapes, targets = zip(*about, strict=True)
        return federation.plan(plan, shapes, targets)
    except ArithmeticError:
        raise ValueError(
            "Some choices are too small, too large or too far apart to compute with. Choose others."
        ) from None


@fresh_memo()
def run_plan(estimator: AnyEstimator, plan: Plan, gates: Sequence[Oracle]) -> dict[str, Any]:
    """The answer of a plan, as JSON has it, from gates, one for each of its datasets."""
    if isinstance(plan, Federated):
        answer = federation.run(cast("Federated[BasePlan]", plan), estimator.run, gates)
    else:
        answer = estimator.run(plan, *gates)
    return _told(plan, answer)


@fresh_memo()
def join_plan(
    estimator: AnyEstimator,
    plan: Federated[BasePlan],
    gate: Oracle,
    place: int,
    exchange: Exchange,
    seed: int,
) -> dict[str, Any]:
    """The answer of `run_plan` where the gate of one place is; see `federation.run_joined`."""
    return _told(plan, federation.run_joined(plan, estimator.run, gate, place, exchange, seed))


@fresh_memo()
def replay_plan(
    estimator: AnyEstimator, plan: Federated[BasePlan], answers: Iterable[tuple[str, Array]], seed: int
) -> dict[str, Any]:
    """The answer of `join_plan` once more, of the pooled answers that were exchanged."""
    return _told(plan, federation.replay(plan, estimator.run, answers, seed))


def _told(plan: Plan, answer: Any) -> dict[str, Any]:
    """An answer as JSON has it, of a table in the units of its columns."""
    if recipe := plan.shape.recipe:
        answer = answer.in_columns(recipe, plan.expected_error)
    return plain(answer)


def plain(answer: Any) -> Any:
    """An answer as JSON has it: dataclasses as objects, arrays as nested lists."""
    if is_dataclass(answer):
        return {field.name: plain(getattr(answer, field.name)) for field in fields(answer)}
    if isinstance(answer, tuple):
        return [plain(part) for part in cast("tuple[Any, ...]", answer)]
    return answer.tolist() if isinstance(answer, np.ndarray | np.generic) else answer
