"""Ordinary columns of two tables that ship with scikit-learn: ages, a body measure, a share and an amount.

Bounds come from general knowledge, as an owner would declare them: people live for 0 to 110 years. The areas
of cell nuclei, in square pixels, have a long tail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from privest.arrays import Array

EPSILON = 1.0
"""ε of the query about each table."""


@dataclass(frozen=True)
class Rows:
    """A table to upload.

    Attributes:
        name: what its rows are.
        columns: the schema's columns, in the order of the values.
        values: (n, columns).
    """

    name: str
    columns: tuple[Mapping[str, Any], ...]
    values: Array

    @property
    def schema(self) -> dict[str, Any]:
        """The schema to declare."""
        return {"kind": "table", "columns": [dict(column) for column in self.columns]}

    @property
    def csv(self) -> bytes:
        """The rows as a csv file."""
        lines = [",".join(column["name"] for column in self.columns)]
        lines += [",".join(f"{value:g}" for value in row) for row in self.values.tolist()]
        return "\n".join(lines).encode()

    def true_mean(self, name: str) -> float:
        """The mean of a column without privacy."""
        place = next(at for at, column in enumerate(self.columns) if column["name"] == name)
        return float(self.values[:, place].mean())


def tables() -> tuple[Rows, ...]:
    """Return patients and tumours, and the tumours' areas once more without bounds."""
    from sklearn.datasets import load_breast_cancer, load_diabetes  # noqa: PLC0415 - of the demo group

    patients = np.asarray(load_diabetes(return_X_y=True, scaled=False)[0], dtype=np.float64)
    cells, benign = (np.asarray(part, dtype=np.float64) for part in load_breast_cancer(return_X_y=True))
    area = cells[:, 3:4]
    return (
        Rows(
            "patients",
            (
                {"name": "age", "type": "integer", "low": 0, "high": 110},
                {"name": "bmi", "type": "number", "low": 8, "high": 80},
            ),
            patients[:, [0, 2]],
        ),
        Rows(
            "tumours",
            (
                {"name": "malignant", "type": "boolean"},
                {"name": "area", "type": "number", "low": 0, "high": 5_000},
            ),
            np.column_stack([1 - benign, area]),
        ),
        Rows("tumours", ({"name": "area", "type": "number"},), area),
    )


@dataclass(frozen=True)
class Asked:
    """A table with the plan of its query and the finished job."""

    rows: Rows
    plan: dict[str, Any]
    job: dict[str, Any]


_HOW_TO_READ = """\
How to read a line:
- bounds: the lowest and the highest value that anybody may expect. The owner
  declares them from general knowledge, without looking at the rows. A column
  of yes or no needs none.
- plan ±: how far the interval will reach to each side. The plan states it
  before any row is read, and is free.
- answer: the ledger is charged first. Then the column is added up, random
  noise is added to the sum, and the sum is divided by the number of rows. The
  noise is large enough to hide any single row.
- 95 % interval: it contains the true mean in 95 of 100 such runs. So one of
  these four misses it in about every fifth demo.
- true mean: only the owner, who has the rows, can compute it.
The last line asks for the same areas without bounds. A few values might be so
far off that the noise hides them, so the answer states no interval. Declare
bounds, wide ones if need be.
"""


def show(console: Console, asked: Sequence[Asked]) -> None:
    """Print the means with their intervals, and how to read them."""
    shown = Table(title=f"\nMeans of ordinary columns, each table asked once with ε = {EPSILON:g}")
    for name in ("column", "bounds", "plan ±", "answer", "95 % interval", "true mean"):
        shown.add_column(name, justify="left" if name == "column" else "right")
    for each in asked:
        shown.add_row(f"{len(each.rows.values)} {each.rows.name}")
        planned = {column["name"]: column["radius_95"] for column in each.plan["columns"] or ()}
        for declared, column in zip(each.rows.columns, each.job["estimate"]["columns"], strict=True):
            name, low, high = column["name"], column["low"], column["high"]
            shown.add_row(
                f"  {name}",
                _bounds(declared),
                _number(planned[name], declared) if name in planned else "unknown",
                _number(column["value"], declared),
                "none" if low is None else f"{_number(low, declared)} to {_number(high, declared)}",
                _number(each.rows.true_mean(name), declared),
            )
        shown.add_section()
    console.print(shown)
    console.print(_HOW_TO_READ)


def _bounds(declared: Mapping[str, Any]) -> str:
    if declared["type"] == "boolean":
        return "yes or no"
    return f"{declared['low']:,} to {declared['high']:,}" if "low" in declared else "none"


def _number(value: float, declared: Mapping[str, Any]) -> str:
    if declared["type"] == "boolean":
        return f"{value:.1%}"
    return f"{value:,.0f}" if declared.get("high", 1_000) >= 1_000 else f"{value:.1f}"
