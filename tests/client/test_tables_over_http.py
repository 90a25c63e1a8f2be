"""Frames as people have them, from the upload to predictions, against a real service."""

import asyncio
import io
import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.utils.validation import check_is_fitted

from privest_client import (
    AsyncClient,
    BudgetExceeded,
    Client,
    DatasetInvalid,
    InvalidRequest,
    SchemaMismatch,
    load,
    question,
    table,
)
from testing import ROOT
from testing.penguin_files import CSV, SCHEMA
from testing.server import Caller, Server

PENGUINS = pd.read_csv(io.BytesIO(CSV))
DOCS = ROOT / "docs/tables.md"
MEASURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
BOTH = {"pandas": PENGUINS, "polars": pl.from_pandas(PENGUINS)}


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner(epsilon=500.0, delta=1e-3)


@pytest.mark.parametrize("frame", BOTH.values(), ids=list(BOTH))
def test_one_upload_of_a_frame_serves_means_directions_and_classifiers(
    client: Client, frame: Any, tmp_path: Any
) -> None:
    """With next to no noise: what comes back is what numpy and the rows themselves say."""
    birds = client.upload(frame, values_are_public=True)
    assert birds.n == len(PENGUINS)
    means = client.mean(birds, ["body_mass_g", "species"], epsilon=100)
    filled = PENGUINS["body_mass_g"].fillna(4500).mean()
    assert means.columns["body_mass_g"] == pytest.approx(filled, abs=60)
    low, high = means.interval(0.999)["body_mass_g"]
    assert low < filled < high
    assert means.columns["species=Gentoo"] == pytest.approx(124 / 344, abs=0.02)
    directions = client.pca(birds, MEASURES, rank=1, epsilon=100)
    scaled = (PENGUINS[MEASURES] - [45, 17.25, 202.5, 4500]) / [15, 4.25, 32.5, 2000]
    first = np.linalg.svd((scaled - scaled.mean()).dropna())[2][0]
    loadings = dict(zip(directions.feature_names, directions.basis[:, 0], strict=True))
    assert abs(sum(loadings[name] * first[place] for place, name in enumerate(MEASURES))) > 0.98
    kinds = client.classify(birds, "species", MEASURES, epsilon=100)
    assert np.mean(np.asarray(kinds.predict(frame)) == PENGUINS["species"]) > 0.88
    kinds.save(tmp_path / "kinds.json")
    assert [*load(tmp_path / "kinds.json").predict(frame)] == [*kinds.predict(frame)]
    assert [*client.wait(kinds.id).predict(frame)] == [*kinds.predict(frame)]
    assert client.model(kinds, "onnx")


def test_every_feature_of_the_service_is_made_the_same_here(client: Client) -> None:
    """A classifier of all columns, gaps and texts: its score over there is that of its predictions here."""
    birds = client.upload(table(PENGUINS, values_are_public=True))
    kinds = client.classify(birds, "sex", epsilon=100)
    assert kinds.classes == ["female", "male", "missing"]
    score = client.score(birds, kinds, epsilon=100)
    truth = PENGUINS["sex"].fillna("missing")
    assert np.mean(kinds.predict(PENGUINS) == truth) == pytest.approx(score.value, abs=0.003)
    # In whatever order features were named: the score takes the model's own.
    some = client.classify(birds, "species", ["year", "bill_length_mm", "sex"], epsilon=50)
    assert (some.label, some.features) == ("species", ["year", "bill_length_mm", "sex"])
    right = np.mean(some.predict(PENGUINS) == PENGUINS["species"])
    assert client.score(birds, some, epsilon=100).value == pytest.approx(right, abs=0.003)


