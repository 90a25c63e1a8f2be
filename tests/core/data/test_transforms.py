"""Per-record transforms: one record in, one point out, and nothing of the others in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privest import manifolds
from privest.data.records import Repeated
from privest.data.transforms import CovarianceDescriptors, Indicators, WindowCovariances

RNG = np.random.default_rng(0)
CASES = {
    "grey": (CovarianceDescriptors(5, 7), RNG.integers(0, 256, (40, 5, 7)) * 1.0, 8),
    "colour": (CovarianceDescriptors(6, 4, 3), RNG.integers(0, 256, (40, 6, 4, 3)) * 1.0, 10),
    "Utpala et al. 2023": (
        CovarianceDescriptors(6, 4, 3, orientation=True),
        RNG.integers(0, 256, (40, 6, 4, 3)) * 1.0,
        11,
    ),
    "windows": (WindowCovariances(9, 4, scale=2.0), RNG.standard_normal((40, 9, 4)), 4),
    "indicators": (
        Indicators((0, 3, 2, 0)),
        np.column_stack(
            [RNG.standard_normal(40), RNG.integers(0, 3, 40), RNG.integers(0, 2, 40), np.ones(40)]
        ),
        7,
    ),
}
each = pytest.mark.parametrize("name", CASES)


@each
def test_a_record_depends_on_its_raw_record_alone(name):
    transform, rows, _ = CASES[name]
    together = transform(rows)
    for at in (0, 7, 39):
        np.testing.assert_array_equal(transform(rows[at : at + 1])[0], together[at])
    replaced = rows.copy()
    replaced[3] = rows[4]
    np.testing.assert_array_equal(np.delete(transform(replaced), 3, axis=0), np.delete(together, 3, axis=0))


@each
def test_raw_records_have_their_shape_and_keep_the_rules(name):
    transform, rows, size = CASES[name]
    assert rows.shape[1:] == transform.raw
    assert not transform.broken_rule(rows).any()
    assert transform(rows).shape[-1] == size


@pytest.mark.parametrize("name", ["grey", "colour", "Utpala et al. 2023", "windows"])
def test_points_are_positive_definite_also_of_blank_records(name):
    transform, rows, size = CASES[name]
    space = manifolds.get("spd", dim=size)
    for raw in (rows, 0 * rows, np.where(rows == rows.max(), rows, 0)):
        assert not space.broken_rule(transform(raw)).any()
        assert np.linalg.eigvalsh(transform(raw)).min() >= 0.01 - 1e-12
    assert transform.dim == size


def test_a_descriptor_is_the_covariance_of_its_features():
    """Worked out pixel by pixel: derivatives are sums over 3×3 and 5×5 neighbourhoods."""
    image = RNG.integers(0, 256, (5, 6)) * 1.0
    grey = np.pad(image / 255, 2, mode="edge")
    first = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]]) / 4
    second = np.outer([1, 4, 6, 4, 1], [1, 0, -2, 0, 1]) / 32
    features = []
    for row in range(5):
        for column in range(6):
            near, far = (
                grey[row + 1 : row + 4, column + 1 : column + 4],
                grey[row : row + 5, column : column + 5],
            )
            i_x, i_y = abs((near * first).sum()), abs((near * first.T).sum())
            i_xx, i_yy = abs((far * second).sum()), abs((far * second.T).sum())
            length = np.hypot(i_x, i_y) / (np.sqrt(5) / 2)
            features.append([column / 5, row / 4, image[row, column] / 255, i_x, i_y, i_xx, i_yy, length])
    wanted = np.cov(np.array(features).T, bias=True) + 0.01 * np.eye(8)
    np.testing.assert_allclose(CovarianceDescriptors(5, 6)(image[None])[0], wanted, atol=1e-14)


def test_no_feature_of_an_image_is_above_one():
    """Black and white images have the largest derivatives: their covariance is at most ¼."""
    images = RNG.integers(0, 2, (3000, 5, 5)) * 255.0
    diagonal = np.diagonal(CovarianceDescriptors(5, 5, orientation=True)(images), axis1=1, axis2=2)
    assert diagonal.max() <= 0.25 + 0.01 + 1e-12


def test_a_window_is_its_covariance():
    transform, rows, _ = CASES["windows"]
    wanted = np.cov(rows[5].T / 2.0, bias=True) + 0.01 * np.eye(4)
    np.testing.assert_allclose(transform(rows)[5], wanted, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "value"),
    [("grey", -1e-9), ("grey", 255.5), ("windows", 2.1e6), ("indicators", -1.0), ("indicators", 3.0)],
)
def test_what_breaks_a_rule_is_told_by_record(name, value):
    transform, rows, _ = CASES[name]
    rows = rows.copy()
    rows[11].flat[1] = value
    np.testing.assert_array_equal(np.flatnonzero(transform.broken_rule(rows)), [11])


def test_indicators_stand_where_their_column_stood():
    rows = np.array([[0.5, 2.0, 1.0, 7.0]])
    np.testing.assert_array_equal(CASES["indicators"][0](rows), [[0.5, 0, 0, 1, 0, 1, 7.0]])


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_repeated_rows_read_like_an_array(few, n, data):
    rows = np.arange(few * 2.0).reshape(few, 2)
    whole = np.resize(rows, (n, 2))
    repeated = Repeated(rows, n)
    assert repeated.shape == whole.shape
    start, stop = data.draw(st.integers(0, n)), data.draw(st.integers(0, n + 5))
    np.testing.assert_array_equal(repeated[start:stop], whole[start:stop])
    indices = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1)))
    np.testing.assert_array_equal(repeated.take(indices), whole.take(indices, axis=0))
