"""Answers as pictures: each kind of estimate as something that can be looked at."""

import io
import re
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.image import imread
from playwright.sync_api import Locator

from privest_service.dashboard.pages import answers
from testing.browser import Visitor
from testing.scenes import Hospital, answered, dataset_called, owner_called
from testing.server import LABELLED, Server, told_apart

Visit = Callable[..., Visitor]

PICTURES = {
    "ellipse": ["svg#mean"],
    "heat map": ["svg#mean"],
    "loadings": ["svg#basis"],
    "coefficients": ["svg#class-0"],
    "score": ["svg#score"],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("what", PICTURES)
def test_an_answer_is_a_picture(anna: Hospital, visit: Visit, what: str) -> None:
    visitor = visit(anna.server)
    visitor.enter(anna.owner.key)
    visitor.open("/dashboard/answers")
    visitor.page.locator(f"a[href$='{anna.jobs[what]}']").click()
    visitor.page.wait_for_url(f"**/{anna.jobs[what]}")
    for picture in PICTURES[what]:
        shown = visitor.page.locator(picture)
        assert shown.is_visible()
        assert shown.locator("title").first.text_content()
        assert shown.locator("desc").first.text_content()
    visitor.page.locator("details:has(pre) > summary").click()
    assert visitor.page.locator("pre").inner_text().startswith("{")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rows", "schema", "picture"),
    [
        (
            np.column_stack([np.cos(turns := np.linspace(0, 1, 300)), np.sin(turns)]),
            {"kind": "points", "manifold": {"name": "sphere", "dim": 2}},
            "Circle",
        ),
        (
            np.full((300, 2), 0.1),
            {"kind": "points", "manifold": {"name": "poincare-ball", "dim": 2}, "radius": 1.0},
            "Disk",
        ),
        (
            np.zeros((300, 3)),
            {"kind": "points", "manifold": {"name": "euclidean", "dim": 3}, "radius": 1.0},
            "Bars",
        ),
    ],
    ids=["circle", "disk", "bars"],
)
def test_means_elsewhere_are_pictures_too(
    site: Server, visit: Visit, rows: np.ndarray, schema: dict[str, object], picture: str
) -> None:
    owner, visitor = owner_called(site, picture), visit(site)
    job = answered(owner, dataset_called(owner, "Rows", rows, schema), epsilon=1.0)
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/answers/{job}")
    assert visitor.page.locator("svg#mean title").first.text_content()
    visitor.check_accessibility()


