"""Recipes: a row's image is its own and within bounds, and sums through a recipe are those of its images."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata, PartialVectorsMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column, Recipe, date_of, day_of
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.manifolds.euclidean import Euclidean
from privest.privacy.gate import ChunkSum

COLUMNS = (
    Column("length", "number", 30.0, 60.0, missing="filled", fill=44.0),
    Column("year", "integer", 2007.0, 2009.0),
    Column("species", "category", categories=("A", "C", "G")),
    Column("sex", "category", categories=("f", "m"), missing="category"),
    Column("tagged", "boolean"),
    Column("ringed", "boolean", missing="category"),
    Column("seen", "date", 13514.0, 14600.0, missing="filled", fill=14000.0),
)
TABLE = TableMetadata(50, COLUMNS)
KINDS: list[tuple[Any, TableChoice]] = [
    (PointsMetadata, TableChoice()),
    (VectorsMetadata, TableChoice(("length", "sex"))),
    (LabelledMetadata, TableChoice(label="sex")),
    (LabelledMetadata, TableChoice(label="tagged", features=("length", "species"))),
    (LabelledMetadata, TableChoice(label="tagged", features=("sex=f|missing", "species=A|G", "ringed=true"))),
    (PartialVectorsMetadata, TableChoice()),
]
ANY = st.floats(allow_nan=True, allow_infinity=True)
hostile = st.lists(st.lists(ANY, min_size=7, max_size=7), min_size=2, max_size=20)


def honest(n: int = 40, seed: int = 0) -> Array:
    return TABLE.dummy(n, np.random.default_rng(seed))


@pytest.mark.parametrize(("kind", "choice"), KINDS)
@given(rows=hostile, other=st.lists(ANY, min_size=7, max_size=7))
@settings(max_examples=40, deadline=None)
def test_an_image_depends_on_its_own_row_alone_to_the_last_bit(kind, choice, rows, other) -> None:
    recipe = metadata_for(kind, TABLE, choice).recipe
    assert recipe is not None
    before = np.array(rows)
    after = before.copy()
    after[0] = other
    assert recipe(before)[1:].tobytes() == recipe(after)[1:].tobytes()
    assert recipe(before[::-1])[::-1].tobytes() == recipe(before).tobytes()


@pytest.mark.parametrize(("kind", "choice"), KINDS)
def test_records_are_what_the_estimator_takes_and_names_tell_them(kind, choice) -> None:
    made = metadata_for(kind, TABLE, choice)
    assert made.recipe is not None
    images = made.recipe(honest())
    assert images.shape == (40, *made.record)
    assert not made.broken_rule(images).any()
    assert not TABLE.broken_rule(honest()).any()


@given(rows=hostile)
@settings(max_examples=60, deadline=None)
def test_bounds_hold_and_all_images_are_in_the_public_ball(rows) -> None:
    made = metadata_for(PointsMetadata, TABLE, TableChoice())
    assert isinstance(made, PointsMetadata)
    assert made.recipe is not None
    assert made.radius is not None
    images = made.recipe(np.array(rows))
    assert np.nanmax(np.abs(images), initial=0.0) <= 1.0
    away = made.recipe(honest(400)) - np.array(made.center)
    assert np.linalg.norm(away, axis=1).max() <= made.radius * (1 + 1e-12)


def test_values_are_scaled_filled_and_drawn_in() -> None:
    made = metadata_for(PointsMetadata, TABLE, TableChoice(("length", "sex", "ringed")))
    assert made.recipe is not None
    names = [feature.name for feature in made.recipe.features]
    assert names == [
        "length", "length missing", "sex=f", "sex=m", "sex missing",
        "ringed=false", "ringed=true", "ringed missing",
    ]  # fmt: skip
    rows = np.array([[1e9, 0, 0, 1, 0, 1, 0], [np.nan, 0, 0, np.nan, 0, np.nan, 0]])
    np.testing.assert_allclose(
        made.recipe(rows), [[1, -1, -1, 1, -1, -1, 1, -1], [-1 / 15, 1, -1, -1, 1, -1, -1, 1]]
    )


def test_labels_have_a_class_of_gaps_and_features_their_own_units() -> None:
    made = metadata_for(LabelledMetadata, TABLE, TableChoice(label="sex", features=("length", "seen")))
    assert isinstance(made, LabelledMetadata)
    assert made.recipe is not None
    assert made.classes == ("f", "m", "missing")
    assert (made.mean, made.scale) == ((45.0, 0.5, 14057.0, 0.5), (15.0, 0.5, 543.0, 0.5))
    np.testing.assert_array_equal(
        made.recipe(np.array([[40.0, 0, 0, np.nan, 0, 0, np.nan]])), [[40, 0, 14000, 1, 2]]
    )


@pytest.mark.parametrize(
    ("kind", "choice", "words"),
    [
        (PointsMetadata, TableChoice(("size",)), "no column size: it has length, year"),
        (PointsMetadata, TableChoice(("year", "year")), "each column once"),
        (PointsMetadata, TableChoice(()), "at least one column"),
        (LabelledMetadata, TableChoice(), "name a label"),
        (LabelledMetadata, TableChoice(label="year"), "year is no label"),
        (LabelledMetadata, TableChoice(label="sex", features=("sex",)), "must not name the label"),
        (PartialVectorsMetadata, TableChoice(("year", "sex")), "leave out sex"),
        (PartialVectorsMetadata, TableChoice(("year",)), "at least two columns"),
    ],
)
def test_choices_that_do_not_fit_are_refused_in_words(kind, choice, words) -> None:
    with pytest.raises(ValueError, match=words):
        metadata_for(kind, TABLE, choice)


def test_a_column_without_bounds_stays_in_its_own_units() -> None:
    half = Column("height", "number", low=0.0)
    table = TableMetadata(9, (Column("income", "number"), half, Column("age", "number", 0.0, 100.0)))
    made = metadata_for(PointsMetadata, table, TableChoice())
    assert made.recipe is not None
    assert isinstance(made, PointsMetadata)
    assert (made.center, made.radius) == (None, None)
    images = made.recipe(np.array([[-7.0, -1.0, 75.0], [1e300, 9.0, 200.0]]))
    assert images.tolist() == [[-7.0, 0.0, 0.5], [1e300, 9.0, 1.0]]
    np.testing.assert_array_equal(made.recipe.range, [[-np.inf, 0.0, -1.0], [np.inf, np.inf, 1.0]])


def test_a_classifier_sees_columns_in_their_own_units_with_or_without_bounds() -> None:
    columns = (Column("income", "number"), Column("age", "number", 0.0, 99.0), Column("left", "boolean"))
    made = metadata_for(LabelledMetadata, TableMetadata(9, columns), TableChoice(label="left"))
    assert made.recipe is not None
    assert made.recipe(np.array([[1e9, 120.0, 1.0]])).tolist() == [[1e9, 99.0, 1.0]]
    np.testing.assert_array_equal(made.recipe.range, [[-np.inf, 0.0], [np.inf, 99.0]])


def test_sums_through_a_recipe_are_those_of_its_images_whatever_the_threads_and_batches() -> None:
    made = metadata_for(PointsMetadata, TABLE, TableChoice())
    assert made.recipe is not None
    assert isinstance(made, PointsMetadata)
    rows = honest(9000)
    loss = SquaredDistance(Euclidean(made.recipe.width))
    summed = ChunkSum(loss, np.array(made.center), 3.0, 2.0**-30, grouped=False)
    images = made.recipe(rows)
    whole = Records(images, 1).sum(summed)
    for threads in (1, 2):
        np.testing.assert_array_equal(Records(rows, threads, recipe=made.recipe).sum(summed), whole)
    some = np.arange(0, 9000, 7)
    np.testing.assert_array_equal(
        Records(rows, 1, recipe=made.recipe).sum_of(some, summed.of_pieces),
        Records(images, 1).sum_of(some, summed.of_pieces),
    )


def test_the_first_dummies_of_many_are_those_of_few() -> None:
    np.testing.assert_array_equal(honest(40)[:7], honest(7))
    assert [column.cell(1.0) for column in COLUMNS[2:5]] == ["C", "m", True]
    assert [column.cell(np.nan) for column in COLUMNS[:2]] == [None, None]


@given(st.dates())
def test_a_date_comes_back_from_its_number(day) -> None:
    assert date_of(day_of(day)) == day.isoformat()


def labelled(*features: str, label: str = "tagged") -> LabelledMetadata:
    made = metadata_for(LabelledMetadata, TABLE, TableChoice(label=label, features=features or None))
    assert isinstance(made, LabelledMetadata)
    return made


def test_a_classifier_takes_an_indicator_of_every_category_but_the_reference() -> None:
    """With all of them and an intercept no coefficient would be determined."""
    made = labelled("species", "sex", "ringed", "length")
    assert made.features == (
        "species=C", "species=G", "sex=m", "sex missing", "ringed=true", "ringed missing",
        "length", "length missing",
    )  # fmt: skip
    assert made.recipe is not None
    named = [(column.name, categories) for column, categories in made.recipe.references]
    assert named == [("species", ("A",)), ("sex", ("f",)), ("ringed", ("false",))]
    rows = np.array([[40.0, 0, 2, np.nan, 1, 1, 0], [40.0, 0, 0, 0, 0, np.nan, 0]])
    assert made.recipe(rows).tolist() == [[0, 1, 0, 1, 1, 0, 40, 0, 1], [0, 0, 0, 0, 0, 1, 40, 0, 0]]
    images = made.recipe(honest(400))[:, :-1]
    assert np.linalg.matrix_rank(np.column_stack([images, np.ones(400)])) == len(made.features) + 1
    assert made.recipe.is_usual


def test_a_schema_chooses_the_reference() -> None:
    columns = [replace(each, reference=2) if each.name == "species" else each for each in COLUMNS]
    table = TableMetadata(50, tuple(columns))
    made = metadata_for(LabelledMetadata, table, TableChoice(label="tagged", features=("species",)))
    assert isinstance(made, LabelledMetadata)
    assert made.features == ("species=A", "species=C")
    means = metadata_for(PointsMetadata, table, TableChoice(("species",)))
    assert means.recipe is not None
    assert [each.name for each in means.recipe.features] == ["species=A", "species=C", "species=G"]


def test_single_categories_are_features_left_out_or_merged() -> None:
    made = labelled("species=G", "length", "sex=m|missing")
    assert made.features == ("species=G", "length", "length missing", "sex=m|missing")
    assert made.recipe is not None
    named = [(column.name, categories) for column, categories in made.recipe.references]
    assert named == [("species", ("A", "C")), ("sex", ("f",))]
    assert not made.recipe.is_usual
    rows = np.array([[40.0, 0, 2, np.nan, 1, 1, 0], [40.0, 0, 1, 0, 0, 1, 0], [40.0, 0, 1, 1, 0, 1, 0]])
    assert made.recipe(rows)[:, [0, 3]].tolist() == [[1, 1], [0, 0], [0, 1]]
    assert labelled("species=C", "species=A|G").recipe is not None
    every = labelled("species=A", "species=C", "species=G")
    assert every.recipe is not None
    assert every.recipe.references == ()


def test_the_features_of_an_answer_ask_for_the_same_ones() -> None:
    for made in (labelled(), labelled("sex=m|missing", "species=A|C", "length"), labelled("seen", "ringed")):
        assert labelled(*made.features) == made


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("species=A", "species"), "each column once, and its categories one after another"),
        (("species=A", "length", "species=C"), "one after another"),
        (("species=A", "species=A|C"), "each category of species once"),
        (("species=A|A",), "species has no such category: it has A, C, G"),
        (("species=X",), "species has no such category"),
        (("species missing",), "no column species missing"),
        (("length missing",), "comes with its column: name length"),
        (("length=3",), "no column length=3"),
        (("tagged=true",), "no column tagged=true"),
        (("sex=f",), "must not name the label"),
        (("length", "length"), "each column once"),
    ],
)
def test_features_that_do_not_fit_are_refused_in_words(names, words) -> None:
    with pytest.raises(ValueError, match=words):
        labelled(*names, label="sex")


def test_a_category_may_be_called_like_several() -> None:
    column = Column("c", "category", categories=("a", "b", "a|b"))
    table = TableMetadata(9, (column, Column("y", "boolean")))
    for name, levels in (("c=a|b", (2,)), ("c=b", (1,)), ("c=b|a", (0, 1))):
        made = metadata_for(LabelledMetadata, table, TableChoice(label="y", features=(name,)))
        assert made.recipe is not None
        assert made.recipe.features[0].levels == levels


@given(
    st.lists(
        st.sampled_from(["species=A", "species=C", "species=A|C", "species=G", "species=C|G"]), min_size=1
    )
)
@settings(max_examples=50, deadline=None)
def test_chosen_indicators_are_of_no_category_twice(names) -> None:
    try:
        made = labelled(*names)
    except ValueError:
        told = [each for name in names for each in name.removeprefix("species=").split("|")]
        assert len(told) > len({*told})
        return
    assert made.recipe is not None
    images = made.recipe(honest(200))[:, :-1]
    assert images.shape[1] == len(names)
    assert images.sum(axis=1).max() <= 1


def test_a_recipe_of_before_there_were_references_has_all_indicators() -> None:
    stored = TypeAdapter(Recipe).dump_python(labelled("species", "tagged", label="sex").recipe, mode="json")
    del stored["indicators"]
    for column in stored["columns"]:
        del column["reference"]
    again = TypeAdapter(Recipe).validate_python(stored)
    assert [each.name for each in again.features] == ["species=A", "species=C", "species=G", "tagged"]
    assert again.references == ()