def test_a_model_of_chosen_and_merged_categories_is_scored_and_predicts(client: Client) -> None:
    columns = {"island": {"categories": ["Biscoe", "Dream", "Torgersen"], "reference": "Dream"}}
    birds = client.upload(table(PENGUINS, columns=columns, values_are_public=True))
    usual = client.classify(birds, "species", ["island", "sex"], epsilon=50)
    assert usual.references == {"island": ["Dream"], "sex": ["female"]}
    assert "relative to: island: Dream; sex: female" in repr(usual)
    chosen = ["island=Biscoe|Torgersen", "bill_length_mm", "sex=male|missing"]
    kinds = client.classify(birds, "species", chosen, epsilon=100)
    assert kinds.feature_names == [*chosen[:2], "bill_length_mm missing", chosen[2]]
    assert kinds.features == ["island", "bill_length_mm", "sex"]
    right = np.mean(kinds.predict(PENGUINS) == PENGUINS["species"])
    assert client.score(birds, kinds, epsilon=100).value == pytest.approx(right, abs=0.003)
    # A column may be called as the gaps of another are.
    odd = PENGUINS.assign(**{"body_mass_g missing": PENGUINS["island"]})
    other = client.upload(table(odd, values_are_public=True))
    fit = client.classify(other, "species", ["body_mass_g", "body_mass_g missing"], epsilon=50)
    right = np.mean(fit.predict(odd) == odd["species"])
    assert client.score(other, fit, epsilon=100).value == pytest.approx(right, abs=0.003)
    np.testing.assert_allclose(
        kinds.to_sklearn().predict_proba(PENGUINS), kinds.predict_proba(PENGUINS), rtol=1e-12
    )


@pytest.mark.parametrize("frame", BOTH.values(), ids=list(BOTH))
def test_scikit_learn_takes_the_frame_as_it_is(client: Client, frame: Any) -> None:
    """Gaps and texts are the pipeline's own business, and its numbers are those of the answer."""
    birds = client.upload(table(PENGUINS, values_are_public=True))
    kinds = client.classify(birds, "species", epsilon=100)
    fitted = kinds.to_sklearn()
    check_is_fitted(fitted)
    assert [*fitted.feature_names_in_] == [name for name in PENGUINS if name != "species"]
    np.testing.assert_allclose(fitted.predict_proba(frame), kinds.predict_proba(frame), rtol=1e-12)
    assert [*fitted.predict(frame)] == [*kinds.predict(frame)]
    assert fitted.score(frame, PENGUINS["species"]) > 0.88
    assert [*fitted[:-1].get_feature_names_out()] == kinds.feature_names
    assert fitted.privest_card_ == kinds.card
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - its user's own
    assert [*again.predict(frame[:9])] == [*kinds.predict(frame[:9])]
    with pytest.raises(SchemaMismatch, match="island: no declared category: Atlantis"):
        fitted.predict(PENGUINS.assign(island="Atlantis"))
    directions = client.pca(birds, ["year", "sex", "body_mass_g"], rank=2, epsilon=100)
    scaled = np.column_stack(
        [
            (PENGUINS["body_mass_g"].fillna(4500) - 4500) / 2000,
            np.where(PENGUINS["body_mass_g"].isna(), 1, -1),
            *(np.where(PENGUINS["sex"] == sex, 1, -1) for sex in ("female", "male")),
            np.where(PENGUINS["sex"].isna(), 1, -1),
            PENGUINS["year"] - 2008,
        ]
    )
    found = directions.to_sklearn().transform(frame)
    np.testing.assert_allclose(found, (scaled - directions.center) @ directions.basis, atol=1e-9)


def test_a_model_for_other_runtimes_takes_the_frame_as_docs_say(client: Client) -> None:
    """The lines of docs/tables.md take gaps, texts, truth values, and dates with and without a time."""
    (lines,) = re.findall(
        r"^```python\n(import onnxruntime.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL
    )
    days = pd.date_range("2007-01-01", periods=len(PENGUINS), freq="3D")
    frame = PENGUINS.assign(
        seen=days.where(days.day != 7), noted=days + pd.Timedelta(hours=23), new=days.day > 9
    )
    kinds = client.classify(client.upload(table(frame, values_are_public=True)), "species", epsilon=100)
    left: dict[str, Any] = {"client": client, "kinds": kinds, "frame": frame}
    exec(compile(lines, DOCS.name, "exec"), left)  # noqa: S102 - our own page
    np.testing.assert_allclose(left["chances"], kinds.predict_proba(frame), atol=1e-6)
    assert [*left["label"]] == [*kinds.predict(frame)]


