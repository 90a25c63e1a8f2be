"""The radii of noise hold their levels: shares of 40,000 draws, each wrong once in 16,000 by chance."""

from math import log

import numpy as np
import pytest

from privest.arrays import Array
from privest.estimators.frechet_mean.column_means import coordinate_radius, joint_radius
from privest.privacy.mechanisms import NoisySum, noisy_sum

DRAWS = 40_000
LAWS = ["gaussian", "laplace", "independent-laplace"]


def drawn(release: NoisySum, rng: np.random.Generator) -> Array:
    """(draws, size) noise on the mean, by its definition."""
    size = release.size
    if release.noise == "gaussian":
        return release.deviation * rng.standard_normal((DRAWS, size))
    if release.noise == "independent-laplace":
        return rng.laplace(scale=release.scale / release.divisor, size=(DRAWS, size))
    ways = rng.standard_normal((DRAWS, size))
    lengths = rng.gamma(size, release.scale / release.divisor, (DRAWS, 1))
    return lengths * ways / np.linalg.norm(ways, axis=1, keepdims=True)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("law", LAWS)
def test_the_interval_of_one_number_has_the_level_that_it_states(law: str, size: int) -> None:
    """.95 ± .0045 is four standard errors."""
    release = noisy_sum(law, n=10, size=size, clip=1.0, loss=1.0)
    if size == 1 and law == "laplace":
        assert coordinate_radius(release) == pytest.approx(log(20) * release.scale / 10)
    inside = np.abs(drawn(release, np.random.default_rng(1))[:, 0]) <= coordinate_radius(release)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.0045)


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("law", LAWS)
def test_the_radius_of_several_numbers_has_the_level_that_it_states(law: str, size: int) -> None:
    """Independent Laplace numbers are counted by a law like theirs, which is off by a hundredth at most."""
    release = noisy_sum(law, n=10, size=size, clip=1.0, loss=1.0)
    lengths = np.linalg.norm(drawn(release, np.random.default_rng(2)), axis=1)
    radius = joint_radius(np.full(size, release.deviation), release)
    allowed = 0.015 if law == "independent-laplace" else 0.0045
    assert np.mean(lengths <= radius) == pytest.approx(0.95, abs=allowed)


def test_the_radius_of_numbers_in_different_units_is_near_its_level() -> None:
    """The law of Satterthwaite (1946) is off by a hundredth at most."""
    release = noisy_sum("gaussian", n=10, size=4, clip=1.0, loss=1.0)
    units = np.array([1.0, 2.0, 5.0, 0.1])
    lengths = np.linalg.norm(units * drawn(release, np.random.default_rng(3)), axis=1)
    assert np.mean(lengths <= joint_radius(units * release.deviation, release)) == pytest.approx(
        0.95, abs=0.01
    )
    assert joint_radius(np.zeros(4), release) == 0.0
