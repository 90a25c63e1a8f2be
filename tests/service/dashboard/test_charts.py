"""Charts: well formed, escaped, honest in their numbers, and finite whatever they are given."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from math import isfinite
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from privest_service.dashboard import charts
from privest_service.dashboard.charts import Bar, BurnPoint
from privest_service.dashboard.charts.scales import Linear, Log, Time
from privest_service.dashboard.charts.svg import ems, named, shortened
from privest_service.reports.formatting import left_percent, number, numbers, percent, spent_percent

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
HOSTILE = "<script>alert('&\"')</script>\x00\u202e\x1b"
few = settings(max_examples=60)


def read(svg: Markup) -> ElementTree.Element:
    """The chart as XML, which is well formed and keeps the content security policy."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    elements = list(root.iter())
    assert root.tag == "svg"
    assert "chart" in root.attrib["class"].split()
    assert not {"script", "style", "foreignObject"} & {element.tag for element in elements}
    names = {name for element in elements for name in element.attrib}
    assert not [name for name in names if name == "style" or name.startswith("on")]
    ids = [element.attrib["id"] for element in elements if "id" in element.attrib]
    assert len(set(ids)) == len(ids)
    assert set(root.attrib["aria-labelledby"].split()) <= set(ids)
    words = " ".join([*svg.split('"'), *(text for element in elements if (text := element.text))]).lower()
    assert not {"nan", "inf", "-inf", "none"} & set(words.replace("(", " ").replace(",", " ").split())
    return root


def texts(svg: Markup, tag: str = "text") -> list[str]:
    return ["".join(element.itertext()) for element in read(svg).iter(tag)]


def burn(lefts: list[float], step: timedelta = timedelta(days=1), **options: datetime) -> Markup:
    points = [BurnPoint(NOW + i * step, left, f"/entries/{i}", f"entry {i}") for i, left in enumerate(lefts)]
    return charts.burn_down("b", points, NOW + len(lefts) * step, **options)


EDGES: dict[str, Callable[[], Markup]] = {
    "gauge of nothing": lambda: charts.gauge("g", 0),
    "gauge of all": lambda: charts.gauge("g", 1, 1e9),
    "gauge of hardly anything": lambda: charts.gauge("g", 1e-300, 1e-300),
    "one change": lambda: burn([1.0]),
    "all at once": lambda: burn([0.9, 0.8, 0.7], timedelta(0), forecast=NOW + timedelta(days=1)),
    "all spent": lambda: burn([1.0, 0.0], forecast=NOW + timedelta(days=9)),
    "three hundred": lambda: burn([1 - i / 300 for i in range(300)], forecast=NOW + timedelta(days=3000)),
    "no bars": lambda: charts.bars("b", [], "By analyst"),
    "bars beyond": lambda: charts.bars("b", [Bar("a", 1.7, "note" * 40), Bar("", 0)], "t"),
    "error at a point": lambda: charts.error_curve("e", [(1, 1)], (1, 1), 0.0),
    "errors of zero": lambda: charts.error_curve("e", [(0, 0), (1, 0)], (1e-300, 1e300), 1e300),
    "errors far apart": lambda: charts.error_curve("e", [(1e-300, 1e300), (1e300, 1e-300)], (1, 1), 1),
    "zero ellipse": lambda: charts.ellipse("e", np.zeros((2, 2))),
    "singular ellipse": lambda: charts.ellipse("e", [[1e300, 1e300], [1e300, 1e300]]),
    "tiny ellipse": lambda: charts.ellipse("e", np.eye(2) * 1e-300),
    "zeros": lambda: charts.heat_map("h", np.zeros((3, 2))),
    "huge and tiny": lambda: charts.heat_map("h", [[1e308, -1e308], [1e-308, 0]]),
    "large": lambda: charts.heat_map("h", np.eye(64), ["row"] * 64, ["column"] * 64),
    "one column": lambda: charts.loadings("l", [[0.0]]),
    "many rows": lambda: charts.loadings("l", np.eye(30)[:, :3], ["x"] * 30),
    "zero vector": lambda: charts.vector_bars("v", [0, 0]),
    "long vector": lambda: charts.vector_bars("v", np.zeros(500)),
    "no width": lambda: charts.intervals("i", ["a"], [0], [0], [0]),
    "wide": lambda: charts.intervals("i", ["a", "b"], [1e308, 0], [-1e308, 0], [1e308, 1e-308]),
    "direction": lambda: charts.on_circle("c", [-1, -0.0]),
    "at the rim": lambda: charts.in_disk("d", [1.0, 0.0]),
    "at the centre": lambda: charts.in_disk("d", [0.0, 0.0]),
}


