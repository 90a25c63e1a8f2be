"""Estimates and the costs of their plans stay the same, to the last bit, when code is moved.

The default of every estimator is pinned, of points and of tables, and the main options.
`PRIVEST_PIN=1 pytest tests/core/test_pinned_estimates.py` pins estimates anew: all, or those of `-k`.
Do this only in a change that is meant to change answers, and say so. Where linear algebra rounds in another
way than where an estimate was pinned, its answer is compared to nine digits.
"""

import json
import os
import platform
from dataclasses import fields, is_dataclass, replace
from functools import partial
from hashlib import sha256
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column, dummy_rows
from privest.estimators import federation
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model import classifier_score, classifier_selection, logistic_regression
from privest.estimators.linear_model.candidate import Candidate
from privest.estimators.linear_model.classifier_score import ScoreSpec
from privest.estimators.linear_model.classifier_selection import SelectionSpec
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.range_finding import bounds
from privest.estimators.range_finding.bounds import BoundsSpec
from privest.estimators.subspace import matrix_completion, robust_pca
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.privacy import noise
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

PINNED = Path(__file__).with_name("pinned_estimates.json")

_N = 600
_TARGET, _PURE = PrivacyTarget(2.0, 1e-5), PrivacyTarget(2.0, 0.0)
_GDP = PrivacyTarget(2.0, 1e-5, 1e-7)
"""Target on a budget that counts μ², which is the default. The others are on budgets that add up ε and δ."""
_SPD = PointsMetadata(_N, {"name": "spd", "dim": 3}, radius=1.0)
_SPHERE = PointsMetadata(_N, {"name": "sphere", "dim": 4}, radius=1.0)
_PLANE = PointsMetadata(_N, {"name": "euclidean", "dim": 3}, radius=2.0)
_HYPERBOLIC = PointsMetadata(_N, {"name": "lorentz", "dim": 3}, radius=1.0)
_VECTORS = VectorsMetadata(_N, 8)
_PARTIAL = PartialVectorsMetadata(_N, 8, 0.6)
_LABELLED = LabelledMetadata(_N, ("a", "b"), "y", ("0", "1"), 2.0, (0.0, 0.0), (1.0, 1.0))
_THREE = LabelledMetadata(_N, ("a", "b"), "y", ("0", "1", "2"), 2.0)

_ROWS = 20_000
_AGE, _PAID = Column("age", "integer", 0.0, 120.0), Column("paid", "number", 0.0, 10_000.0)
_NARROW = Column("narrow", "number", 0.0, 1e6)
_ILL, _WARD = Column("ill", "boolean"), Column("ward", "category", categories=("a", "b", "c"))
_GAPS = (
    Column("dose", "number", 0.0, 10.0, missing="filled", fill=0.0),
    Column("smokes", "boolean", missing="category"),
)
_OPEN = (Column("income", "number"), Column("since", "date"))


def _table(kind: type[DatasetMetadata], *columns: Column, **choice: Any) -> DatasetMetadata:
    """The public facts of a question on a table."""
    return metadata_for(kind, TableMetadata(_ROWS, columns), TableChoice(**choice))


