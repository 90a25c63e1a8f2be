"""Sums and noise on a grid: every answer on it, every integer within int64."""

from contextlib import suppress
from math import inf, log2

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privest import manifolds
from privest.data.records import CHUNK, Records
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.privacy.clipped_sums import Grid, spacing_for
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import SubsampledRun, noisy_sum, subsampled_sum
from testing.noise import ScriptedNoise

LARGEST = 2**63 - 1


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("n", [1, 3, 1000, CHUNK + 5])
def test_every_answer_is_a_grid_point_over_n(noise, n):
    space = manifolds.get("euclidean", dim=3)
    rows = np.random.default_rng(n).standard_normal((n, 3))
    release = noisy_sum(noise, n=n, size=3, clip=1.0, loss=0.5)
    gate = Gate(Records(rows), {"gradient": SquaredDistance(space)}, [release] * 5)
    for _ in range(5):
        answer = gate.mean(space.reference)
        integers = np.rint(answer * n / release.spacing)
        assert np.abs(integers).max() < 2**53
        np.testing.assert_array_equal(integers * release.spacing / n, answer)


def test_the_integer_sum_is_the_same_for_any_number_of_threads():
    space = manifolds.get("sphere", dim=4)
    rng = np.random.default_rng(0)
    rows = space.canonical(rng.standard_normal((3 * CHUNK + 77, 4)))
    release = noisy_sum("gaussian", n=len(rows), size=4, clip=1.0, loss=1.0)

    answers = [
        Gate(Records(rows, threads=t), {"gradient": SquaredDistance(space)}, [release], ScriptedNoise()).mean(
            space.reference
        )
        for t in (1, 2, 5)
    ]
    assert all((a == answers[0]).all() for a in answers)


def test_rounding_is_to_the_nearest_and_exact():
    grid = Grid(2.0**-10)
    values = np.array([0.0, 2.0**-10, 1.4 * 2.0**-10, -1.6 * 2.0**-10, 1e6])
    integers = grid.quantise(values)
    assert integers.dtype == np.int64
    np.testing.assert_array_equal(integers, [0, 1, 1, -2, 1024 * 10**6])
    np.testing.assert_array_equal(grid.values(integers)[[0, 1, 4]], values[[0, 1, 4]])


def planned(noise, n, size, clip, loss):
    """The release; none where it is refused."""
    with suppress(ValueError):
        return noisy_sum(noise, n=n, size=size, clip=clip, loss=loss)


@settings(max_examples=300, derandomize=True)
@given(
    noise=st.sampled_from(["gaussian", "laplace"]),
    n=st.integers(1, 10**13),
    size=st.integers(1, 5000),
    clip=st.floats(-99, 99).map(lambda e: 10.0**e),
    loss=st.floats(-12, 9).map(lambda e: 10.0**e),
)
def test_sum_and_noise_fit_an_int64(noise, n, size, clip, loss):
    """Noise: up to 16σ, or a Gamma(size) of 2·size + 64, beyond which lies less than 1e-27."""
    release = planned(noise, n, size, clip, loss)
    if release is None:
        assert loss > 1e3 or loss < 1e-9 * size**0.5 or not 1e-100 < clip / loss < 1e100
        return
    reach = 16.0 if noise == "gaussian" else 2.0 * size + 64
    steps = int(n * clip * (1 + 1e-9) / release.spacing) + int(reach * release.scale / release.spacing)
    assert 2 * steps <= LARGEST + 2
    assert log2(release.spacing).is_integer()
    assert release.spacing <= release.scale
    spent = release.epsilon if noise == "laplace" else release.cost.mu_squared**0.5
    assert loss * (1 - 1e-9) <= spent <= loss


def test_the_grid_coarsens_only_where_it_must():
    assert spacing_for(1.0, 1e3, 16.0) == 2.0**-32
    fine = noisy_sum("gaussian", n=1000, size=3, clip=1.0, loss=1.0)
    assert fine.spacing == 2.0 ** (np.ceil(np.log2(fine.scale)) - 32)
    coarse = noisy_sum("gaussian", n=10**12, size=3, clip=1.0, loss=100.0)
    assert coarse.spacing > 2.0 ** (np.ceil(np.log2(coarse.scale)) - 32)
    assert coarse.sensitivity > fine.sensitivity
    with pytest.raises(ValueError, match="too large"):
        noisy_sum("gaussian", n=10**15, size=3, clip=1.0, loss=1e7)


@settings(max_examples=50, derandomize=True)
@given(st.floats(-1e15, 1e15), st.integers(-40, 10), st.integers(-(2**50), 2**50))
def test_noise_rounded_apart_is_noise_rounded_after(value, power, integer):
    """Rounding the noise and then adding equals adding and then rounding: it is post-processing."""
    grid = Grid(2.0**power)
    assume(abs(value) / grid.spacing < 2**50)
    together = np.rint(value / grid.spacing + integer)
    apart = grid.quantise(np.array([value]))[0] + integer
    assert apart == together or abs(value / grid.spacing % 1 - 0.5) < 1e-2


@pytest.mark.parametrize("noise", [inf, 1e200, 1e-200])
def test_batches_whose_noise_would_leave_float64_are_refused(noise):
    run = SubsampledRun("poisson", 0.1, noise, 3)
    with pytest.raises(ValueError, match="too far apart"):
        subsampled_sum(run, statistic="gradient", n=100, size=2, clip=1.0, law="laplace")
