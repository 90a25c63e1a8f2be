"""Columns that `benchmarks.ordinary` measures beside those of `testing.ordinary_columns`."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from benchmarks.real_table import Half, Table
from benchmarks.tables import TUNE, table
from privest.arrays import Array
from privest.data.tables import Column
from privest.privacy.accounting import PrivacyTarget
from testing.ordinary_columns import BOOLEAN, Case, N, number, open_columns, single_columns

CHOSEN: dict[str, tuple[str, ...]] = {
    "affairs": ("children", "rate_marriage", "age", "affairs"),
    "savings": ("nettfa", "inc", "age", "fsize", "marr", "male", "e401k"),
    "health costs": ("mdvis", "outpdol", "drugdol", "suppdol", "coins", "xage", "stay"),
    "weather": ("precip", "visib", "wind_speed"),
    "flights": ("dep_delay", "late"),
    "spam": ("spambase 3", "spambase 26", "spambase 46", "spambase 54", "spam"),
    "women at work": ("kidlt6", "kidge6", "hushrs", "husearns", "huseduc", "age", "inlf"),
    "digits": ("pixel_0_1", "pixel_2_7", "pixel_3_7"),
    "diamonds": ("price", "carat", "ideal"),
    "schools": ("PCTCHRT", "PCTYRRND"),
    "defaults": ("balance", "income", "student", "default"),
    "colleges": ("Apps", "Accept", "Expend", "private"),
    "orange juice": ("DiscCH", "SpecialCH", "PctDiscMM", "minute_maid"),
    "credit": ("Assets", "Debt", "Age", "Income", "Seniority", "Amount", "bad"),
    "visits": ("visits", "nvisits", "novisits", "emergency", "hospital", "chronic", "income", "insured"),
    "films": ("length", "votes", "Comedy", "Drama"),
    "jobs": ("iterations", "num_pending", "compounds"),
    "houses": ("Mas_Vnr_Area", "Pool_Area", "Misc_Val", "Bsmt_Half_Bath", "Kitchen_AbvGr", "Wood_Deck_SF"),
    "written digits": ("1", "8", "22", "42"),
}
"""Real columns by their tables: with one value in most rows, counts, yes and no, amounts, ages."""

WIDE = {1: 1.1, 10: 0.35, 100: 0.1, 1_000: 0.01}
"""How many times too wide bounds are, and the most that an error may be over the textbook's."""


@dataclass(frozen=True)
class BasicCase(Case):
    """Columns of a query on an account that adds up ε and δ, so that noise may be Laplace's."""

    @property
    def target(self) -> PrivacyTarget:
        """(ε, δ)."""
        return PrivacyTarget(self.epsilon, len(self.rows) ** -1.5 if self.delta is None else self.delta)

    @property
    def textbook(self) -> Array:
        """(columns,) standard deviation of each mean by Laplace noise of scale width/(ε n) on each."""
        return replace(Case(**_values(self)), delta=0.0).textbook


@dataclass(frozen=True)
class OpenCase(Case):
    """Columns without bounds, beside one noisy sum within their extremes, which nobody may know."""

    @property
    def textbook(self) -> Array:
        """(columns,) standard deviation of each mean by that sum."""
        ends = zip(self.rows.min(axis=0).tolist(), self.rows.max(axis=0).tolist(), strict=True)
        known = tuple(number(low, high) for low, high in ends)
        return replace(Case(**_values(self)), columns=known).textbook


def _values(case: Case) -> dict[str, Any]:
    return {field.name: getattr(case, field.name) for field in fields(Case)}


def basic_columns() -> Iterator[BasicCase]:
    """The single columns with a δ above 0, on an account that adds up."""
    return (BasicCase(**_values(case)) for case in single_columns() if case.delta is None)


def pure_columns() -> Iterator[Case]:
    """The single columns with δ = 0."""
    return (replace(case, delta=0.0) for case in single_columns() if case.delta is None)


def unbounded_columns() -> Iterator[OpenCase]:
    """Single columns without bounds."""
    return (OpenCase(**_values(case)) for case in open_columns())


def wide_columns() -> Iterator[tuple[int, Case]]:
    """Single columns, whose bounds are so many times too wide: in the middle, or from 0 up."""
    rng = np.random.default_rng(50)
    around = {"normal": (rng.normal(50, 10, N).clip(0, 110), 110.0), "uniform": (rng.random(N), 1.0)}
    upwards = {
        "exponential": (rng.exponential(1, N).clip(0, 20), 20.0),
        "lognormal": (np.exp(rng.standard_normal(N)).clip(0, 200), 200.0),
        "counts, 90 % zero": (rng.poisson(5, N) * (rng.random(N) < 0.1), 20.0),
        "ages in tens": (np.clip(np.round(rng.normal(45, 18, N) / 10) * 10, 0, 110), 110.0),
        "income, top-coded": (np.minimum(np.exp(10.4 + 0.8 * rng.standard_normal(N)), 1e5), 1e5),
    }
    for wide in WIDE:
        for name, (values, width) in around.items():
            bounds = number(width / 2 * (1 - wide), width / 2 * (1 + wide))
            yield wide, Case(f"{name}, {wide:,}×", np.asarray(values, dtype=float)[:, None], (bounds,))
        for name, (values, width) in upwards.items():
            rows = np.asarray(values, dtype=float)[:, None]
            yield wide, Case(f"{name}, {wide:,}×", rows, (number(0.0, width * wide),))


def real_names(half: Half) -> tuple[str, ...]:
    """Names of the tables of a half."""
    return tuple(name for name in CHOSEN if (name in TUNE) == (half == "TUNE"))


def real_columns(half: Half) -> Iterator[Case]:
    """Single columns of real tables, within rough public bounds."""
    for name in real_names(half):
        for column in CHOSEN[name]:
            yield _of_table(table(name), (column,), f"{name}: {column}")


def real_sets(half: Half) -> Iterator[Case]:
    """Real columns, those of a table in one query."""
    return (_of_table(table(name), CHOSEN[name], name) for name in real_names(half))


def _of_table(shown: Table, names: tuple[str, ...], title: str) -> Case:
    values, columns = zip(*(_column(shown, name) for name in names), strict=True)
    return Case(title, np.column_stack(values), columns)


def _column(shown: Table, name: str) -> tuple[Array, Column]:
    """The values of a column or label, and what is public of it: yes/no where it is 0 or 1."""
    if name == shown.label:
        return shown.labels.astype(float), BOOLEAN
    at = shown.columns.index(name)
    values = shown.rows[:, at]
    if np.isin(values, (0.0, 1.0)).all():
        return values, BOOLEAN
    return values, number(float(shown.low[at]), float(shown.high[at]))