@pytest.mark.parametrize("draw", EDGES.values(), ids=EDGES)
def test_the_edges_are_drawn_with_finite_numbers(draw: Callable[[], Markup]) -> None:
    read(draw())


def test_what_users_wrote_is_escaped() -> None:
    names = [HOSTILE, "b"]
    point = BurnPoint(NOW, 1, HOSTILE, HOSTILE)
    for svg in (
        charts.bars(HOSTILE, [Bar(HOSTILE, 0.1, HOSTILE, HOSTILE)], HOSTILE),
        charts.burn_down("b", [point], NOW),
        charts.heat_map("h", np.eye(2), names, names),
        charts.loadings("l", np.eye(2), names),
        charts.vector_bars("v", [1, 2], names),
        charts.intervals("i", names, [1, 2], [0, 1], [2, 3]),
    ):
        assert "<script" not in svg
        assert "\x00" not in svg
        assert "\u202e" not in svg
        assert "<script>" in unescape(svg)
        ElementTree.fromstring(svg)  # noqa: S314 - our own


def test_links_are_named_and_an_image_has_none() -> None:
    linked = read(charts.bars("b", [Bar("ana", 0.25, href="/analysts/1?a=1&b=2")], "By analyst"))
    (link,) = linked.iter("a")
    assert link.attrib == {"href": "/analysts/1?a=1&b=2", "aria-label": "ana: 25 % of the budget"}
    assert linked.attrib["role"] == "group"
    assert read(charts.bars("b", [Bar("ana", 0.25)], "By analyst")).attrib["role"] == "img"


@few
@given(st.floats(0, 1))
def test_the_gauge_never_understates(spent: float) -> None:
    said = next(text for text in texts(charts.gauge("g", spent)) if text == spent_percent(spent))
    assert (said == "0 %") == (spent == 0)
    assert (said == "100 %") == (spent == 1)
    if spent > 0 and said != ">99.9 %":
        assert float(said.strip("<% ")) >= 100 * spent - 1e-9


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        (0.9997, ">99.9 %"),
        (1e-9, "<0.1 %"),
        (0.35, "35 %"),
        (0.07, "7 %"),
        (0.1201, "12.1 %"),
        (0.1 + 0.2, "30 %"),
    ],
)
def test_shares_spent(spent: float, said: str) -> None:
    assert spent_percent(spent) == said


def test_what_is_left_and_what_is_spent_agree() -> None:
    assert (left_percent(0.0003), spent_percent(0.9997)) == ("<0.1 %", ">99.9 %")
    assert (left_percent(0.999999), left_percent(1), left_percent(0)) == ("99.9 %", "100 %", "0 %")


@pytest.mark.parametrize(("spent", "level"), [(0.79, "good"), (0.8, "warn"), (0.95, "bad")])
def test_the_gauge_warns(spent: float, level: str) -> None:
    assert f'class="ring spent {level}"' in charts.gauge("g", spent)


def test_a_query_that_does_not_fit_is_bad() -> None:
    assert "ring planned bad" in charts.gauge("g", 0.9, 0.2)
    assert "ring planned bad" not in charts.gauge("g", 0.75, 0.25)


def test_history_stays_in_sight_of_a_far_forecast() -> None:
    root = read(burn([1.0, 0.99], forecast=NOW + timedelta(days=10000)))
    (now,) = [element for element in root.iter("line") if element.attrib["class"] == "now"]
    assert float(now.attrib["x1"]) == pytest.approx((66 + 480) / 2)
    assert "gone by" in "".join(texts(burn([1.0, 0.99], forecast=NOW + timedelta(days=10000))))


