"""Answers as fitted estimators of scikit-learn, where that is installed."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from privest_client.answers import LinearClassifier, Subspace


def logistic_regression(answer: "LinearClassifier") -> Any:
    """A fitted `LogisticRegression` with the same scores.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression()
    fitted.classes_ = np.array(answer.classes, dtype=object)
    fitted.coef_ = np.atleast_2d(answer.coefficients)
    fitted.intercept_ = np.atleast_1d(answer.intercept)
    fitted.n_iter_ = np.array([0])
    return _named(fitted, answer, answer.coefficients.shape[-1])


def pca(answer: "Subspace") -> Any:
    """A fitted `PCA` on the same subspace, whose coordinates are those along the columns of `basis`.

    Variances are told only where they were asked for, so that `whiten` and `score` need these.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    from sklearn.decomposition import PCA

    basis = answer.basis
    fitted = PCA(n_components=basis.shape[1])
    fitted.components_ = basis.T.copy()
    fitted.n_components_ = basis.shape[1]
    fitted.mean_ = np.zeros(len(basis)) if answer.center is None else answer.center
    if answer.explained is not None:
        fitted.explained_variance_ratio_ = answer.explained
    return _named(fitted, answer, len(basis))


def _named(fitted: Any, answer: Any, features: int) -> Any:
    fitted.n_features_in_ = features
    if answer.schema is not None and answer.feature_names:
        fitted.feature_names_in_ = np.array(answer.feature_names, dtype=object)
    fitted.privest_card_ = answer.card
    return fitted
