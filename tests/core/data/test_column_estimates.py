"""Answers in the units of a table's columns."""

import numpy as np
import pytest

from privest.data.column_estimates import NO_INTERVAL, alike, column_errors, column_means, loadings
from privest.data.metadata import PointsMetadata
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column, Recipe


def recipe_of(*columns: Column) -> Recipe:
    made = metadata_for(PointsMetadata, TableMetadata(9, columns), TableChoice())
    assert made.recipe is not None
    return made.recipe


def test_answers_are_in_units_and_dates_are_dates() -> None:
    recipe = recipe_of(Column("seen", "date", 0.0, 20.0), Column("tagged", "boolean"))
    seen, tagged = column_means(np.array([0.0, 0.5]), recipe, alike(2, 0.3, 0.0))
    assert (seen.name, seen.value, seen.kind) == ("seen", "1970-01-11", "mean")
    assert (seen.low, seen.high) == ("1970-01-08", "1970-01-14")
    assert (tagged.value, tagged.kind) == (0.75, "share")
    half = 1.96 * 0.3 / 2.4477  # the 95 % quantile of a length in two dimensions
    assert tagged.high == pytest.approx(0.75 + half / 2, abs=1e-4)
    (first, _) = loadings(np.eye(2), recipe)
    assert (first.name, first.loadings.tolist()) == ("seen", [1.0, 0.0])


def test_where_no_interval_holds_none_is_stated() -> None:
    recipe = recipe_of(Column("paid", "number"), Column("seen", "date"), Column("tagged", "boolean"))
    half_widths = np.array([NO_INTERVAL, NO_INTERVAL, 0.1])
    paid, seen, tagged = column_means(np.array([3.0, 4.0, 0.0]), recipe, half_widths)
    assert (paid.value, paid.low, paid.high) == (3.0, None, None)
    assert (seen.value, seen.low, seen.high) == ("1970-01-05", None, None)
    assert (tagged.low, tagged.high) == (0.45, 0.55)


GAPS = Column("dose", "number", 0.0, 100.0, missing="filled", fill=0.0)


def test_the_mean_of_known_values_comes_before_the_filled_one() -> None:
    """44 % of gaps that count as 0, and known values whose mean is 15.55."""
    recipe = recipe_of(GAPS)
    filled, share = 0.56 * 15.55, 0.44
    point = np.array([filled / 50 - 1, 2 * share - 1])
    known, all_records, missing = column_means(point, recipe, np.array([0.0, 0.0]))
    assert [each.name for each in (known, all_records, missing)] == ["dose", "dose filled", "dose missing"]
    assert known.value == pytest.approx(15.55)
    assert all_records.value == pytest.approx(filled)
    assert missing.value == pytest.approx(share)


@pytest.mark.few(6)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.44, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("fill", [0.0, 25.0, 100.0])
def test_the_interval_of_known_values_holds(share: float, fill: float) -> None:
    """In 4,000 draws .95 hold; less than .936 is seen once in 40,000 times. Seeds are fixed."""
    recipe = recipe_of(Column("dose", "number", 0.0, 100.0, missing="filled", fill=fill))
    truth, rng = 15.55, np.random.default_rng(1)
    exact = np.array([(share * fill + (1 - share) * truth) / 50 - 1, 2 * share - 1])
    noise, held = 0.02, 0
    for _ in range(4_000):
        point = exact + noise * rng.standard_normal(2)
        known = column_means(point, recipe, np.full(2, 1.96 * noise))[0]
        assert isinstance(known.low, float)
        assert isinstance(known.high, float)
        assert known.low <= float(known.value) <= known.high
        held += known.low <= truth <= known.high
    assert held / 4_000 > 0.936


def test_filled_dates_and_categories_have_known_ones_too() -> None:
    seen = Column("seen", "date", 0.0, 20.0, missing="filled", fill=0.0)
    kind = Column("kind", "category", categories=("a", "b"), missing="filled", fill=1.0)
    recipe = recipe_of(seen, kind)
    assert [feature.name for feature in recipe.features] == [
        "seen",
        "seen missing",
        "kind=b",
        "kind missing",
    ]
    point = np.array([-0.5, 0.0, 0.5, 0.0])  # means of 5 days, and a share of .75; half are gaps
    found = {each.name: each.value for each in column_means(point, recipe, np.zeros(4))}
    assert found["seen"] == "1970-01-11"
    assert found["seen filled"] == "1970-01-06"
    assert found["kind=a"] == pytest.approx(0.5)
    assert found["kind=a filled"] == pytest.approx(0.25)
    assert found["kind=b"] == pytest.approx(0.5)
    assert found["kind=b filled"] == pytest.approx(0.75)
    assert list(found)[-5:] == ["kind=a", "kind=a filled", "kind=b", "kind=b filled", "kind missing"]


def test_of_two_categories_one_is_released_and_both_have_the_interval_of_a_boolean() -> None:
    """Whichever is the reference."""
    both = {"categories": ("no", "yes")}
    ill, tagged = Column("ill", "category", **both), Column("tagged", "boolean")
    other = Column("other", "category", reference=1, **both)
    recipe = recipe_of(ill, tagged, other)
    assert [feature.name for feature in recipe.features] == ["ill=yes", "tagged", "other=no"]
    booleans = recipe_of(tagged, Column("a", "boolean"), Column("b", "boolean"))
    assert (recipe.l1_diameter, recipe.radius) == (booleans.l1_diameter, booleans.radius)
    found = {each.name: each for each in column_means(np.array([0.5, 0.5, 0.5]), recipe, np.full(3, 0.1))}
    assert list(found) == ["ill=no", "ill=yes", "tagged", "other=no", "other=yes"]
    for name, value in (("ill=no", 0.25), ("ill=yes", 0.75), ("other=no", 0.75), ("other=yes", 0.25)):
        ends = (found[name].value, found[name].low, found[name].high)
        assert ends == pytest.approx((value, value - 0.05, value + 0.05))
    told = column_errors(recipe, np.full(3, 0.1))
    assert [each.name for each in told] == list(found)
    assert {each.radius_95 for each in told} == {0.05}
