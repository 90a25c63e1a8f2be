"""Answers as fitted estimators of scikit-learn, where that is installed."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from privest_client.features import columns_used, design, standardised

if TYPE_CHECKING:
    from privest_client.answers import LinearClassifier, Subspace


def logistic_regression(answer: "LinearClassifier") -> Any:
    """A fitted `LogisticRegression` with the same chances; on a table, behind what makes features of frames.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    fitted = _module("linear_model").LogisticRegression()
    fitted.classes_ = np.array(answer.labels, dtype=object)
    fitted.coef_ = np.atleast_2d(answer.coefficients)
    fitted.intercept_ = np.atleast_1d(answer.intercept)
    fitted.n_iter_ = np.array([0])
    return _whole(fitted, answer, answer.coefficients.shape[-1], design)


def pca(answer: "Subspace") -> Any:
    """A fitted `PCA` on the same subspace; on a table, behind what makes standardised features of frames.

    Its coordinates are those along the columns of `basis`. Variances are told only where they were asked for,
    so that `whiten` and `score` need these.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    basis = answer.basis
    fitted = _module("decomposition").PCA(n_components=basis.shape[1])
    fitted.components_ = basis.T.copy()
    fitted.n_components_ = basis.shape[1]
    fitted.mean_ = np.zeros(len(basis)) if answer.center is None else answer.center
    if answer.explained is not None:
        fitted.explained_variance_ratio_ = answer.explained
    told = answer.job.estimate
    found = None if told.centers is None or told.scales is None else (told.centers, told.scales)
    return _whole(fitted, answer, len(basis), partial(standardised, units=found))


def _whole(fitted: Any, answer: Any, features: int, made: Callable[..., Any]) -> Any:
    """An estimator with its card and its names: on a table a pipeline, whose first step takes frames."""
    fitted.n_features_in_ = features
    schema, names = answer.schema, answer.feature_names
    if schema is not None and schema["kind"] == "table":
        fitted = _pipeline(fitted, made, names, schema)
    elif schema is not None and names:
        fitted.feature_names_in_ = np.array(names, dtype=object)
    fitted.privest_card_ = answer.card
    return fitted


def _module(name: str) -> Any:
    """A part of scikit-learn.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(f"sklearn.{name}")
    except ImportError:
        raise ImportError("to_sklearn needs scikit-learn: pip install scikit-learn") from None


def _pipeline(fitted: Any, made: Callable[..., Any], names: list[str], schema: Any) -> Any:
    columns: Any = _module("preprocessing").FunctionTransformer(
        made, kw_args={"names": names, "schema": schema}, feature_names_out=_names_out
    )
    columns.feature_names_in_ = np.array(columns_used(names, schema), dtype=object)
    columns.n_features_in_ = len(columns.feature_names_in_)
    return _module("pipeline").make_pipeline(columns, fitted)


def _names_out(columns: Any, _: Any) -> Any:
    """The names of the features that the first step of a pipeline makes."""
    return np.array(columns.kw_args["names"], dtype=object)