def test_the_subspace_of_rows_with_gaps_is_a_picture_too(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Gaps"), visit(site)
    rows = np.random.default_rng(0).standard_normal((300, 6))
    rows[::3, :3] = np.nan
    dataset = dataset_called(owner, "Ratings", rows, {"kind": "partial-vectors", "dim": 6})
    job = answered(owner, dataset, kind="matrix-completion", rank=2)
    visitor.sign_in(owner.key)
    visitor.open(f"/dashboard/answers/{job}")
    assert visitor.page.locator("svg#basis title").first.text_content()
    visitor.check_accessibility()
    visitor.open(f"/dashboard/what-if?dataset={dataset}&epsilon=0.5&rank=3")
    assert visitor.page.locator("[name=rank]").input_value() == "3"
    assert "second moment of what is known" in visitor.page.locator("main").inner_text()
    visitor.check_accessibility()


def test_bounds_are_a_picture_and_tables_with_dates_too(site: Server, visit: Visit) -> None:
    owner, visitor = owner_called(site, "Bounds"), visit(site)
    schema = {
        "kind": "table",
        "columns": [
            {"name": "mass", "type": "number", "low": 0, "high": 1e5},
            {"name": "day", "type": "date", "low": "2000-01-01", "high": "2030-01-01"},
        ],
    }
    rng = np.random.default_rng(0)
    rows = [
        f"{mass:.0f},2020-01-{day:02}"
        for mass, day in zip(rng.normal(4200, 800, 2000), rng.integers(1, 31, 2000), strict=True)
    ]
    uploaded = owner.upload("\n".join(["mass,day", *rows]).encode(), schema, "rows.csv")
    job = answered(owner, uploaded.json()["id"], kind="bounds", epsilon=1.5, delta=1e-6)
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/answers/{job}")
    found = owner.get(f"/v1/jobs/{job}").json()["estimate"]
    told = visitor.page.locator("svg#bounds").text_content() or ""
    assert "mass: " in told
    assert "2020-01-" in told
    heads = visitor.page.locator("h2").all_inner_texts()
    assert "Bounds" in heads
    assert "Quantiles" in heads
    card = visitor.page.locator("section.card", has=visitor.page.get_by_role("heading", name="Quantiles"))
    shown = [row.locator("td").all_inner_texts() for row in card.locator("tbody tr").all()]
    for place, (name, *cells) in zip(found["places"], shown, strict=True):
        assert name == place["name"]
        assert len(cells) == len(place["quantiles"])
        assert all(re.fullmatch(r"(.+) \((.+) to (.+)\)", cell) for cell in cells)
    middle = found["places"][1]["quantiles"][4]
    assert shown[1][5] == f"{middle['value']} ({middle['low']} to {middle['high']})"
    visitor.check_accessibility()
    phone = visit(site, viewport="phone")
    phone.enter(owner.key)
    phone.open(f"/dashboard/answers/{job}")
    table = phone.page.get_by_role("region", name="Table: Quantiles")
    first = edges(table)
    table.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    last = edges(table)
    # The side beyond which there is more is shaded, and the other is not.
    assert (first[0], last[1]) == (pytest.approx(last[1], abs=0.01), pytest.approx(first[0], abs=0.01))
    assert first[1] < first[0] - 0.05
    assert last[0] < last[1] - 0.05


def edges(shown: Locator) -> tuple[float, float]:
    """How bright a part of a page is beside its left and its right edge."""
    across = np.median(imread(io.BytesIO(shown.screenshot()))[..., :3].mean(axis=-1), axis=0)
    return float(across[4:8].mean()), float(across[-8:-4].mean())  # whose last pixels may be of the border


def test_whoever_asked_nothing_is_told_so(site: Server, visit: Visit) -> None:
    visitor = visit(site)
    visitor.enter(owner_called(site, "Silent").key)
    visitor.open("/dashboard/answers")
    assert "You have asked nothing yet." in visitor.page.locator("main").inner_text()
    visitor.check_accessibility()


def test_a_number_is_shown_in_words_and_what_is_none_is_not() -> None:
    shown = answers._arrays(
        {"right_answers": 0.25, "count": 3, "sure": True, "name": "x", "gone": None}, None
    )
    assert [told for told, _ in shown] == ["Right answers.", "Count."]
    assert "0.25" in shown[0][1]


@pytest.mark.costly
def test_a_choice_shows_the_winner_and_what_it_was_chosen_by(server: Server, visit: Visit) -> None:
    owner = server.owner(epsilon=100.0, delta=1e-3)
    dataset = owner.dataset(told_apart(4000, apart=2.0), LABELLED)
    candidates = [{"features": ["b"]}, {"solver": "clipped", "features": ["a"]}]
    job = answered(owner, dataset, kind="classifier-selection", epsilon=8.0, candidates=candidates)
    visitor = visit(server)
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/answers/{job}")
    for picture in ("class-0", "scores"):
        assert visitor.page.locator(f"svg#{picture}").is_visible()
    assert "candidate 1, chosen" in str(visitor.page.locator("svg#scores").text_content())
    few = owner.dataset(told_apart(200, apart=2.0), LABELLED)
    job = answered(owner, few, kind="classifier-selection", epsilon=0.5, candidates=candidates)
    visitor.open(f"/dashboard/answers/{job}")
    assert visitor.page.locator("svg#class-0").is_visible()
    assert visitor.page.locator("svg#scores").count() == 0
    assert "there is no choice" in visitor.page.locator("main").inner_text()
