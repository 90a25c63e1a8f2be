"""Answers are made for reading, for predicting, and for being kept and handed on."""

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import decomposition
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from privest_client import (
    Client,
    FrechetMean,
    LinearClassifier,
    SchemaMismatch,
    Score,
    Subspace,
    UnexpectedAnswer,
    load,
)
from privest_client.answers import Estimate

LABELLED = {
    "kind": "labelled",
    "features": ["age", "ward"],
    "categories": {"ward": ["A", "B"]},
    "label": "ill",
    "classes": ["no", "yes"],
    "mean": [50.0, None],
    "scale": [10.0, None],
}


def patients(n: int = 1000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    ill = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "age": 50 + 10 * rng.standard_normal(n) + 10 * ill,
            "ward": np.where(rng.random(n) < 0.3 + 0.4 * ill, "A", "B"),
            "ill": np.where(ill, "yes", "no"),
        }
    )


@pytest.fixture
def fit(client: Client) -> LinearClassifier:
    dataset = client.datasets.upload(patients(), LABELLED)
    return client.logistic_regression(dataset, epsilon=4.0)


RECEIPT = SimpleNamespace(
    statement=SimpleNamespace(dataset="ds_1", plan="p" * 64, answer="a" * 64), signature="s", public_key="k"
)


def told(kind: str, estimate: Any, **uncertainty: Any) -> Any:
    """A stand-in for a job."""
    known = {
        "of": "the mean of these records",
        "radius_95": 0.1,
        "standard_deviation": 0.05,
        "noise": 0.08,
        "moved": None,
        "sampling": 0.02,
        "unknown": [],
    }
    return SimpleNamespace(
        id="job_1",
        kind=kind,
        state="committed",
        estimate=SimpleNamespace(**estimate),
        uncertainty=SimpleNamespace(**known | uncertainty, model_dump=lambda **_: known | uncertainty),
        privacy=SimpleNamespace(epsilon=1.0, delta=1e-6, mu=0.3, slack=0.0, adjacency="replace-one"),
        forecast=None,
        warnings=["few records"],
        receipt=RECEIPT,
        reused=False,
        dummy=False,
        charges=[],
    )


def column(name: str, low: Any, value: Any, high: Any, kind: str = "mean") -> Any:
    return SimpleNamespace(name=name, low=low, value=value, high=high, kind=kind)


MEANS = FrechetMean(
    told(
        "frechet-mean",
        {
            "point": [0.1, 0.2, 0.3],
            "columns": [
                column("body_mass_g", 4150.0, 4201.7, 4253.4),
                column("body_mass_g filled", 4150.0, 4201.0, 4253.0),
                column("paid", None, 12.5, None),
                column("seen", "2008-05-01", "2008-05-11", "2008-05-20"),
                column("species=Adelie", 0.0, 0.02, 0.07, "share"),
            ],
        },
    ),
    {"kind": "table", "columns": [
        {"name": "body_mass_g", "type": "number", "missing": "filled", "fill": 4200},
        {"name": "paid", "type": "number"},
        {"name": "seen", "type": "date"},
        {"name": "species", "type": "category", "categories": ["Adelie", "Gentoo"]},
        {"name": "not_asked", "type": "number", "missing": "filled", "fill": 0},
    ]},
)  # fmt: skip


def test_means_of_columns_are_read_in_their_own_units() -> None:
    assert repr(MEANS).splitlines() == [
        "Answer of frechet-mean on ds_1",
        "  name                value       ± in 95 %",
        "  body_mass_g         4202        52",
        "  body_mass_g filled  4201        52",
        "  paid                12.5        none",
        "  seen                2008-05-11  10 days",
        "  species=Adelie      0.020       0.050",
        "warning: few records",
        "± is: by noise and clipping, from the mean of these very records",
        "off by at most: 0.1 in 95 of 100 runs, from the mean of these records: all columns at once, in "
        "halves of the widths of their bounds",
        "by the noise alone: 0.08",
        "by clipping, penalties and unfinished steps: unknown",
        "standard error of few records: 0.02, in no other figure",
        "cost: ε = 1, δ = 1e-06",
        "job: job_1, committed",
        "with gaps: body_mass_g filled: every gap counts as 4200",
    ]
    assert MEANS._repr_html_().count("<tr>") == 6 + 9
    assert MEANS.columns == {
        "body_mass_g": 4201.7,
        "body_mass_g filled": 4201.0,
        "paid": 12.5,
        "seen": "2008-05-11",
        "species=Adelie": 0.02,
    }
    assert MEANS.interval()["paid"] == (None, None)
    assert MEANS.interval()["body_mass_g"] == (4150.0, 4253.4)


