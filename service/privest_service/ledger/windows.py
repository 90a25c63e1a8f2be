"""When one window may follow another: periods of the calendar in UTC, least intervals, largest numbers."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

from privest_service.ledger.models import WindowRules
from privest_service.problems import WindowNotAllowed

Every = Literal["week", "month", "quarter", "year"]
"""Periods of the calendar: weeks begin on Mondays, and all periods at midnight in UTC."""

PERIODS: tuple[Every, ...] = ("week", "month", "quarter", "year")

LEAST_DAYS: dict[str | None, int] = {"week": 7, "month": 28, "quarter": 90, "year": 365, None: 0}
"""Days of the shortest period of each kind. Fewer are not between two windows unless an owner says so."""

YEAR = 365
"""Days for which it is stated what the windows of a year promise together."""


def period_of(every: Every, moment: datetime) -> date:
    """The first day of the period that a moment is in."""
    day = moment.astimezone(UTC).date()
    if every == "week":
        return day - timedelta(days=day.weekday())
    month = {"month": day.month, "quarter": day.month - (day.month - 1) % 3, "year": 1}[every]
    return day.replace(month=month, day=1)


def _next(every: Every, first: date) -> date:
    """The first day of the period after the one that begins on this day."""
    length = {"week": 7, "month": 31, "quarter": 92, "year": 366}[every]
    return period_of(every, _midnight(first + timedelta(days=length)))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def due(every: Every | None, began: datetime, least_days: int, moment: datetime) -> datetime | None:
    """When a window opens by itself after one that began at some time: never if no period is named.

    It is the first beginning of a period that lies after this moment, and at least so many days after that
    time. So whatever a clock did, or however long nobody looked, one window is opened and never several.
    """
    if every is None:
        return None
    day = _next(every, period_of(every, moment))
    while (day - began.date()).days < least_days:
        day = _next(every, day)
    return _midnight(day)


def require_allowed(rules: WindowRules | None, window: int, moment: datetime) -> None:
    """Refuse a window after this one, by hand or not, if the budget's own rules do not allow it now.

    Raises:
        WindowNotAllowed: there have been as many windows as there may be, or the present one is too young.
    """
    if rules is None:
        return
    if rules.most is not None and window >= rules.most:
        raise WindowNotAllowed(f"There may be {rules.most} windows of this budget, and this is the last.")
    age = (moment.date() - rules.began_at.date()).days
    if rules.least_days and age < rules.least_days:
        first = rules.began_at.date() + timedelta(days=rules.least_days)
        raise WindowNotAllowed(
            f"The next window may begin {rules.least_days} days after this one did: on {first} (UTC)."
        )


def begin(rules: WindowRules, window: int, moment: datetime) -> None:
    """Note that a window was opened, and when the next one will open by itself."""
    by_itself = rules.due_at is not None and rules.due_at <= moment
    every = known(rules.every)
    rules.began_at = _midnight(period_of(every, moment)) if by_itself and every else moment
    plan(rules, window, moment)


def plan(rules: WindowRules, window: int, moment: datetime) -> None:
    """Set when the next window opens by itself."""
    last = rules.most is not None and window >= rules.most
    rules.due_at = None if last else due(known(rules.every), rules.began_at, rules.least_days, moment)


def known(every: str | None) -> Every | None:
    """A period as the database has it."""
    return every  # pyright: ignore[reportReturnType]


def most_in_a_year(rules: WindowRules | None) -> int | None:
    """The largest number of windows that a record can meet that stays for a year; None if none is known.

    Windows begin at least L days apart, by the beginnings that the rules count from. One that opens by itself
    may open later than it begins, and no later than the next begins. So of the windows that open within Y
    days, the second to the last begin within Y days: at most Y/L + 2 open, and one was open before.
    """
    if rules is None:
        return None
    by_days = None if rules.least_days == 0 else YEAR // rules.least_days + 3
    found = [number for number in (by_days, rules.most) if number is not None]
    return max(min(found), 1) if found else None
