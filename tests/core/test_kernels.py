"""Products of narrow matrices in C: the same numbers as numpy, and without a compiler."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privest import kernels
from privest.arrays import Array
from privest.kernels import second_moment, standardised

CPU = Path("/proc/cpuinfo")
AVX2 = CPU.exists() and "avx2" in CPU.read_text(encoding="utf-8").split()


def question(d: int) -> dict[str, Any]:
    """What is asked of rows of d features."""
    return {
        "mean": np.linspace(-1, 1, d),
        "unit": np.linspace(0.5, 2, d),
        "longest": 1.5,
        "shrink": 1.02,
        "constant": 0.2,
    }


def strange(d: int) -> Array:
    """Rows far out, near, and of no numbers, labels of any kind included."""
    rng = np.random.default_rng(d)
    rows = rng.standard_normal((40, d + 1)) * 10.0 ** rng.uniform(-320, 308, (40, 1))
    near = [*range(9), 12]
    rows[near] = rng.standard_normal((10, d + 1))
    rows[10, 0], rows[11, d - 1], rows[12, d], rows[13, 0] = np.nan, np.inf, np.nan, -1.7e308
    rows[14] = -np.inf
    return rows


@pytest.mark.skipif(shutil.which("cc") is None or not AVX2, reason="numpy serves")
def test_the_library_is_there() -> None:
    assert kernels.library() is not None, "there is a compiler, but no library: run `make install`"


@pytest.mark.parametrize("constant", [0.0, 0.2])
@pytest.mark.parametrize("d", [1, 3, 4, 7, 20, 101])
def test_rows_are_standardised_as_numpy_does(
    d: int, constant: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, asked = strange(d), question(d)
    asked["constant"] = constant
    found = standardised(rows, **asked)
    assert found.shape == (40, d + (constant > 0))
    assert np.isfinite(found).all()
    assert (np.linalg.norm(found[:, :d], axis=1) <= 1.5 / 1.02 * (1 + 1e-14)).all()
    assert not found[[10, 11, 13, 14], :d].any()
    assert found[12, :d].any(), "a label is no feature"
    monkeypatch.setattr(kernels, "library", lambda: None)
    np.testing.assert_allclose(found, standardised(rows, **asked), rtol=4e-15)


@pytest.mark.parametrize("d", [1, 6, 20])
def test_a_row_has_the_same_bits_wherever_it_stands(d: int) -> None:
    """What one record adds must not depend on others."""
    rng, rows = np.random.default_rng(d), strange(d)
    alone = np.concatenate([standardised(row[None], **question(d)) for row in rows])
    for _ in range(20):
        order = rng.permutation(len(rows))[: rng.integers(1, len(rows) + 1)]
        np.testing.assert_array_equal(standardised(rows[order], **question(d)), alone[order])


def test_rows_may_be_a_part_of_others() -> None:
    rows = np.random.default_rng(0).standard_normal((9, 4, 4))
    np.testing.assert_array_equal(
        standardised(rows[:, 1], **question(3)), standardised(rows[:, 1].copy(), **question(3))
    )


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 500])
@pytest.mark.parametrize("size", [1, 4, 5, 8, 21, 63, 64, 65])
def test_second_moments_are_those_of_exact_sums(n: int, size: int) -> None:
    rng = np.random.default_rng(size)
    x, weights = rng.standard_normal((n, size)), rng.standard_normal(n)
    found = second_moment(x, weights)
    exact = np.einsum("n,ni,nj->ij", weights, x, x, dtype=np.longdouble)
    error = np.einsum("n,ni,nj->ij", abs(weights), abs(x), abs(x)) * (n + 1) * 2.0**-53
    assert (abs(found - exact) <= error).all()


def test_vectors_may_be_in_any_order_of_memory() -> None:
    x, weights = np.random.default_rng(0).standard_normal((50, 6)), np.arange(100.0)[::2]
    found = second_moment(np.asfortranarray(x), weights)
    np.testing.assert_array_equal(found, second_moment(x, weights.copy()))