def test_hundreds_of_changes_keep_few_marks() -> None:
    assert len(texts(burn([1 - i / 400 for i in range(300)]), "a")) == 100


def test_only_intervals_that_leave_zero_out_stand_forth() -> None:
    svg = charts.intervals("i", list("abc"), [1, 0.1, -1], [0.5, -0.1, -2], [1.5, 0.3, -0.5])
    assert (svg.count('class="away"'), svg.count('class="about"')) == (2, 1)


def test_large_matrices_stay_small_pages() -> None:
    assert len(charts.heat_map("h", np.random.default_rng(0).standard_normal((64, 64)))) < 130_000


@few
@example(6.1686264645080744e16, 4.0, 2)
@given(st.floats(-1e300, 1e300), st.floats(0, 1e300), st.integers(2, 9))
def test_linear_ticks(low: float, span: float, most: int) -> None:
    scale = Linear(low, low + span, 0, 100)
    ticks = scale.ticks(most)
    assert len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in ticks)


@few
@given(st.floats(-300, 299), st.floats(0.01, 20), st.integers(2, 9))
def test_logarithmic_ticks(power: float, decades: float, most: int) -> None:
    low = 10**power
    scale = Log(low, low * 10 ** min(decades, 300 - power), 0, 100)
    ticks = scale.ticks(most)
    assert len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert all(isfinite(scale(tick)) and scale.low <= tick * (1 + 1e-9) for tick in ticks)


@few
@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), st.floats(0, 9.5), st.integers(3, 7))
def test_time_ticks(low: datetime, power: float, most: int) -> None:
    low = low.replace(tzinfo=UTC)
    scale = Time(low, low + timedelta(seconds=10**power), 0, 100)
    ticks = scale.ticks(most)
    moments = [at for at, _ in ticks]
    assert len(ticks) <= most
    assert moments == sorted(set(moments))
    assert all(scale.low <= at <= scale.high and at.microsecond == 0 for at in moments)


def test_ticks_that_people_know() -> None:
    assert Linear(0, 1, 0, 1).ticks() == [0, 0.25, 0.5, 0.75, 1]
    assert Linear(0, 0.7, 0, 1).ticks(8) == [i / 10 for i in range(8)]
    assert Log(0.1, 10, 0, 1).ticks(7) == [0.1, 0.2, 0.5, 1, 2, 5, 10]
    assert Log(1e-6, 1e6, 0, 1).ticks(4) == [1e-6, 1e-2, 1e2, 1e6]
    days = Time(NOW, NOW + timedelta(days=21), 0, 1).ticks(4)
    assert [label for _, label in days] == ["23 Nov", "30 Nov", "7 Dec"]
    assert [label for _, label in Time(NOW, NOW + timedelta(days=100), 0, 1).ticks(5)] == [
        "Dec",
        "2027",
        "Feb",
        "Mar",
    ]
    assert [label for _, label in Time(NOW, NOW + timedelta(hours=20), 0, 1).ticks(5)] == [
        "12:00",
        "18:00",
        "22 Nov",
        "06:00",
    ]


def test_numbers_for_people() -> None:
    assert [number(x) for x in (0.35, 1e-6, -12000, 0, 2.5e7, 999.96)] == [
        "0.35",
        "1e−6",
        "−12,000",
        "0",
        "2.5e7",
        "1,000",
    ]
    assert numbers([1000.1, 1000.2]) == ["1,000.1", "1,000.2"]
    assert percent(0.12) == "12 %"


@few
@given(st.text(), st.floats(1, 30))
def test_shortened_text_fits(words: str, most: float) -> None:
    assert ems(shortened(words, most)) <= most
    assert ems(named(words, most)) <= most


def test_features_of_one_column_are_told_apart_when_they_are_shortened() -> None:
    features = [
        "bill_length_mm",
        "bill_length_mm missing",
        *(f"species={s}" for s in ("Adelie", "Chinstrap")),
    ]
    assert len({named(feature, 9) for feature in features}) == len(features)
    assert named("bill_length_mm missing", 9) == "bill_len…issing"
