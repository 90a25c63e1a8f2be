"""The list of all estimators, to which a new one adds one line.

Pages and forms offer estimators in this order. The first that takes a dataset is the default for it.
"""

from typing import Any

from privest.estimators.base import Estimator
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN
from privest.estimators.linear_model.classifier_score import CLASSIFIER_SCORE
from privest.estimators.linear_model.classifier_selection import CLASSIFIER_SELECTION
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION
from privest.estimators.range_finding.bounds import BOUNDS
from privest.estimators.subspace.matrix_completion import MATRIX_COMPLETION
from privest.estimators.subspace.robust_pca import ROBUST_PCA

ESTIMATORS: dict[str, Estimator[Any, Any, Any, Any]] = {
    each.name: each
    for each in (
        FRECHET_MEAN,
        ROBUST_PCA,
        MATRIX_COMPLETION,
        LOGISTIC_REGRESSION,
        CLASSIFIER_SCORE,
        CLASSIFIER_SELECTION,
        BOUNDS,
    )
}
