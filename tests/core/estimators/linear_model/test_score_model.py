"""The model of scores behind stated sampling errors, against brute force."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, softmax

from privest.estimators.linear_model.score_model import Moment, ScoreModel, mean_of, on_simplex

columns = pytest.mark.parametrize("count", [1, 3])
SIZE = 4


def drawn(n=400_000, seed=0):
    """Gaussian vectors at most about one long, with a constant at the end."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((SIZE - 1, SIZE - 1)) / 6
    x = rng.standard_normal((n, SIZE - 1)) @ mixed + [0.05, -0.1, 0.02]
    return np.column_stack([x, np.full(n, 0.2)])


def weights_of(count, size=5.0):
    found = size * np.random.default_rng(1).standard_normal((count, SIZE))
    return found - found.mean(axis=0) if count > 1 else found


def chances_of(x, weights):
    return expit(x @ weights.T) if len(weights) == 1 else softmax(x @ weights.T, axis=1)


def hessian_of(x, weights):
    p = chances_of(x, weights)
    count = len(weights)
    blocks = [
        [(x * (p[:, i] * ((i == j) - p[:, j]))[:, None]).T @ x / len(x) for j in range(count)]
        for i in range(count)
    ]
    return np.block(blocks)


@pytest.mark.parametrize("certain", [0, 1, 2])
def test_a_class_that_no_row_is_of_is_not_said_to_be_known(certain):
    """The other two share all rows evenly: the Hessian has an eigenvalue of 1e-6 along this one."""
    weights = np.zeros((3, 2))
    weights[certain, 1], weights[(certain + 1) % 3, 0] = -1e3, 2.0
    moment = Moment(np.diag([0.96, 0.04]), 0.0)
    model = ScoreModel(weights, moment, mean_of(moment, 0.2))
    errors = np.sqrt([np.diag(model.sampling(column)) for column in range(3)])
    assert (errors[certain] > errors[(certain + 1) % 3]).all()


@columns
def test_sampling_errors_are_those_of_gaussian_features(count):
    """2,000 draws of a model, whose own error is 2 % of what varies."""
    x, weights = drawn(), weights_of(count)
    moment = Moment(x.T @ x / len(x), 0.0)
    np.testing.assert_allclose(moment.clean, moment.noisy, atol=1e-12)
    mean = mean_of(moment, 0.2)
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-9)
    model = ScoreModel(weights, moment, mean)
    exact = np.linalg.pinv(hessian_of(x, weights), rcond=1e-6, hermitian=True)
    for column in range(count):
        place = slice(column * SIZE, (column + 1) * SIZE)
        block = exact[place, place]
        assert np.linalg.norm(model.sampling(column) - block) < 0.1 * np.linalg.norm(block)


def test_a_moment_of_noise_alone_is_divided_by_its_noise():
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((30, 30))
    noisy = 10 * (noise + noise.T) / 2
    moment = Moment(noisy, 10.0)
    assert np.linalg.eigvalsh(moment.inverse).max() <= 1 / (0.7 * 10 * sqrt(60)) * (1 + 1e-9)
    values = np.linalg.eigvalsh(moment.clean)
    assert values.min() >= -1e-12
    assert values.sum() == pytest.approx(1.0)


def test_a_mean_of_noise_alone_is_zero_but_for_the_constant():
    exact = np.diag([0.3, 0.3, 0.3, 0.04])
    noisy = exact.copy()
    noisy[:3, 3] = noisy[3, :3] = 0.001
    np.testing.assert_allclose(mean_of(Moment(noisy, 0.01), 0.2), [0, 0, 0, 0.2])
    assert np.linalg.norm(mean_of(Moment(noisy, 0.0), 0.2)[:3]) > 0.005


@given(arrays(np.float64, st.integers(1, 8), elements=st.floats(-5, 5)))
@settings(max_examples=200)
def test_the_simplex_is_projected_onto(values):
    found = on_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    # Optimal: on the support the residual is one level, elsewhere below it.
    level = (values - found)[found > 0]
    assert np.ptp(level) < 1e-9
    assert (values[found == 0] <= level.mean() + 1e-9).all()
