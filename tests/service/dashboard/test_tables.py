"""Pages about a table: its columns, and answers by the names of columns, in their own units."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from testing.browser import Visitor
from testing.penguin_files import CSV, SCHEMA
from testing.scenes import answered, dataset_called, owner_called
from testing.server import Caller, Server

Visit = Callable[..., Visitor]

LONG = "the length of the bill as somebody measured it twice, " + "in_millimetres_" * 9
NAMES = {
    "bill_length_mm": "<script>alert('bill')</script>",
    "body_mass_g": LONG,
    "sex": "sex מין &amp; <b>",
    "year": "Jahr der Zählung 年",
}
"""What columns may be called: markup, letters written from right to left, no end of letters."""

CATEGORIES = {"Biscoe": "<img src=x onerror=alert(1)>", "Dream": "Dream חלום", "Torgersen": "T" * 120}


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


@pytest.mark.few(1)
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


@pytest.mark.few(1)
def test_means_are_told_in_the_units_of_their_columns(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    owner, _, jobs = asked
    visitor.open(f"/dashboard/answers/{jobs['mean']}")
    rows = cells(visitor, "Means of columns")
    told = owner.get(f"/v1/jobs/{jobs['mean']}").json()["estimate"]["columns"]
    filled = {
        f"{named(each['name'])} filled": f" every gap counts as {each['fill']}"
        for each in SCHEMA["columns"]
        if "fill" in each
    }
    assert [row[0] for row in rows] == [
        each["name"] + (" share" if each["kind"] == "share" else filled.get(each["name"], ""))
        for each in told
    ]
    (mass,) = [row for row in rows if row[0] == LONG]
    ends = mass[2].split(" to ")
    value, reach = mass[1].split(" ± ")
    # Thousands are not set apart in any of them.
    low, value, high, reach = map(float, (ends[0], value, ends[1], reach))
    assert 2500 <= low < value < high <= 6500
    assert (high - low) / 2 == pytest.approx(reach, rel=0.05)
    (year,) = [row for row in rows if row[0].startswith(named("year"))]
    assert 2007 <= float(year[1].split(" ± ")[0]) <= 2009
    assert rows[-1][1:] == [told[-1]["value"], f"{told[-1]['low']} to {told[-1]['high']}"]
    assert not visitor.page.locator("pre").is_visible()
    looked_at(visitor, "mean")


@pytest.mark.few(2)
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


@pytest.mark.few(1)
def test_coefficients_are_a_table_with_the_intercept_apart(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    owner, _, jobs = asked
    visitor.open(f"/dashboard/answers/{jobs['classifier']}")
    found = owner.get(f"/v1/jobs/{jobs['classifier']}").json()["estimate"]
    page = visitor.page
    page.get_by_text("As numbers").click()
    for kind, row in zip(found["classes"], found["coefficients"], strict=True):
        shown = page.get_by_role("region", name=f"Coefficients towards “{kind}”").locator("tbody tr")
        told = [each.locator("td").all_inner_texts() for each in shown.all()]
        assert [cells[0] for cells in told[:-1]] == found["features"]
        assert told[-1][0].startswith("intercept")
        for cells, value in zip(told, row, strict=False):
            low, high = (read(end) for end in cells[2].split(" to "))
            assert low < read(cells[1]) < high
            assert read(cells[1]) == pytest.approx(value, rel=1e-2)
    assert not page.locator("pre").is_visible()
    page.get_by_text("As JSON").click()
    assert page.locator("pre").is_visible()
    looked_at(visitor, "coefficients")


def read(shown: str) -> float:
    """A number as a page shows it."""
    return float(shown.replace("−", "-").replace(",", ""))


@pytest.mark.costly
def test_of_many_columns_the_furthest_are_drawn_by_name(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Wide", epsilon=60.0), visit(site)
    names = [f"gene_{i:02}" for i in range(75)]
    rows = np.random.default_rng(0).standard_normal((500, 75)) * np.linspace(0.1, 2.0, 75)
    content = pd.DataFrame(rows, columns=names).to_csv(index=False).encode()
    columns = [{"name": name, "type": "number", "low": -9, "high": 9} for name in names]
    declared = {"schema": json.dumps({"kind": "table", "columns": columns}), "name": "Genes"}
    made = owner.post("/v1/datasets", files={"file": ("genes.csv", content)}, data=declared)
    visitor.enter(owner.key)
    for asked, name, pictures in (
        ({"kind": "robust-pca", "rank": 2}, "loadings", ("basis", "center")),
        ({"kind": "frechet-mean"}, "value", ("mean",)),
    ):
        job = answered(owner, made.json()["id"], epsilon=5.0, **asked)
        told = owner.get(f"/v1/jobs/{job}").json()["estimate"]
        parts = [
            {"name": each["name"], "far": np.max(np.abs(each[name]))}
            for each in told.get("loadings", told["columns"])
        ]
        furthest = sorted(parts, key=lambda each: -each["far"])[:30]
        visitor.open(f"/dashboard/answers/{job}")
        for picture in pictures:
            drawn = visitor.page.locator(f"svg#{picture} > text").all_text_contents()
            shown = [each for each in drawn if each.startswith("gene_")]
            assert shown == sorted(each["name"] for each in furthest)
        expect(visitor.page.get_by_text("Of 75, the 30 that are furthest")).to_have_count(1)
        visitor.check_accessibility()


@pytest.mark.few(1)
def test_a_question_on_a_table_is_planned(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    _, dataset, _ = asked
    options: dict[str, Any] = {"columns": ["seen", LONG]}
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=0.5&options={json.dumps(options)}")
    assert "The budget" in visitor.page.locator("main").inner_text()
    looked_at(visitor, "what-if")


@pytest.mark.few(1)
def test_columns_label_and_features_are_chosen_on_the_page(
    visitor: Visitor, asked: tuple[Caller, str, dict[str, str]]
) -> None:
    owner, dataset, _ = asked
    page = visitor.page
    visitor.open("/dashboard/what-if")  # before a first plan
    page.get_by_text("Columns: all 9").click()
    assert page.locator("svg#curve").count() == 0
    for name in (LONG, named("sex")):
        page.get_by_role("checkbox", name=name, exact=True).check()
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_text("Columns: 2 of 9")).to_be_visible()
    expect(page.locator("svg#curve")).to_be_visible()
    question = {"dataset": {"id": dataset}, "privacy": {"epsilon": 0.5}, "columns": [LONG, named("sex")]}
    few = owner.post("/v1/estimates/frechet-mean/plan", json=question)
    assert few.status_code == 200, few.text
    error = few.json()["expected_error"]["standard_deviation"]
    said = page.locator("dl.facts dd").first.inner_text().split()[0]
    assert read(said) == pytest.approx(error, rel=1e-2)
    page.locator("[name=kind]").select_option("logistic-regression")
    page.locator("[name=epsilon]").fill("9")
    page.get_by_role("button", name="Plan it").click()
    expect(page.locator("[name=label]")).to_have_value("species")
    page.locator("[name=label]").select_option(label=named("sex").strip())
    page.get_by_text("Features: all 8").click()
    page.get_by_role("checkbox", name=named("year"), exact=True).check()
    page.get_by_role("button", name="Plan it").click()
    expect(page.get_by_text("Features: 1 of 8")).to_be_visible()
    expect(page.locator("svg#curve")).to_be_visible()
    looked_at(visitor, "what-if-chosen")


@pytest.mark.costly
def test_two_datasets_of_one_name_are_told_apart(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Twice"), visit(site)
    twice = [dataset_called(owner, "Rows") for _ in range(2)]
    dataset_called(owner, "Others")
    visitor.enter(owner.key)
    apart = sorted(["Others", *(f"Rows ({dataset[:12]}…)" for dataset in twice)])
    for path in ("", "/what-if", "/analysts"):
        visitor.open(f"/dashboard{path}")
        assert sorted(visitor.page.locator("[name=dataset] option").all_text_contents()) == apart
    visitor.open("/dashboard/datasets")
    assert sorted(visitor.page.locator("tbody a").all_text_contents()) == apart
