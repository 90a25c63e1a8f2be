"""A real table, and what would be public of it.

What would be public of a table stands beside its rows: bounds of every column and its usual centre and
spread, as rough as a codebook tells them. No codebook comes with the files, so both are read off the rows
and then rounded: `low` and `high` are the extremes, rounded outwards to a number with the leading digit 1, 2
or 5; `center` and `scale` are the mean and the standard deviation, rounded to one significant digit.
Measurements that use them say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from privest.arrays import Array

Half = Literal["TUNE", "FINAL"]


@dataclass(frozen=True)
class Table:
    """Rows of numbers, and labels where the table has some.

    Attributes:
        name: short, in titles.
        half: `TUNE` or `FINAL`.
        about: what it is, and why it is hard, in words.
        columns: names of the columns.
        rows: (n, d), in the units of the source.
        label: name of the label, or none.
        classes: values of the label, as words; empty without one.
        labels: (n,) places in `classes`; all 0 without a label.
    """

    name: str
    half: Half
    about: str
    columns: tuple[str, ...]
    rows: Array
    label: str | None
    classes: tuple[str, ...]
    labels: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self.rows.shape[1]

    @cached_property
    def low(self) -> Array:
        """(d,) rough public lower bounds."""
        return np.array([0.0 - _outwards(-least) for least in self.rows.min(axis=0)])

    @cached_property
    def high(self) -> Array:
        """(d,) rough public upper bounds."""
        bounds = np.array([_outwards(most) for most in self.rows.max(axis=0)])
        return np.where(bounds > self.low, bounds, self.low + 1)

    @cached_property
    def center(self) -> Array:
        """(d,) rough public centres: means to one significant digit."""
        return np.array([_one_digit(mean) for mean in self.rows.mean(axis=0)])

    @cached_property
    def scale(self) -> Array:
        """(d,) rough public spreads: standard deviations to one digit, 1 for a constant column."""
        return np.array([_one_digit(spread) or 1.0 for spread in self.rows.std(axis=0)])

    @cached_property
    def bounded(self) -> Array:
        """(n, d) rows in the middle and half width of the bounds: every number lies in [−1, 1]."""
        return (self.rows - (self.low + self.high) / 2) / ((self.high - self.low) / 2)

    @cached_property
    def standardised(self) -> Array:
        """(n, d) rows in the public centres and spreads."""
        return (self.rows - self.center) / self.scale


def _outwards(value: float) -> float:
    """The least number of at least `value` with one of the leading digits 1, 2 and 5, or 0."""
    size = abs(value)
    if size < 1e-12:
        return 0.0
    decade = 10.0 ** np.floor(np.log10(size))
    steps = [decade * digit for digit in (0.5, 1, 2, 5, 10)]
    if value > 0:
        return float(min(step for step in steps if step >= size * (1 - 1e-12)))
    return -float(max(step for step in steps if step <= size * (1 + 1e-12)))


def _one_digit(value: float) -> float:
    return float(f"{value:.0e}")


def installed_file(package: str, *path: str) -> Path:
    """A file inside an installed package, which is not imported."""
    found = find_spec(package)
    assert found is not None, package
    assert found.origin is not None, package
    return Path(found.origin).parent.joinpath(*path)


def made(
    name: str,
    half: Half,
    about: str,
    frame: pd.DataFrame,
    label: str | None = None,
    classes: Sequence[str] = (),
) -> Table:
    """A table of a frame without missing values, whose column `label` has numbers of classes."""
    features = frame if label is None else frame.drop(columns=label)
    labels = np.zeros(len(frame)) if label is None else frame[label].to_numpy()
    return Table(
        name,
        half,
        about,
        tuple(map(str, features.columns)),
        np.ascontiguousarray(features.to_numpy(dtype=np.float64)),
        label,
        tuple(classes),
        labels.astype(np.int64),
    )