def test_intervals_of_other_levels_are_as_wide_as_the_normal_law_says() -> None:
    low, high = MEANS.interval(0.99)["body_mass_g"]
    assert (high - low) / (4253.4 - 4150.0) == pytest.approx(2.5758 / 1.96, rel=1e-4)
    assert MEANS.interval(0.99)["seen"] == ("2008-04-27", "2008-05-25")
    # A share's lower end was cut at 0: the other one tells how wide the interval is.
    assert MEANS.interval(0.5)["species=Adelie"] == (
        pytest.approx(0.02 - 0.05 * 0.6745 / 1.96, abs=1e-5),
        pytest.approx(0.02 + 0.05 * 0.6745 / 1.96, abs=1e-5),
    )
    assert MEANS.interval(0.99)["species=Adelie"][0] == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        MEANS.interval(95)


def test_answers_become_frames_of_the_library_that_is_asked_for() -> None:
    frame = MEANS.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["name", "value", "low", "high", "kind"]
    assert MEANS.to_frame("polars")["value"].to_list() == ["4201.7", "4201.0", "12.5", "2008-05-11", "0.02"]
    assert FITTED.to_frame("polars").equals(pl.from_pandas(FITTED.to_frame()))


FITTED = LinearClassifier(
    told(
        "logistic-regression",
        {
            "coefficients": [[0.5, -1.0], [0.1, 0.2], [-0.6, 0.8]],
            "intercept": [0.1, 0.0, -0.1],
            "classes": ["a", "b", "c"],
            "noise": SimpleNamespace(standard_errors=[[0.1] * 3] * 3, covariance=None),
            "sampling": None,
            "features": ["x", "y"],
        },
    ),
    {"kind": "table", "columns": [{"name": "x", "type": "number"}, {"name": "y", "type": "boolean"}]},
)


def test_models_of_more_classes_have_a_row_for_each_class_and_feature() -> None:
    assert list(FITTED.interval())[:4] == ["x, a", "y, a", "intercept, a", "x, b"]
    frame = pd.DataFrame({"y": [True, False], "x": [1.0, -2.0]})
    scores = np.array([[0.5, -1.0, 0.1], [0.1, 0.2, 0.0], [-0.6, 0.8, -0.1]])
    expected = np.array([[1.0, 1, 1], [-2, 0, 1]]) @ scores.T
    np.testing.assert_allclose(FITTED.scores(frame), expected)
    np.testing.assert_allclose(
        FITTED.predict_proba(frame), np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    )
    assert [*FITTED.predict(frame)] == [["a", "b", "c"][place] for place in expected.argmax(axis=1)]


PCA = Subspace(
    told(
        "robust-pca",
        {"basis": [[1.0, 0.0], [0.0, 0.6], [0.0, 0.8]], "center": None, "explained": [0.6, 0.3],
         "columns": ["bill", "mass", "species=Adelie"], "centers": None, "scales": None},
    ),
    {"kind": "table", "columns": [
        {"name": "bill", "type": "number", "low": 30, "high": 60},
        {"name": "mass", "type": "number", "low": -1, "high": 1},
        {"name": "species", "type": "category", "categories": ["Adelie", "Gentoo"]},
    ]},
)  # fmt: skip


def test_directions_that_lead_to_a_yes_or_no_say_so() -> None:
    """An indicator differs more than a number within its bounds: of columns of numbers nothing is said."""
    assert "led: direction 2 by species=Adelie: yes or no differs more than" in repr(PCA)
    assert PCA.schema is not None
    columns = [*PCA.schema["columns"][:2], {"name": "species=Adelie", "type": "number"}]
    assert "led:" not in repr(dataclasses.replace(PCA, schema={**PCA.schema, "columns": columns}))
    gaps = [{"name": "bill", "type": "number", "missing": "filled", "fill": 0}]
    estimate = {"basis": [[0.1], [0.99]], "center": None, "columns": ["bill", "bill missing"]}
    missing = Subspace(told("robust-pca", estimate), {"kind": "table", "columns": gaps})
    assert "led: direction 1 by bill missing" in repr(missing)


SCORE = Score(
    told("classifier-score", {"value": 0.7, "standard_error": 0.03, "sampling_error": 0.04, "metric": "auc"})
)


