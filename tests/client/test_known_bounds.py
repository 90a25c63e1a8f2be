"""Bounds that names suggest: from the name alone, for a person to confirm."""

from typing import Any

import pandas as pd
import pytest

from privest_client import Client, SchemaMismatch, table
from privest_client.known_bounds import bounds_by_name, offered

FRAME = pd.DataFrame({"Age": [30, 41], "weight_kg": [61.5, 80.0], "income": [1.0, 2.0], "year": [2001, 2002]})


@pytest.mark.parametrize("name", ["age", "AGE", " Age ", "ageYears", "age (years)", "age.in.years"])
def test_a_name_is_known_however_it_is_written(name: str) -> None:
    assert bounds_by_name(name) == (0, 110)


@pytest.mark.parametrize(
    "name", ["mileage", "age_group", "height", "weight", "temperature", "", "…", "hours"]
)
def test_a_name_that_may_mean_other_units_or_things_has_none(name: str) -> None:
    assert bounds_by_name(name) is None


def test_percentages_are_known_by_their_sign() -> None:
    assert bounds_by_name("%") == (0, 100)
    assert bounds_by_name("share") == (0, 1)


@pytest.mark.parametrize(
    "column",
    [
        {"name": "age", "type": "number", "low": 18},
        {"name": "age", "type": "integer", "low": None, "high": None},
        {"name": "age", "type": "category", "categories": ["old", "young"]},
        {"name": "age", "type": "number", "missing": "filled", "fill": -1},
        {"name": "age", "type": "date", "missing": "filled", "fill": "2020-01-01"},
    ],
)
def test_what_the_owner_declares_wins(column: dict[str, Any]) -> None:
    assert offered(column) == {}


def test_no_row_decides_what_is_offered() -> None:
    far = FRAME.assign(Age=[10**6, -(10**6)], weight_kg=[0.0, 1e9])
    assert table(far, bounds="offered").schema == table(FRAME, bounds="offered").schema
    assert table(FRAME[:0], bounds="offered").schema == table(FRAME, bounds="offered").schema


def test_offers_are_marked_where_they_are_shown() -> None:
    shown = str(table(FRAME, columns={"year": {"low": 2000, "high": 2010}}, bounds="offered"))
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert "0 to 110 (offered by its name)" in lines["Age"]
    assert "0.3 to 400 (offered by its name)" in lines["weight_kg"]
    assert "2000 to 2010 " in lines["year"]
    assert "offered" not in lines["year"] + lines["income"]
    assert "pass columns={'Age': {'low': '…', 'high': '…'}}" in shown
    assert "offered" not in str(table(FRAME))


def test_bounds_themselves_are_declared_in_columns() -> None:
    with pytest.raises(SchemaMismatch, match="declare bounds of a column as columns="):
        table(FRAME, bounds={"Age": (0, 90)})  # type: ignore[arg-type]


def test_a_person_confirms_offers_and_a_program_asks_for_them(client: Client) -> None:
    seen = list[str]()
    asked = client.upload(FRAME, confirm=lambda shown: not seen.append(str(shown)))
    assert "offered" in seen[0]
    by_name = client.upload(FRAME, confirm=True, bounds="offered")
    unlooked = client.upload(FRAME, confirm=True)
    ends = [
        {each["name"]: (each.get("low"), each.get("high")) for each in made._declared}
        for made in (asked, by_name, unlooked)
    ]
    offers = {"Age": (0, 110), "weight_kg": (0.3, 400), "income": (None, None), "year": (1900, 2100)}
    assert ends == [offers, offers, dict.fromkeys(offers, (None, None))]


def test_values_outside_bounds_are_told_to_their_owner(client: Client) -> None:
    rows = FRAME.assign(Age=[-3, 400])
    with pytest.warns(UserWarning, match=r"outside the declared bounds.*: 2 of Age\. If they are right"):
        made = client.upload(rows, confirm=True, bounds="offered")
    assert made.outside_bounds == {"Age": 2}
    assert "outside the bounds: 2 of Age; they count as the nearer bound" in str(made)
    assert "outside" not in str(client.datasets.get(made))