CASES: dict[str, tuple[Any, Any, Any, PrivacyTarget]] = {
    "mean": (frechet_mean, FrechetMeanSpec(diagnostics=False), _SPD, _TARGET),
    "mean of a sphere, delta 0": (frechet_mean, FrechetMeanSpec(diagnostics=False), _SPHERE, _PURE),
    "mean of hyperbolic points": (
        frechet_mean,
        FrechetMeanSpec(clip=0.5, diagnostics=False),
        _HYPERBOLIC,
        _TARGET,
    ),
    "mean by rsgd": (
        frechet_mean,
        FrechetMeanSpec(solver="rsgd", rate=0.1, steps=20, diagnostics=False),
        _PLANE,
        _TARGET,
    ),
    "mean by rsvrg": (
        frechet_mean,
        FrechetMeanSpec(solver="rsvrg", epochs=2, steps=3, diagnostics=False),
        _SPD,
        _TARGET,
    ),
    "subspace": (robust_pca, RobustPCASpec(2), _VECTORS, _TARGET),
    "subspace with all": (
        robust_pca,
        RobustPCASpec(2, center=True, explained=True, consensus=True, steps=4),
        _VECTORS,
        _TARGET,
    ),
    "subspace by sggd": (robust_pca, RobustPCASpec(2, solver="sggd", steps=10), _VECTORS, _TARGET),
    "subspace by gd-reaper": (robust_pca, RobustPCASpec(2, solver="gd-reaper", steps=4), _VECTORS, _TARGET),
    "subspace by smd-reaper": (robust_pca, RobustPCASpec(2, solver="smd-reaper", steps=4), _VECTORS, _TARGET),
    "subspace from a sketch": (
        robust_pca,
        RobustPCASpec(2, start="sketch", loss="bounded"),
        _VECTORS,
        _TARGET,
    ),
    "completion": (matrix_completion, MatrixCompletionSpec(2), _PARTIAL, _TARGET),
    "classifier": (logistic_regression, LogisticSpec(), _LABELLED, _TARGET),
    "classifier by newton": (
        logistic_regression,
        LogisticSpec(solver="newton", sampling_errors=True),
        _THREE,
        _TARGET,
    ),
    "classifier by clipped": (logistic_regression, LogisticSpec(solver="clipped"), _THREE, _PURE),
    "classifier by masg-opt": (
        logistic_regression,
        LogisticSpec(solver="masg-opt", steps=12),
        _LABELLED,
        _TARGET,
    ),
    "classifier by batches": (
        logistic_regression,
        LogisticSpec(solver="nag", steps=6, batch_size=60),
        _LABELLED,
        _TARGET,
    ),
    "classifier by escape": (
        logistic_regression,
        LogisticSpec(loss="sigmoid", standardisation="private"),
        _LABELLED,
        _TARGET,
    ),
    "classifier by spider": (
        logistic_regression,
        LogisticSpec(loss="logistic-nonconvex", solver="spider", penalty=0.1),
        LabelledMetadata(60_000, ("a",), "y", ("0", "1"), 2.0),
        PrivacyTarget(8.0, 1e-5),
    ),
    "accuracy": (classifier_score, ScoreSpec([1.0, -1.0], 0.5), _LABELLED, _TARGET),
    "area": (classifier_score, ScoreSpec([1.0, -1.0], 0.5, metric="auc"), _LABELLED, _TARGET),
    "mean by default": (FRECHET_MEAN, FrechetMeanSpec(), _SPD, _GDP),
    "mean by default, delta 0": (FRECHET_MEAN, FrechetMeanSpec(), _PLANE, _PURE),
    "table, means": (FRECHET_MEAN, FrechetMeanSpec(), _table(PointsMetadata, _AGE, _PAID, _WARD), _GDP),
    "table, mean of a narrow column": (
        FRECHET_MEAN,
        FrechetMeanSpec(),
        _table(PointsMetadata, _NARROW),
        _GDP,
    ),
    "table, one mean on a basic budget": (
        FRECHET_MEAN,
        FrechetMeanSpec(),
        _table(PointsMetadata, _AGE, _PAID, columns=("age",)),
        _TARGET,
    ),
    "table, means with gaps": (FRECHET_MEAN, FrechetMeanSpec(), _table(PointsMetadata, *_GAPS), _GDP),
    "table, share of a yes/no column": (
        FRECHET_MEAN,
        FrechetMeanSpec(),
        _table(PointsMetadata, _ILL),
        _GDP,
    ),
    "table, means without bounds": (
        FRECHET_MEAN,
        FrechetMeanSpec(),
        _table(PointsMetadata, *_OPEN, _ILL),
        _GDP,
    ),
    "table, means by noisy-sum": (
        FRECHET_MEAN,
        FrechetMeanSpec(solver="noisy-sum"),
        _table(PointsMetadata, _AGE, _PAID),
        _GDP,
    ),
    "table, classifier": (
        logistic_regression,
        LogisticSpec(),
        _table(LabelledMetadata, _AGE, _PAID, _WARD, _ILL, label="ill"),
        _GDP,
    ),
    "table, classifier without bounds": (
        logistic_regression,
        LogisticSpec(),
        _table(LabelledMetadata, _AGE, *_OPEN, _ILL, label="ill"),
        _GDP,
    ),
    "table, classifier of three classes with gaps": (
        logistic_regression,
        LogisticSpec(),
        _table(LabelledMetadata, _AGE, *_GAPS, _WARD, label="ward"),
        _GDP,
    ),
    "table, one of two classifiers": (
        classifier_selection,
        SelectionSpec((Candidate(), Candidate(solver="clipped"))),
        _table(LabelledMetadata, _AGE, _PAID, _ILL, label="ill"),
        _GDP,
    ),
    "table, accuracy": (
        classifier_score,
        ScoreSpec([0.02, -0.001], 0.0),
        _table(LabelledMetadata, _AGE, _PAID, _ILL, label="ill"),
        _GDP,
    ),
    "table, area": (
        classifier_score,
        ScoreSpec([0.02, -0.001], 0.0, metric="auc"),
        _table(LabelledMetadata, _AGE, _PAID, _ILL, label="ill"),
        _GDP,
    ),
    "table, subspace": (
        robust_pca,
        RobustPCASpec(2),
        _table(VectorsMetadata, _AGE, _PAID, _ILL, _WARD),
        _GDP,
    ),
    "table, subspace without bounds": (
        robust_pca,
        RobustPCASpec(2),
        _table(VectorsMetadata, _AGE, *_OPEN, _ILL),
        _GDP,
    ),
    "table, completion": (
        matrix_completion,
        MatrixCompletionSpec(1),
        _table(
            PartialVectorsMetadata,
            _AGE,
            _PAID,
            *(replace(each, missing="filled", fill=1.0) for each in _GAPS),
        ),
        _GDP,
    ),
    "table, bounds": (bounds, BoundsSpec(), _table(PointsMetadata, _AGE, _PAID), _GDP),
}
"""Estimates by name: the estimator, its options, the public facts of the records, and the privacy target."""