def test_an_array_is_uploaded_under_the_schema_of_a_table(client: Client) -> None:
    columns = [{"name": name, "type": "number", "low": -4, "high": 4} for name in "ab"]
    rows = np.random.default_rng(0).normal(size=(400, 2))
    dataset = client.upload(rows, {"kind": "table", "columns": columns})
    found = client.mean(dataset, ["b"], epsilon=50).columns
    assert found["b"] == pytest.approx(rows[:, 1].mean(), abs=0.05)


def test_dates_and_truth_values_make_the_way_and_come_back(client: Client) -> None:
    days = pd.date_range("2020-01-01", periods=600)
    frame = pd.DataFrame({"seen": days, "late": days > "2020-08-01", "unit": days.day_name()})
    known = {"seen": {"low": "2019-01-01", "high": "2023-01-01"}}
    dataset = client.upload(frame, columns=known, drop=["unit"], confirm=True)
    seen = client.mean(dataset, epsilon=50).columns
    assert abs((pd.Timestamp(str(seen["seen"])) - days.to_series().mean()).days) < 10
    late = client.classify(dataset, "late", epsilon=200)
    # .946 ± .007 over sixty runs, whose noise no one seeds.
    assert np.mean(late.predict(frame) == frame["late"]) > 0.9
    dummy = client.datasets.dummy(dataset, 50)
    assert list(dummy.columns) == ["seen", "late"]
    assert len(late.predict(dummy)) == 50


def test_rows_that_are_there_already_are_warned_of(client: Client) -> None:
    birds = table(PENGUINS, values_are_public=True)
    first = client.upload(birds)
    with pytest.warns(UserWarning, match=f"already, as {first.id}: questions about this copy are charged"):
        client.upload(birds)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            client.upload(birds)
    assert " and 1 more: questions" in str(seen[-1].message)  # of four, three are named


def test_what_to_ask_with_is_found_by_what_is_needed(client: Client) -> None:
    birds = client.upload(PENGUINS, {**SCHEMA})
    plan = client.plan("frechet-mean", birds, MEASURES, within={"bill_length_mm": 1.5})
    assert 0.01 < plan.epsilon < 50
    assert "bill_length_mm ± 1" in str(plan)
    told = client.mean(birds, MEASURES, epsilon=plan.epsilon).columns
    assert told["bill_length_mm"] == pytest.approx(43.9, abs=4)
    assert client.plan("robust-pca", birds, MEASURES, rank=1, within=0.2).expected_error.unfavourable <= 0.2
    half = client.plan("frechet-mean", birds, MEASURES, share=0.5)
    assert half.told.room.share <= 0.5 * half.told.room.left
    for wrong in ({}, {"epsilon": 1, "share": 0.5}, {"within": 1, "share": 0.5}):
        with pytest.raises(InvalidRequest, match="one of epsilon, within and share"):
            client.plan("frechet-mean", birds, **wrong)
    with pytest.raises(InvalidRequest, match=r"share=0\.5"):
        client.plan("frechet-mean", birds, share="half")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidRequest, match="no column beak"):
        client.plan("frechet-mean", birds, MEASURES, within={"beak": 1})


