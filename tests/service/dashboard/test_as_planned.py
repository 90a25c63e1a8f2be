"""Whether an answer is as near as its plan foretold: told in the units of its columns, with what to do."""

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import expect

from privest.data.column_estimates import ColumnError
from privest.estimators.uncertainty import ExpectedError
from privest_service.dashboard.as_planned import as_planned
from testing.browser import Visitor
from testing.scenes import owner_called
from testing.server import Server

Visit = Callable[..., Visitor]

_FOUND = {"radius_95": 0.4, "noise": 0.3, "moved": 0.1}


def _plan(**figures: Any) -> Any:
    return SimpleNamespace(expected_error=ExpectedError(0.2), **figures)


def _mean(name: str, reach: float) -> dict[str, Any]:
    return {"name": name, "value": 30.0, "low": 30.0 - reach, "high": 30.0 + reach}


@pytest.mark.parametrize(
    ("came", "reached", "times"), [(1.5, True, 1.0), (1.7, True, 1.0), (3.4, False, 2.0)]
)
def test_columns_are_told_in_their_own_units(came: float, reached: bool, times: float) -> None:
    columns = (ColumnError("bmi", 1.7), ColumnError("age", 9.0))
    told = as_planned(
        _plan(columns=columns), {"columns": [_mean("bmi", came), _mean("age", 8.0)]}, _FOUND, ""
    )
    assert told is not None
    assert (told.reached, told.times) == (reached, pytest.approx(times))
    assert told.told.startswith(f"bmi within ± {came:g}, where ± 1.7 was planned")
    assert ("age" in told.told) is reached  # of what was missed nothing else is told
    assert not told.clipped


def test_a_column_with_gaps_is_compared_by_its_filled_mean() -> None:
    columns = (ColumnError("bmi", 1.7),)
    answer = {"columns": [_mean("bmi", 2.5), _mean("bmi filled", 1.7 * (1 + 1e-12))]}
    told = as_planned(_plan(columns=columns), answer, _FOUND, "")
    assert told is not None
    assert told.reached


def test_what_has_no_columns_is_told_as_one_and_what_says_nothing_is_not() -> None:
    plan = _plan()
    plan.expected_error = SimpleNamespace(WITHIN="unfavourable", unfavourable=0.2, radius_95=0.1)
    told = as_planned(plan, {}, _FOUND | {"moved": 0.35}, " rad")
    assert told is not None
    assert (told.told, told.reached, told.clipped) == (
        "within ± 0.4 rad, where ± 0.2 rad was planned for an unfavourable case",
        False,
        True,
    )
    plan.expected_error = replace(ExpectedError(0.2), unfavourable=None)
    assert as_planned(plan, {}, _FOUND, "") is None
    assert as_planned(plan, {}, None, "") is None
    assert as_planned(None, {}, _FOUND, "") is None


def test_an_answer_leads_with_its_columns_units(site: Server, visit: Visit) -> None:
    owner = owner_called(site, "Clinic")
    columns = [{"name": "bmi", "type": "number", "low": 10, "high": 60}]
    rows = b"bmi\n" + b"".join(b"%d\n" % (20 + i % 20) for i in range(3000))
    made = owner.upload(rows, {"kind": "table", "columns": columns}, "rows.csv").json()["id"]
    job = owner.estimate(made, epsilon=0.3, delta=1e-7).json()
    visitor = visit(site)
    page = visitor.page
    visitor.enter(owner.key)
    visitor.open(f"/dashboard/answers/{job['id']}")
    first = page.get_by_role("region").first
    expect(first.get_by_role("heading")).to_have_text("Means of columns")
    expect(first.locator("td").nth(1)).to_contain_text("±")
    sentence = page.get_by_role("region", name="How far off it may be").get_by_role("status").first
    expect(sentence).to_contain_text("bmi within ± ")
    scaled = page.get_by_text(re.compile(r"^At most \d"))
    expect(scaled).to_be_hidden()
    page.get_by_text("All columns together, in scaled figures").click()
    expect(scaled).to_be_visible()
    visitor.check_accessibility()
