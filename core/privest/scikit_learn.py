"""Private logistic regression as a scikit-learn classifier. It needs the extra `scikit-learn`."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import inf
from typing import Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin  # pyright: ignore[reportMissingTypeStubs]
from sklearn.utils import Tags  # pyright: ignore[reportMissingTypeStubs]
from sklearn.utils.multiclass import (  # pyright: ignore[reportMissingTypeStubs]
    check_classification_targets,  # pyright: ignore[reportUnknownVariableType]
)
from sklearn.utils.validation import (  # pyright: ignore[reportMissingTypeStubs]
    check_is_fitted,  # pyright: ignore[reportUnknownVariableType]
    validate_data,  # pyright: ignore[reportUnknownVariableType]
)

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.base import require
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticPlan
from privest.estimators.linear_model.logistic_spec import LogisticSpec, Loss, Solver, Standardisation
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

_validated = cast("Callable[..., object]", validate_data)
"""scikit-learn's `validate_data`, which has no type annotations of its own."""

_LOSSES: tuple[Loss, ...] = tuple(name for part in get_args(Loss) for name in get_args(part))
_SOLVERS: tuple[Solver, ...] = tuple(name for part in get_args(Solver) for name in get_args(part))


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):
    """A classifier whose every fit is (ε, δ) differentially private for one replaced row.

    The number of rows is public, and so are all arguments of the constructor: choose them without looking at
    the rows. If you fit the same rows several times, add the `plan_.cost` of all fits. The noise has no seed,
    because anybody who knew it could remove the noise.

    Args:
        epsilon: ε of one fit.
        delta: δ of one fit; 1/n^1.5 by default, 0 for pure differential privacy.
        classes: all possible labels. They are required, as labels read off `y` would reveal single rows.
        norm_bound: length to which a longer row is shortened after standardisation. By default it follows
            from the public facts.
        mean: (d,) public mean of each feature, if known.
        scale: (d,) public scale of each feature, if known.

    `LogisticSpec` describes the other arguments, which are its options.

    Attributes:
        classes_: (classes,) labels, sorted.
        coef_: (1, d) coefficients for two classes, otherwise (classes, d), in the units of `X`.
        intercept_: (1,) intercept for two classes, otherwise (classes,).
        standard_errors_: standard errors of `coef_` by the noise, and by sampling if `sampling_errors`.
        plan_: the plan of the fit, with its exact cost.
        n_features_in_: d.
        feature_names_in_: (d,) names of the features, if `X` has names.
    """

    classes_: NDArray[np.generic]
    coef_: Array
    intercept_: Array
    standard_errors_: Array
    plan_: LogisticPlan
    n_features_in_: int

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        classes: Sequence[object] | NDArray[np.generic] | None = None,
        norm_bound: float | None = None,
        mean: Sequence[float] | Array | None = None,
        scale: Sequence[float] | Array | None = None,
        solver: Solver | None = None,
        penalty: float | None = None,
        steps: int | None = None,
        step_scale: float | None = None,
        batch_size: int | None = None,
        intercept: bool = True,
        standardisation: Standardisation | None = None,
        sampling_errors: bool = False,
        loss: Loss = "logistic",
        momentum: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.norm_bound = norm_bound
        self.mean = mean
        self.scale = scale
        self.solver: Solver | None = solver
        self.penalty = penalty
        self.steps = steps
        self.step_scale = step_scale
        self.batch_size = batch_size
        self.intercept = intercept
        self.standardisation: Standardisation | None = standardisation
        self.sampling_errors = sampling_errors
        self.loss: Loss = loss
        self.momentum = momentum

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan the fit from public facts, then fit to a gate's noisy answers.

        Args:
            X: (n, d) features.
            y: (n,) labels, each one of `classes`.

        Raises:
            ValueError: a parameter is out of range, an entry of `X` is not a finite number, or an entry of
                `y` is missing from `classes`.
        """
        if self.classes is None:
            raise ValueError(
                "classes must name every label there may be, such as classes=[0, 1]: "
                "labels read off y would tell of single rows"
            )
        features, labels = cast("tuple[Array, NDArray[np.generic]]", _validated(self, X, y, dtype=np.float64))
        check_classification_targets(labels)
        classes = _different(self.classes)
        planned = self._plan(len(features), classes)
        rows = np.column_stack([features, _places(labels, classes)])
        found = logistic_regression.run(planned, Gate(Records(rows), planned.statistics, planned.releases))
        self.classes_ = classes
        self.coef_ = np.atleast_2d(found.coefficients)
        self.intercept_ = np.atleast_1d(found.intercept)
        variance = found.noise.standard_errors**2
        if found.sampling is not None:
            variance = variance + found.sampling.standard_errors**2
        self.standard_errors_ = np.atleast_2d(np.sqrt(variance)[..., :-1])
        self.plan_ = planned
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """The scores of (n, d) features: (n,), positive for the second of two classes, or (n, classes)."""
        check_is_fitted(self)
        features = cast("Array", _validated(self, X, dtype=np.float64, reset=False))
        scores = features @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> Array:
        """The (n, classes) probabilities of (n, d) features, in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=-1)
        return softmax(scores, axis=-1)

    def predict(self, X: ArrayLike) -> NDArray[np.generic]:
        """The (n,) most probable labels of (n, d) features."""
        places = np.argmax(self.predict_proba(X), axis=-1)
        return self.classes_[places]

    def __sklearn_tags__(self) -> Tags:
        tags = cast("Tags", super().__sklearn_tags__())
        tags.non_deterministic = True
        return tags

    def _plan(self, n: int, classes: NDArray[np.generic]) -> LogisticPlan:
        """The plan of a fit to n rows, from public facts alone."""
        dim = self.n_features_in_
        mean, scale = _facts("mean", self.mean, dim), _facts("scale", self.scale, dim)
        bound = self.norm_bound
        require(
            self.solver is None or self.solver in _SOLVERS, f"solver must be one of {', '.join(_SOLVERS)}"
        )
        require(self.loss in _LOSSES, f"loss must be one of {', '.join(_LOSSES)}")
        require(bound is None or 0 < bound < inf, "norm_bound must be positive and finite")
        require(scale is None or min(scale) > 0, "scale must be positive")
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(dim)])
        shape = LabelledMetadata(n, tuple(names), "y", tuple(map(str, classes)), bound, mean, scale)
        spec = LogisticSpec(**{option.name: getattr(self, option.name) for option in fields(LogisticSpec)})
        delta = n**-1.5 if self.delta is None else self.delta
        return LOGISTIC_REGRESSION.plan(spec, shape, PrivacyTarget(self.epsilon, delta))


