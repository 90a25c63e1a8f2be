import shutil
from pathlib import Path

import mpmath
import numpy as np
import pytest
from flint import acb_mat, ctx

from privest import manifolds
from privest.arrays import Array, SymmetricCoordinates
from privest.manifolds import matrix_logarithm
from privest.manifolds.matrix_logarithm import LOG_RANGE, MOST_ROWS, log_coordinates
from privest.manifolds.spd import AffineInvariantSPD

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None and matrix_logarithm.library() is None, reason="there is no C compiler"
)


def logarithms(whitening: Array, rows: Array) -> Array:
    library = matrix_logarithm.library()
    assert library is not None, "there is a compiler, but no library: run `make install`"
    return log_coordinates(library, whitening, rows)


def matrices(rng: np.random.Generator, n: int, m: int, logs: float) -> Array:
    """Random matrices whose eigenvalues have logarithms of at most this size."""
    vectors = np.linalg.qr(rng.standard_normal((n, m, m)))[0]
    values = np.exp(rng.uniform(-logs, logs, (n, 1, m)))
    found = (vectors * values) @ np.swapaxes(vectors, -1, -2)
    return np.asarray((found + np.swapaxes(found, -1, -2)) / 2)


def exactly(x: Array) -> Array:
    """The logarithm of one matrix of distinct eigenvalues, from balls that hold it."""
    with ctx.workprec(200):
        values, vectors = acb_mat(x.tolist()).eig(right=True)
        logs = acb_mat(len(x), len(x))
        for i, value in enumerate(values):
            logs[i, i] = value.log()
        found = [entry.real for entry in (vectors * logs * vectors.inv()).entries()]
        assert max(entry.rad() for entry in found) < 1e-20
        return np.array([float(entry.mid()) for entry in found]).reshape(x.shape)


def test_the_rational_function_is_the_logarithm() -> None:
    with mpmath.workdps(40):
        terms = [(mpmath.mpf(s), mpmath.mpf(w)) for s, w in matrix_logarithm._TERMS]
        for place in range(1, 400):
            z = mpmath.exp(mpmath.mpf(LOG_RANGE) * place / 399)
            found = (z - 1 / z) * sum(w / (z + 1 / z + s + 1 / s) for s, w in terms)
            assert abs(found / mpmath.log(z) - 1) < 1.3e-16


@pytest.mark.parametrize("m", [1, 2, 3, 11, 30, MOST_ROWS])
def test_errors_are_those_of_eigenvalues(m: int) -> None:
    """Relative errors of the least eigenvalue grow with the condition of a matrix, as LAPACK's do."""
    rng, symmetric = np.random.default_rng(m), SymmetricCoordinates(m)
    for logs, tolerance in ((0.5, 1e-13), (3.0, 1e-12), (5.5, 1e-10)):
        rows = matrices(rng, 3, m, logs)
        found = symmetric.matrix(logarithms(np.eye(m), rows))
        for x, log in zip(rows, found, strict=True):
            assert np.abs(log - exactly(x)).max() < tolerance


def test_matrices_are_whitened_first() -> None:
    rng = np.random.default_rng(0)
    base, rows = matrices(rng, 1, 5, 1.0)[0], matrices(rng, 9, 5, 1.0)
    inverse = np.linalg.inv(np.linalg.cholesky(base))
    white = inverse @ rows @ inverse.T
    expected = SymmetricCoordinates(5).of(np.array([exactly((x + x.T) / 2) for x in white]))
    np.testing.assert_allclose(logarithms(inverse, rows), expected, atol=1e-13)


def test_diagonal_and_equal_matrices() -> None:
    """Nothing is divided by zero where columns are tridiagonal already."""
    rows = np.array([np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0]), np.diag([5.0, 5.0, 1.0, 1.0])])
    expected = SymmetricCoordinates(4).of(np.array([np.diag(np.log(np.diag(x))) for x in rows]))
    np.testing.assert_allclose(logarithms(np.eye(4), rows), expected, atol=3e-14)


@pytest.mark.parametrize(
    "strange",
    [
        np.full((3, 3), np.nan),
        np.diag([1.0, np.inf, 1.0]),
        np.diag([1.0, 1.0, np.nan]),
        np.diag([1.0, -1.0, 1.0]),
        np.diag([-1.0, -1.0, -1.0]),
        np.diag([0.0, 1.0, 1.0]),
        np.zeros((3, 3)),
        np.full((3, 3), 1e308),
        np.full((3, 3), 5e-324),
        np.diag([1.0, 1e-200, 1.0]),
        np.diag([np.exp(LOG_RANGE), 1.0, 1.0]),
        np.diag([np.exp(-LOG_RANGE), 1.0, 1.0]),
        np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    ],
    ids=str,
)
def test_other_matrices_are_left_out_alone(strange: Array) -> None:
    rows = matrices(np.random.default_rng(0), 7, 3, 1.0)
    alone = logarithms(np.eye(3), rows)
    found = logarithms(np.eye(3), np.concatenate([rows[:2], strange[None], rows[2:]]))
    assert np.isnan(found[2]).all()
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), alone)


@pytest.mark.parametrize("m", [2, 11])
def test_a_point_has_the_same_bits_wherever_it_stands(m: int) -> None:
    """What one record adds must not depend on others: near, far and strange ones stand beside it here."""
    rng = np.random.default_rng(m)
    space = manifolds.get("spd", dim=m)
    base = space.random_point(rng)
    rows = np.concatenate([matrices(rng, 13, m, 1.0), matrices(rng, 4, m, 9.0), np.full((1, m, m), np.nan)])
    alone = np.array([space.log_coordinates(base, x) for x in rows])
    for _ in range(20):
        order = rng.permutation(len(rows))[: rng.integers(1, len(rows) + 1)]
        np.testing.assert_array_equal(space.log_coordinates(base, rows[order]), alone[order])


def test_points_far_away_have_logarithms_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    space = manifolds.get("spd", dim=4)
    rows = np.concatenate([matrices(rng, 5, 4, 1.0), matrices(rng, 5, 4, 12.0)])
    found = space.log_coordinates(np.eye(4), rows)
    monkeypatch.setattr(matrix_logarithm, "library", lambda: None)
    np.testing.assert_allclose(found, space.log_coordinates(np.eye(4), rows), rtol=1e-6, atol=1e-9)


def test_more_rows_and_several_bases_go_to_lapack() -> None:
    rng = np.random.default_rng(0)
    wide, space = AffineInvariantSPD(MOST_ROWS + 1), manifolds.get("spd", dim=3)
    rows = matrices(rng, 2, wide.size, 1.0)
    found = wide.log_coordinates(np.eye(wide.size), rows)
    np.testing.assert_allclose(SymmetricCoordinates(wide.size).matrix(found[0]), exactly(rows[0]), atol=1e-12)
    bases, rows = matrices(rng, 4, 3, 1.0), matrices(rng, 4, 3, 1.0)
    each = [space.log_coordinates(base, x) for base, x in zip(bases, rows, strict=True)]
    np.testing.assert_allclose(space.log_coordinates(bases, rows), each, atol=1e-13)


def test_without_a_library_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix_logarithm, "__file__", str(tmp_path / "matrix_logarithm.py"))
    assert matrix_logarithm.library.__wrapped__() is None
