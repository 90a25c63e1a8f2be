"""Pages about a table: its columns, and answers by the names of columns, in their own units."""

import io
import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from testing.browser import Visitor
from testing.penguin_files import CSV, SCHEMA
from testing.scenes import answered, owner_called
from testing.server import Caller, Server

Visit = Callable[..., Visitor]

LONG = "the length of the bill as somebody measured it twice, " + "in_millimetres_" * 9
NAMES = {
    "bill_length_mm": "<script>alert('bill')</script>",
    "body_mass_g": LONG,
    "sex": "sex\u202e\u0085&amp; <b>",
    "year": "Jahr der Zählung 年",
}
"""What columns may be called: markup, marks that turn the direction of writing, no end of letters."""

CATEGORIES = {"Biscoe": "<img src=x onerror=alert(1)>", "Dream": "Dream \u202e", "Torgersen": "T" * 120}


def named(name: str) -> str:
    return NAMES.get(name, name)


@pytest.fixture(scope="module")
def asked(site: Server) -> tuple[Caller, str, dict[str, str]]:
    """An owner of penguins in columns of strange names, and questions that were answered."""
    owner = owner_called(site, "Table of birds", epsilon=60.0)
    frame = pd.read_csv(io.BytesIO(CSV)).rename(columns=NAMES).replace({"island": CATEGORIES})
    columns = [dict(column) | {"name": named(column["name"])} for column in SCHEMA["columns"]]
    columns[1]["categories"] = list(CATEGORIES.values())
    columns.append({"name": "seen", "type": "date", "low": "2007-01-01", "high": "2009-12-31"})
    frame["seen"] = "2008-02-29"
    content = frame.to_csv(index=False, na_rep="NA").encode()
    declared = {"schema": json.dumps({"kind": "table", "columns": columns}), "name": "Birds"}
    made = owner.post("/v1/datasets", files={"file": ("birds.csv", content)}, data=declared)
    assert made.status_code == 201, made.text
    dataset = made.json()["id"]
    jobs = {
        "mean": answered(owner, dataset, epsilon=5.0),
        "directions": answered(owner, dataset, kind="robust-pca", rank=2, epsilon=5.0),
        "classifier": answered(owner, dataset, kind="logistic-regression", label=named("sex"), epsilon=5.0),
        "completion": answered(owner, dataset, kind="matrix-completion", rank=1, epsilon=5.0),
    }
    return owner, dataset, jobs


@pytest.fixture(params=[("light", "desktop"), ("dark", "phone")], ids=["desktop", "phone"])
def visitor(
    request: pytest.FixtureRequest, visit: Visit, asked: tuple[Caller, str, dict[str, str]]
) -> Visitor:
    """Whoever owns the table, at a desk and on a phone: no script of a name runs, and no host is asked."""
    scheme, viewport = request.param
    owner, _, _ = asked
    found = visit(owner.server, scheme=scheme, viewport=viewport)
    found.enter(owner.key)
    found.page.on("dialog", lambda dialog: found.errors.append(dialog.message))
    return found


def cells(visitor: Visitor, heading: str) -> list[list[str]]:
    """The table of a card, row by row; all of it lies on the screen."""
    card = visitor.page.locator("section.card", has=visitor.page.get_by_role("heading", name=heading))
    shown = card.locator("table")
    box = shown.bounding_box()
    assert box is not None
    wide = visitor.page.evaluate("document.documentElement.clientWidth")
    assert 0 <= box["x"] <= box["x"] + box["width"] <= wide + 0.5, box
    return [
        [cell.text_content() or "" for cell in row.locator("td").all()]
        for row in shown.locator("tbody tr").all()
    ]


def looked_at(visitor: Visitor, name: str) -> None:
    """Nothing keeps people out, nothing of the page lies beyond the screen, and no name became an element."""
    visitor.check_accessibility()
    wide = visitor.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1], visitor.page.url
    assert visitor.page.locator("main script, main img, main td b").count() == 0
    visitor.picture(f"table-{name}-{visitor.page.viewport_size['width']}")  # pyright: ignore[reportOptionalSubscript]


def test_the_page_of_a_table_tells_its_columns(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    _, dataset, _ = asked
    visitor.open(f"/dashboard/datasets/{dataset}")
    rows = cells(visitor, "Columns")
    assert [row[0] for row in rows] == [*(named(each["name"]) for each in SCHEMA["columns"]), "seen"]
    assert rows[1][1] == "category: " + ", ".join(CATEGORIES.values())
    assert rows[2][1:] == ["number: 30 to 60", "44 in its place"]
    assert rows[6][1:] == ["category: female, male", "category"]
    assert rows[-2][1:] == ["integer: 2007 to 2009", "refused"]
    assert rows[-1][1:] == ["date: 2007-01-01 to 2009-12-31", "refused"]
    assert not visitor.page.locator("pre").is_visible()
    looked_at(visitor, "dataset")


def test_means_are_told_in_the_units_of_their_columns(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    owner, _, jobs = asked
    visitor.open(f"/dashboard/answers/{jobs['mean']}")
    rows = cells(visitor, "Means of columns")
    told = owner.get(f"/v1/jobs/{jobs['mean']}").json()["estimate"]["columns"]
    assert [row[0] for row in rows] == [
        each["name"] + (" share" if each["kind"] == "share" else "") for each in told
    ]
    (mass,) = [row for row in rows if row[0] == LONG]
    ends = mass[2].split(" to ")
    low, value, high = (float(each.replace(",", "")) for each in (ends[0], mass[1], ends[1]))
    assert 2500 <= low < value < high <= 6500
    assert rows[-1][1:] == [told[-1]["value"], f"{told[-1]['low']} to {told[-1]['high']}"]
    assert not visitor.page.locator("pre").is_visible()
    looked_at(visitor, "mean")


@pytest.mark.parametrize("what", ["directions", "classifier", "completion"])
def test_pictures_call_features_by_their_names(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]], what: str
) -> None:
    _, _, jobs = asked
    visitor.open(f"/dashboard/answers/{jobs[what]}")
    picture = visitor.page.locator("svg.chart").first
    assert LONG in (picture.text_content() or "")
    assert NAMES["bill_length_mm"] in (picture.text_content() or "")
    looked_at(visitor, what)


def test_a_question_on_a_table_is_planned(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    _, dataset, _ = asked
    options: dict[str, Any] = {"columns": ["seen", LONG]}
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=0.5&options={json.dumps(options)}")
    assert "The budget" in visitor.page.locator("main").inner_text()
    looked_at(visitor, "what-if")