def test_several_questions_are_priced_and_asked_together(client: Client) -> None:
    birds = client.upload(PENGUINS, {**SCHEMA})
    questions = [
        question("frechet-mean", birds, MEASURES, epsilon=1),
        question("logistic-regression", birds, label="species", epsilon=2),
        question("robust-pca", birds, MEASURES, rank=2, center=True, within=0.5),
    ]
    prices = client.price(questions)
    assert prices.covered
    said = str(prices)
    assert all(words in said for words in ("Price of 3 questions", "for 3 questions", "the budget: takes"))
    epsilon = prices.told.plans[2].privacy.epsilon
    questions[2] = question("robust-pca", birds, MEASURES, rank=2, center=True, epsilon=epsilon)
    means, kinds, plane = client.estimate_all(questions, key="all three")
    assert means.columns.keys() >= set(MEASURES)
    assert len(kinds.predict(PENGUINS)) == 344
    assert plane.basis.shape[1] == 2
    assert client.budget().told.queries == 3
    assert [each.job.id for each in client.estimate_all(questions, key="all three")] == [
        each.job.id for each in (means, kinds, plane)
    ]
    too_much = [*questions, question("frechet-mean", birds, epsilon=1000)]
    assert not client.price(too_much).covered
    with pytest.raises(BudgetExceeded, match="Question 4: It costs"):
        client.estimate_all(too_much)


def test_columns_are_one_question_in_any_order(client: Client) -> None:
    birds = client.upload(table(PENGUINS, values_are_public=True))
    first = client.mean(birds, ["year", "sex"], epsilon=1)
    again = client.mean(birds, ["sex", "year"], epsilon=1)
    assert again.free
    assert again.columns == first.columns


def test_a_category_that_is_called_false_stays_a_text(client: Client) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "said": np.where(np.arange(60) % 2, "true", "false")})
    known = {"x": {"low": 0, "high": 60}, "said": {"categories": ["false", "true"]}}
    said = client.classify(client.upload(frame, columns=known, confirm=True), "said", epsilon=1)
    assert said.labels == said.classes == ["false", "true"]
    assert set(said.predict(frame)) <= {"false", "true"}


def test_a_frame_is_asked_about_without_being_kept(client: Client) -> None:
    mean = client.mean(table(PENGUINS, values_are_public=True), ["sex"], epsilon=50)
    assert mean.columns["sex=male"] == pytest.approx(168 / 344, abs=0.02)
    unit = {"column": "island", "rows": 200}
    islands = table(PENGUINS[["island", "year"]], columns={"year": {"low": 2000, "high": 2020}}, unit=unit)
    assert client.plan("frechet-mean", islands, columns=["year"], epsilon=1).told.privacy.epsilon == 1
    found = client.mean(PENGUINS.dropna(), ["body_mass_g"], epsilon=50)
    assert found.columns["body_mass_g"] == pytest.approx(PENGUINS["body_mass_g"].mean(), abs=40)
    assert client.datasets.list() == []


def wide(n: int = 400) -> pd.DataFrame:
    """Forty columns: measures, counts that are mostly zero, truth values, and categories."""
    rng = np.random.default_rng(5)
    parts = {f"measure{k}": rng.normal(10.0**k, 10.0 ** (k - 1), n) for k in range(-3, 7)}
    parts |= {f"count{k}": rng.poisson(0.1 * k, n) for k in range(10)}
    parts |= {f"flag{k}": rng.random(n) < 0.1 * k for k in range(1, 9)}
    parts |= {f"kind{k}": pd.Categorical(rng.choice(["a", "b", "c"], n)) for k in range(12)}
    return pd.DataFrame(parts).assign(count0=np.arange(n) % 2)


def test_a_wide_table_of_mixed_columns(client: Client) -> None:
    frame = wide()
    assert frame.shape[1] == 40
    dataset = client.upload(frame, values_are_public=True)
    columns = client.mean(dataset, epsilon=200).columns
    numbers = [name for name in frame if name.startswith(("measure", "count", "flag"))]
    for name in numbers:
        spread = np.ptp(frame[name].to_numpy(dtype=float))
        assert columns[name] == pytest.approx(frame[name].mean(), abs=0.08 * spread), name
    assert len(columns) == 28 + 12 * 3
    assert client.pca(dataset, numbers, rank=2, epsilon=50).basis.shape == (28, 2)
    fit = client.classify(dataset, "flag1", epsilon=50)
    assert len(fit.predict(frame)) == len(frame)


