"""`Linear`: the classifier of an answer, as formats for other programs write it down."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from privest.arrays import Array
from privest.data.tables import Column, Recipe
from privest.estimators.federation import Federated
from privest.estimators.linear_model.logistic_regression import LogisticPlan
from privest_service.estimates.plans import answered_plan, stored_plan
from privest_service.jobs.models import Job
from privest_service.problems import Invalid

_NO_CHANCES = ("sigmoid", "savage")
"""Losses whose scores tell sides and no chances."""


@dataclass(frozen=True)
class Linear:
    """A linear classifier: the chances of its classes are the softmax of its scores.

    Attributes:
        features: their names.
        label: name of what is told.
        classes: their names.
        weights: (classes, features).
        intercept: (classes,).
        recipe: what makes the features of a table's columns; None where features are what there is.
    """

    features: list[str]
    label: str
    classes: list[str]
    weights: Array
    intercept: Array
    recipe: Recipe | None

    @property
    def columns(self) -> list[Column]:
        """The columns of a table that its features come from."""
        return [] if self.recipe is None else [self.recipe.columns[place] for place in self.recipe.chosen]

    def weights_of(self, place: int) -> Array:
        """The weights of a column at this place of the table, (features of it, classes)."""
        return self.weights.T[self._features_of[place]]

    def recipe_of(self, place: int) -> Recipe:
        """Return the recipe of the column at this place of the table alone, which is the label, too."""
        assert self.recipe is not None  # noqa: S101 - of tables
        column = self.recipe.columns[place]
        alone = self.recipe.with_features([column.name])
        return replace(alone, columns=(column,), chosen=(0,), label=0)

    @cached_property
    def _features_of(self) -> Mapping[int, list[int]]:
        found = defaultdict[int, list[int]](list)
        for at, feature in enumerate(self.recipe.features if self.recipe else ()):
            found[feature.column].append(at)
        return found


def linear_of(job: Job, estimate: dict[str, Any]) -> Linear:
    """The classifier of an answer.

    Raises:
        Invalid: it is none, or one whose scores tell no chances.
    """
    plan: Any = stored_plan(job.kind, job.plan)
    if isinstance(plan, Federated):
        plan = plan.course
    plan = answered_plan(plan, estimate)
    if not isinstance(plan, LogisticPlan):
        raise Invalid("onnx and pmml are for classifiers. Ask for json.")
    if plan.spec.loss in _NO_CHANCES:
        raise Invalid("onnx and pmml need chances, and scores of this loss tell none. Ask for json.")
    weights, intercept = np.atleast_2d(estimate["coefficients"]), np.atleast_1d(estimate["intercept"])
    if len(weights) == 1:  # of two classes: a score is of the second against the first
        weights, intercept = np.vstack([0 * weights, weights]), np.append(0.0, intercept)
    shape = plan.shape
    label = "label" if shape.recipe is None else shape.label
    return Linear(list(shape.features), label, list(estimate["classes"]), weights, intercept, shape.recipe)