def test_a_score_has_the_intervals_that_the_service_states() -> None:
    """An older service states none: they follow from the standard errors."""
    assert SCORE.population == pytest.approx((0.7 - 1.96 * 0.05, 0.7 + 1.96 * 0.05), abs=1e-4)
    assert SCORE.these_records == pytest.approx((0.7 - 1.96 * 0.03, 0.7 + 1.96 * 0.03), abs=1e-4)
    stated = {
        "these_records": SimpleNamespace(low=0.65, high=0.72),
        "population": SimpleNamespace(low=0.6, high=0.75),
    }
    new = Score(told("classifier-score", SCORE.job.estimate.__dict__ | stated))
    assert (new.these_records, new.population) == ((0.65, 0.72), (0.6, 0.75))
    assert new.interval() == {"auc": pytest.approx((0.6, 0.75))}
    ((low, high),) = new.interval(0.99).values()
    assert low < 0.6
    assert high > 0.75


def test_what_is_said_of_figures_is_so() -> None:
    """± of a score is of the noise and of few records, what it is off by of the noise: each says which."""
    assert f"auc   0.700  {1.96 * 0.05:.3f}" in repr(SCORE)
    assert "± is: by noise and having few records" in repr(SCORE)
    assert "standard error of few records: 0.02, in ± and in no other figure" in repr(SCORE)
    assert "± is: by noise alone, and not by clipping and a penalty" in repr(FITTED)
    assert "standard error of few records: 0.02, in no other figure" in repr(FITTED)
    sampled = SimpleNamespace(standard_errors=[[0.2] * 3] * 3)
    told_both = SimpleNamespace(**FITTED.job.estimate.__dict__ | {"sampling": sampled})
    both = LinearClassifier(SimpleNamespace(**FITTED.job.__dict__ | {"estimate": told_both}), FITTED.schema)
    assert "± is: by noise and having few records, and not" in repr(both)
    assert "0.02, in ± and in no other figure" in repr(both)


def test_what_a_long_answer_leaves_out_is_told_with_the_way_to_it() -> None:
    names = [f"c{place}" for place in range(40)]
    estimate = {"basis": np.eye(40)[:, :9].tolist(), "center": None, "columns": names}
    long = Subspace(told("robust-pca", estimate))
    assert "\n  …    " in repr(long)
    assert "\nnot shown: 29 more rows and 3 more columns: .to_frame() has all\n" in repr(long)
    assert "29 more rows" in long._repr_html_()
    assert long.to_frame().shape == (40, 10)
    assert "not shown" not in repr(MEANS)


def test_without_scikit_learn_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    with pytest.raises(ImportError, match="to_sklearn needs scikit-learn: pip install scikit-learn"):
        PCA.to_sklearn()


def test_directions_are_read_by_names_of_columns() -> None:
    assert "species=Adelie  0            0.8" in repr(PCA)
    assert PCA.feature_names == ["bill", "mass", "species=Adelie"]
    assert PCA.interval() == {"distance": (0.0, 0.1)}
    with pytest.raises(ValueError, match="only the distance"):
        PCA.interval(0.9)


@pytest.mark.parametrize("answer", [MEANS, FITTED, PCA], ids=lambda it: it.job.kind)
def test_answers_are_drawn(answer: Estimate) -> None:
    mpl.use("agg")
    drawn = np.atleast_1d(answer.plot())
    labels = [text.get_text() for axis in drawn for text in axis.get_yticklabels()]
    # On a table intercepts are where all columns are 0: far from all that is to be seen.
    assert set(labels) == {name for name in answer.to_frame()["name"] if not name.startswith("intercept")}


def test_a_classifier_takes_the_frame_that_was_uploaded(fit: LinearClassifier) -> None:
    frame = patients()
    assert fit.feature_names == ["age", "ward=A", "ward=B"]
    said = fit.predict(frame)
    assert np.mean(said == frame["ill"]) > 0.65
    assert fit.predict(pl.from_pandas(frame)).to_list() == [*said]
    assert list(fit.predict(frame[frame["ward"] == "B"]).index) == [*frame.index[frame["ward"] == "B"]]
    features = np.column_stack([frame["age"], frame["ward"] == "A", frame["ward"] == "B"])
    np.testing.assert_array_equal(fit.predict(features), said)
    by_hand = frame["age"] * fit.coefficients[0] + np.where(
        frame["ward"] == "A", fit.coefficients[1], fit.coefficients[2]
    )
    np.testing.assert_allclose(fit.scores(frame), by_hand + fit.intercept)
    np.testing.assert_allclose(fit.predict_proba(frame)[:, 1], 1 / (1 + np.exp(-fit.scores(frame))))
    with pytest.raises(SchemaMismatch, match=r"ward: no declared category: C"):
        fit.predict(frame.assign(ward="C"))