@pytest.mark.parametrize(
    ("frame", "choices", "said"),
    [
        (PENGUINS, {"drop": ["species", "island"]}, "sex: text: list what there may be"),
        (PENGUINS.set_index("island"), {}, "index island holds data"),
    ],
    ids=["texts", "an index"],
)
def test_what_dtypes_do_not_tell_is_asked_before_anything_is_sent(
    client: Client, frame: pd.DataFrame, choices: dict[str, Any], said: str
) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        client.upload(frame, **choices)
    assert client.datasets.list() == []


def test_what_breaks_the_schema_is_told_column_by_column_and_nothing_is_stored(client: Client) -> None:
    """A gap in a frame is told before anything is sent; of values alone the service has the word."""
    bad = pd.DataFrame(
        {"bill": [1.0, np.nan, 3.0], "island": ["a", "b", "c"], "seen": ["2007-11-11"] * 2 + ["x"]}
    )
    said = {"island": {"categories": ["a", "b"]}, "seen": {"type": "date"}}
    with pytest.raises(SchemaMismatch) as asked:
        client.upload(bad, columns=said, confirm=True)
    assert [line.split(":")[0].strip() for line in str(asked.value).splitlines()[1:]] == [
        "bill",
        "island",
        "seen",
    ]
    said["bill"] = {"missing": "filled", "fill": 2}
    with pytest.raises(DatasetInvalid) as told:
        client.upload(bad, columns=said, confirm=True)
    assert {fault["field"] for fault in told.value.faults} == {"island", "seen"}
    assert client.datasets.list() == []


def test_whole_numbers_name_columns_in_every_question(client: Client) -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(500, 2))
    frame = pd.DataFrame(rows).assign(**{"2": rows.sum(axis=1) > 0}).rename(columns={"2": 2})
    bounds = {0: {"low": -4, "high": 4}, 1: {"low": -4, "high": 4}}
    dataset = client.upload(frame, columns=bounds, confirm=True)
    assert list(client.mean(dataset, [0], epsilon=20).columns) == ["0"]
    fit = client.classify(dataset, 2, [0, 1], epsilon=50)
    assert np.mean(fit.predict(frame) == frame[2]) > 0.9
    assert client.plan("frechet-mean", table(frame, columns=bounds), columns=[1], epsilon=1)
    assert client.pca(dataset, [0, 1], rank=1, epsilon=20).feature_names == ["0", "1"]


def test_a_dataset_is_printed_as_its_columns(client: Client) -> None:
    birds = client.upload(table(PENGUINS, values_are_public=True), name="Birds")
    for told in (birds, client.datasets.get(birds), client.datasets.list()[0]):
        lines = str(told).splitlines()
        assert lines[0] == f"Dataset {birds.id} of 344 records: Birds"
        assert lines[1].split() == ["column", "type", "values", "a", "gap"]
        assert [line.split()[0] for line in lines[2:]] == list(PENGUINS)
        assert re.search(r"sex +category +female, male +category", str(told))
        assert told.schema_.kind == "table"
    assert "<caption>Dataset" in birds._repr_html_()
    assert str(client.upload(np.eye(4), {"kind": "vectors", "dim": 4})).splitlines()[1:3] == [
        "kind: vectors", "dim: 4",
    ]  # fmt: skip


def test_the_same_in_an_event_loop(server: Server, owner: Caller) -> None:
    async def ask() -> None:
        async with AsyncClient(server.url, owner.key) as client:
            birds = await client.upload(PENGUINS, {**SCHEMA})
            means, kinds = await asyncio.gather(
                client.mean(birds, MEASURES, epsilon=50), client.classify(birds, "species", epsilon=50)
            )
            assert means.columns["bill_length_mm"] == pytest.approx(43.9, abs=1)
            assert len(kinds.predict(PENGUINS)) == 344

    asyncio.run(ask())
