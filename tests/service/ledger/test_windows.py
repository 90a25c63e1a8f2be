"""When windows follow each other, against a calendar read day by day, and how many a year can meet."""

from datetime import UTC, date, datetime, time, timedelta
from random import Random

import pytest

from privest_service.ledger.models import WHOLE, WindowRules
from privest_service.ledger.windows import LEAST_DAYS, Every, begin, due, most_in_a_year, require_allowed
from privest_service.problems import WindowNotAllowed

DAY = timedelta(days=1)
EVERY: list[Every] = ["week", "month", "quarter", "year"]


def is_first(every: Every, day: date) -> bool:
    """Whether a period begins on this day."""
    if every == "week":
        return day.strftime("%A") == "Monday"
    months = {"month": range(1, 13), "quarter": (1, 4, 7, 10), "year": (1,)}[every]
    return day.day == 1 and day.month in months


def at(day: date, seconds: float = 0.0) -> datetime:
    """A moment of a day."""
    return datetime.combine(day, time(), UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize("every", EVERY)
def test_a_window_is_due_at_the_first_beginning_that_is_late_enough(every: Every) -> None:
    rng = Random(3)  # noqa: S311 - no secret
    for _ in range(300):
        began = at(date(2023, 1, 1) + rng.randrange(1500) * DAY, rng.choice([0.0, 1.0, 86_399.0]))
        moment = began + rng.choice([0, 1, 40, -400, 4000]) * DAY  # a clock may have jumped
        least = rng.choice([0, 1, 28, 100, LEAST_DAYS[every]])
        day = moment.date() + DAY
        while not is_first(every, day) or (day - began.date()).days < least:
            day += DAY
        assert due(every, began, least, moment) == at(day)
    assert due(None, began, 0, began) is None


@pytest.mark.parametrize("every", [*EVERY, None])
def test_no_year_meets_more_windows_than_is_stated(every: Every | None) -> None:
    """Whoever renews by hand as soon as it may, and whenever whoever opens windows comes late."""
    rng, largest = Random(7), 0  # noqa: S311 - no secret
    for least in [LEAST_DAYS[every] or 20, 50]:
        for _ in range(8):
            rules = WindowRules(every=every, least_days=least, pace=WHOLE, began_at=at(date(2024, 1, 1), 5))
            moment, opened, window = rules.began_at, [rules.began_at], 1
            rules.due_at = due(every, rules.began_at, least, moment)
            greedy, late = rng.random() < 0.7, rng.choice([0.2, 0.5, 3.0])
            while moment < at(date(2028, 1, 1)):
                moment += timedelta(days=rng.expovariate(1 / late))
                try:
                    require_allowed(rules, window, moment)
                except WindowNotAllowed:
                    assert not (rules.due_at and rules.due_at <= moment)
                    continue
                if greedy or (rules.due_at and rules.due_at <= moment):
                    window += 1
                    begin(rules, window, moment)
                    opened.append(moment)
            most = most_in_a_year(rules)
            assert most is not None
            for first in opened:
                met = 1 + sum(first < other <= first + 365 * DAY for other in opened)
                largest = max(largest, met)
                assert met <= most
    assert largest >= 5 or every == "year"


def test_a_largest_number_bounds_every_year() -> None:
    rules = WindowRules(every="week", least_days=7, most=5, began_at=at(date(2024, 1, 1)))
    assert most_in_a_year(rules) == 5
    assert most_in_a_year(None) is None
    rules.least_days, rules.most = 0, None
    assert most_in_a_year(rules) is None


def test_a_clock_that_jumps_opens_one_window_and_none_twice() -> None:
    rules = WindowRules(every="month", least_days=28, began_at=at(date(2026, 1, 1)))
    rules.due_at = at(date(2026, 2, 1))
    begin(rules, 2, at(date(2026, 9, 14)))  # ahead by months: one window, and none before it is October
    assert (rules.began_at, rules.due_at) == (at(date(2026, 9, 1)), at(date(2026, 10, 1)))
    with pytest.raises(WindowNotAllowed) as refused:
        require_allowed(rules, 2, at(date(2026, 2, 2)))  # the clock is right again
    assert "2026-09-29" in str(refused.value.detail)
    assert rules.due_at > at(date(2026, 2, 2))