def _numbers(answer: Any) -> list[float]:
    """Every number of an answer but its uncertainty, in the order of its fields."""
    if is_dataclass(answer):
        parts = [getattr(answer, field.name) for field in fields(answer) if field.name != "uncertainty"]
        return [x for part in parts for x in _numbers(part)]
    if isinstance(answer, np.ndarray | list | tuple | float | int):
        found = np.asarray(answer)
        if found.dtype.kind == "O":
            return [x for part in found.tolist() for x in _numbers(part)]
        return found.astype(float).ravel().tolist() if found.dtype.kind in "fi" else []
    return []


def records(shape: DatasetMetadata) -> Records:
    """Return synthetic records. Those of a table are skewed towards the least value of each column.

    The values of a column called `narrow` are within a thousandth of its bounds.
    """
    rng = np.random.default_rng(1)
    if shape.recipe is None:
        return Records(shape.dummy(shape.n, rng))
    rows = dummy_rows(shape.recipe.columns, shape.n, rng)
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    skewed = low + (high - low) * ((rows - low) / (high - low)) ** 4
    for place, column in enumerate(shape.recipe.columns):
        if column.type != "number":
            skewed[:, place] = np.round(skewed[:, place])
        if column.name == "narrow":
            skewed[:, place] /= 1000
    return Records(skewed, recipe=shape.recipe)


def _estimate(name: str) -> dict[str, Any]:
    estimator, spec, shape, target = CASES[name]
    plan = estimator.plan(spec, shape, target)
    gate = Gate(records(shape), plan.statistics, plan.releases)
    answer = estimator.run(plan, gate)
    if shape.recipe is not None:
        answer = answer.in_columns(shape.recipe, plan.expected_error)
    cost = [plan.cost.mu_squared.hex(), plan.cost.slack.hex()]
    return {"cost": cost, "answer": [x.hex() for x in _numbers(answer)]}


def _joint() -> dict[str, Any]:
    """An estimate over two owners."""
    shapes = [_SPHERE, PointsMetadata(900, {"name": "sphere", "dim": 4}, radius=1.0)]
    spec = FrechetMeanSpec(steps=4, local_steps=3, diagnostics=False)
    plan = federation.plan(partial(frechet_mean.plan, spec), shapes, [_TARGET, PrivacyTarget(1.0, 1e-6)])
    gates = [
        Gate(Records(shape.dummy(shape.n, np.random.default_rng(k))), plan.statistics, part.releases)
        for k, (shape, part) in enumerate(zip(shapes, plan.parts, strict=True))
    ]
    answer = federation.run(plan, frechet_mean.run, gates)
    return {
        "cost": [x.hex() for part in plan.parts for x in (part.cost.mu_squared, part.cost.slack)],
        "answer": [x.hex() for x in _numbers(answer)],
    }


def _processor() -> str:
    """Digest of what decides how sums are rounded: numpy, the processor, and the code that BLAS chose."""
    kernels = sorted(each["architecture"] for each in threadpool_info() if each["user_api"] == "blas")
    found = [platform.machine(), np.__version__, np.show_config(mode="dicts"), kernels]
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


@pytest.fixture(autouse=True)
def _one_noise(_fixed_noise: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every estimate here draws the same fixed noise."""
    monkeypatch.setattr(noise, "_generator", lambda: np.random.default_rng(20))


@pytest.mark.parametrize("name", [*CASES, "several owners"])
def test_an_estimate_is_what_it_was(name: str) -> None:
    found = _joint() if name == "several owners" else _estimate(name)
    if os.environ.get("PRIVEST_PIN"):
        kept = json.loads(PINNED.read_text())
        kept["estimates"][name] = {"processor": _processor(), **found}
        PINNED.write_text(json.dumps(kept, indent=1) + "\n")
        return
    before = json.loads(PINNED.read_text())["estimates"][name]
    assert found["cost"] == before["cost"]
    if before["processor"] == _processor():
        assert found["answer"] == before["answer"]
    else:
        pairs = zip(found["answer"], before["answer"], strict=True)
        assert all(isclose(float.fromhex(a), float.fromhex(b), rel_tol=1e-9, abs_tol=1e-9) for a, b in pairs)
