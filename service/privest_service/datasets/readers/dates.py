"""Dates as texts: always with the year first, and in one other form that a column may declare."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import date
from math import isnan, nan
from typing import Literal, get_args

from privest.data.tables import day_of

DateFormat = Literal["dd.mm.yyyy", "mm/dd/yyyy", "dd/mm/yyyy"]
"""A form of dates beside those with the year first. Days and months may have one digit, years have four."""

_PARTS = {"dd": r"(?P<dd>\d{1,2})", "mm": r"(?P<mm>\d{1,2})", "yyyy": r"(?P<yyyy>\d{4})"}


def _pattern(form: str) -> re.Pattern[str]:
    """What matches a form of dates, and a time after it, of which nothing is kept."""
    date_alone = re.sub("dd|mm|yyyy", lambda part: _PARTS[part[0]], re.escape(form))
    return re.compile(rf"{date_alone}([T ].*)?", re.ASCII | re.DOTALL)


_YEAR_FIRST = re.compile(
    r"(?P<yyyy>\d{4})(?P<between>[-/])(?P<mm>\d{1,2})(?P=between)(?P<dd>\d{1,2})([T ].*)?",
    re.ASCII | re.DOTALL,
)
_WRITTEN = {form: _pattern(form) for form in get_args(DateFormat)}


def day(text: str, form: DateFormat | None) -> float:
    """The number of the day that a text names, year first or in this form; NaN where it names none.

    Of a time it is the day as written, whatever offset from UTC follows.
    """
    for pattern in (_YEAR_FIRST, *([_WRITTEN[form]] if form else [])):
        if found := pattern.fullmatch(text):
            try:
                return float(day_of(date(*(int(found[part]) for part in ("yyyy", "mm", "dd")))))
            except ValueError:  # no calendar has it
                return nan
    return nan


def fitting(texts: Iterable[str]) -> "Counter[str]":
    """How many of some texts are dates, by the form in which they are."""
    return Counter(
        form for text in texts for form in get_args(DateFormat) if not isnan(day(text.strip(), form))
    )
