"""The benchmark of ordinary columns: what it measures, and that it shows a fault."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import ordinary, ordinary_cases, ordinary_speed
from benchmarks.ordinary import Group, Line, measured
from benchmarks.ordinary_cases import CHOSEN, WIDE, BasicCase, OpenCase
from testing import ordinary_columns
from testing.ordinary_columns import BOOLEAN, Answers, Case, number, sets_of_columns, share

YES = Case("yes", share(2_000, 0.05)[:, None], (BOOLEAN,))


def test_it_is_the_first_benchmark() -> None:
    assert benchmarks.NAMES[0] == "ordinary"


def test_it_has_as_many_cases_as_asked_for() -> None:
    assert sum(map(len, CHOSEN.values())) >= 37
    assert len(list(sets_of_columns())) == 15
    assert ordinary_cases.real_names("TUNE")
    assert ordinary_cases.real_names("FINAL")


def test_real_columns_lie_within_their_bounds() -> None:
    cases = list(ordinary_cases.real_columns("TUNE"))
    assert len(cases) == sum(len(CHOSEN[name]) for name in ordinary_cases.real_names("TUNE"))
    for case in cases:
        low, high = ordinary._ends(case)
        assert low <= case.rows.min() <= case.rows.max() <= high


def test_the_units_are_those_of_the_textbook() -> None:
    basic = BasicCase("yes", YES.rows, YES.columns)
    assert basic.textbook[0] == pytest.approx(np.sqrt(2) / 2_000)
    assert basic.target.slack_per_mu_squared is None
    assert basic.textbook[0] < 0.5 * YES.textbook[0]
    values = np.linspace(-3, 7, 2_000)[:, None]
    known = Case("", values, (number(-3.0, 7.0),))
    assert OpenCase("", values, (number(),)).textbook == pytest.approx(known.textbook)


def test_wide_bounds_are_as_wide_as_they_say() -> None:
    ends = {case.name: ordinary._ends(case) for _, case in ordinary_cases.wide_columns()}
    assert ends["uniform, 10×"] == pytest.approx((-4.5, 5.5))
    assert ends["exponential, 1,000×"] == (0.0, 20_000.0)
    assert len(ends) == 7 * len(WIDE)


def test_a_line_with_intervals_that_miss_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = measured(YES, 1.1, 100, 1)
    assert not honest.misses

    def too_short(*arguments: object) -> Answers:
        found = ordinary_columns.answers(*arguments)  # pyright: ignore[reportArgumentType]
        middle, half = (found.low + found.high) / 2, (found.high - found.low) / 4
        return replace(found, low=middle - half, high=middle + half)

    monkeypatch.setattr(ordinary, "answers", too_short)
    faulty = measured(YES, 1.1, 100, 1)
    assert faulty.misses
    text = ordinary._summary([Group("one", "", ((YES, 1.1),))], [[faulty]], [[faulty]])
    assert text.splitlines()[-1].endswith("| 1 | 1 |")


def test_an_error_is_held_to_the_target_of_its_line() -> None:
    line = Line("", 0.1, 1.0, 0.2, 1.0, 1.0, 0.0)
    assert line.misses
    assert not replace(line, most=None).misses
    assert replace(line, width=np.nan).cells()[3] == "–"


def test_the_timing_compares_both() -> None:
    rows = np.random.default_rng(1).normal(50, 10, (5_000, 2))
    timing = ordinary_speed.measured(rows, 110.0, rounds=2)
    assert timing.ours.shape == timing.theirs.shape == (2, 2)
    assert len(list(timing.cells())) == 10