def _different(labels: Sequence[object] | NDArray[np.generic]) -> NDArray[np.generic]:
    """The declared labels, sorted as in scikit-learn."""
    given = np.asarray(labels)
    require(given.ndim == 1, "classes must be a list of labels")
    classes = np.unique(given)
    require(len(classes) == len(given), "classes must differ")
    require(len(classes) > 1, f"classes must name at least two labels, not {len(classes)} class")
    return classes


def _places(y: NDArray[np.generic], classes: NDArray[np.generic]) -> Array:
    """The index of each label among the classes. The error on an unknown label does not name the label."""
    # Labels are compared as Python values, because numpy would take the number 1 for the string "1".
    place = {label: place for place, label in enumerate(classes.tolist())}
    places = np.array([place.get(label, -1) for label in y.tolist()], dtype=np.float64)
    require(bool((places >= 0).all()), "y holds labels that classes does not name")
    return places


def _facts(name: str, given: Sequence[float] | Array | None, dim: int) -> tuple[float, ...] | None:
    """The given public numbers, one per feature, as a tuple."""
    if given is None:
        return None
    facts = np.asarray(given, dtype=np.float64)
    if facts.shape != (dim,) or not np.isfinite(facts).all():
        raise ValueError(f"{name} must be a finite number for each of the {dim} features")
    return tuple(facts.tolist())