def test_nothing_prints_a_raw_model(client: Client, fit: LinearClassifier) -> None:
    shown = repr(fit)
    assert len(shown) - sum(map(len, fit.warnings)) < 1500
    assert "ward=A" in shown
    assert "covariance" not in shown
    assert fit.covariance is not None
    assert fit.covariance.shape == (4, 4)
    for thing in (fit.job, fit.privacy, fit.receipt, fit.uncertainty, client.me()):
        assert len(repr(thing)) < 1000
        assert "\n" not in repr(thing)
    score = client.classifier_score(
        client.datasets.list()[0], epsilon=1.0, coefficients=fit.coefficients, intercept=float(fit.intercept)
    )
    assert isinstance(score, Score)
    ((low, high),) = score.interval(0.9).values()
    assert low < score.value < high
    assert score.population[0] <= score.these_records[0] <= score.value <= score.these_records[1]
    assert score.these_records[1] <= score.population[1]


def test_an_answer_is_kept_and_read_again(fit: LinearClassifier, tmp_path: Path) -> None:
    fit.save(tmp_path / "fit.json")
    again = load(tmp_path / "fit.json")
    assert type(again) is LinearClassifier
    assert [*again.predict(patients())] == [*fit.predict(patients())]
    assert (again.job, again.card, repr(again)) == (fit.job, fit.card, repr(fit))
    card = json.loads((tmp_path / "fit.json").read_text())["card"]
    assert card["privacy"]["epsilon"] == 4.0
    assert card["neighbours"].startswith("replace-one")
    assert card["receipt"]["answer"] == fit.receipt.statement.answer  # pyright: ignore[reportOptionalMemberAccess]
    assert (card["unit"], card["synthetic"]) == ("one row", False)
    assert card["errors"]["of"]
    for wrong in ("{}", "[1]", "no JSON"):
        (tmp_path / "wrong.json").write_text(wrong)
        with pytest.raises(UnexpectedAnswer, match=r"wrong\.json holds no answer"):
            load(tmp_path / "wrong.json")


def test_a_classifier_is_handed_to_scikit_learn(fit: LinearClassifier) -> None:
    """It is scikit-learn's own class, whose checks are scikit-learn's: what was put into it is looked at."""
    fitted, frame = fit.to_sklearn(), patients()
    assert type(fitted) is LogisticRegression
    check_is_fitted(fitted)
    indicators = pd.DataFrame(
        {"age": frame["age"], "ward=A": frame["ward"] == "A", "ward=B": frame["ward"] == "B"}, dtype=float
    )
    np.testing.assert_allclose(fitted.predict_proba(indicators), fit.predict_proba(frame), rtol=1e-12)
    assert [*fitted.predict(indicators)] == [*fit.predict(frame)]
    assert fitted.score(indicators, frame["ill"]) > 0.65
    assert fitted.privest_card_ == fit.card
    multi, rows = FITTED.to_sklearn(), np.array([[1.0, 1.0], [-2.0, 0.0]])
    np.testing.assert_allclose(
        multi.predict_proba(pd.DataFrame(rows, columns=["x", "y"])), FITTED.predict_proba(rows)
    )


def test_directions_are_handed_to_scikit_learn() -> None:
    """Directions of a table come behind what standardises its columns, here by hand, and others alone."""
    fitted, rows = PCA.to_sklearn(), np.random.default_rng(0).standard_normal((9, 3))
    check_is_fitted(fitted)
    frame = pd.DataFrame(
        {"bill": [30, 50, 70], "mass": [0, 0.5, 1], "species": ["Adelie", "Gentoo", "Adelie"]}
    )
    standardised = np.array([[-1, 0, 1], [1 / 3, 0.5, -1], [1, 1, 1]])
    np.testing.assert_allclose(fitted.transform(frame), standardised @ PCA.basis, atol=1e-12)
    assert list(fitted.get_feature_names_out()) == ["pca0", "pca1"]
    assert fitted.privest_card_["privacy"]["mu"] == 0.3
    alone = dataclasses.replace(PCA, schema=None).to_sklearn()
    assert type(alone) is type(fitted[-1]) is decomposition.PCA
    check_is_fitted(alone)
    np.testing.assert_allclose(alone.transform(rows), rows @ PCA.basis)
    np.testing.assert_allclose(alone.inverse_transform(rows @ PCA.basis), rows @ PCA.basis @ PCA.basis.T)
