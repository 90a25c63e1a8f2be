"""Completion of a ratings-like table: what column and row means leave, its ridge, and its held-out error."""

from math import sqrt

import numpy as np
import pytest
from scipy.optimize import minimize

from privest.data.metadata import PartialVectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.subspace import matrix_completion
from privest.estimators.subspace.completion_means import Completed, HeldOut, KnownSums, LeftMoment, ridge_of
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.accounting import recorded_run
from testing.noise import ScaledNoise

N, DIM = 5_000, 30


def ratings(seed=0):
    """(N, DIM) ratings of 1 to 5, item and user means, two factors; a third is known. And all of them."""
    rng = np.random.default_rng(seed)
    exact = 3.4 + 0.5 * rng.standard_normal(DIM) + 0.4 * rng.standard_normal((N, 1))
    exact += 0.45 * rng.standard_normal((N, 2)) @ rng.standard_normal((2, DIM))
    whole = np.clip(np.round(exact + 0.7 * rng.standard_normal((N, DIM))), 1, 5)
    return np.where(rng.random((N, DIM)) < 0.34, whole, np.nan), whole


def shape_of(n=N, high=5.0):
    columns = tuple(Column(f"i{at}", "number", 1.0, high, missing="filled", fill=3.0) for at in range(DIM))
    return metadata_for(PartialVectorsMetadata, TableMetadata(n, columns), TableChoice())


def answered(rows, rank, epsilon, noise, **options):
    shape = shape_of(len(rows))
    target = PrivacyTarget(epsilon, N**-1.5)
    plan = matrix_completion.plan(MatrixCompletionSpec(rank, **options), shape, target)
    gate = Gate(Records(rows, 1, recipe=shape.recipe), plan.statistics, plan.releases, noise)
    found = matrix_completion.run(plan, gate)
    assert gate.remaining == 0
    return plan, found


def test_rank_2_is_clearly_better_than_the_means_of_the_columns_and_says_so():
    rows, whole = ratings()
    known = ~np.isnan(rows)
    for epsilon, most in ((1.0, 0.9), (100.0, 0.86)):
        _, found = answered(rows, 2, epsilon, ScaledNoise(seed=70))
        fit = Completed(found.centers, found.basis, found.ridge)
        values = 3 + 2 * fit.values(np.where(known, (rows - 3) / 2, 0.0), known.astype(float))
        error = np.sqrt(np.mean((values - whole)[~known] ** 2))
        alone = np.sqrt(np.mean((3 + 2 * found.centers - whole)[~known] ** 2))
        assert error < most * alone
        # Held-out entries are completed from fewer than all known ones.
        assert 2 * found.held_out_error == pytest.approx(error, rel=0.08)
        assert 2 * found.column_means_error == pytest.approx(alone, rel=0.08)
        assert not any("not seen to be completed better" in words for words in found.uncertainty.warnings)


def test_a_rank_too_large_is_no_worse():
    rows, _ = ratings()
    errors = [answered(rows, rank, 10.0, ScaledNoise(seed=71))[1].held_out_error for rank in (2, 3, 4)]
    assert max(errors) < 1.02 * errors[0]


def test_where_nothing_hangs_together_the_answer_says_so():
    rng = np.random.default_rng(3)
    rows = np.where(rng.random((N, DIM)) < 0.34, rng.integers(1, 6, (N, DIM)), np.nan)
    _, found = answered(rows, 2, 1.0, ScaledNoise(seed=72))
    assert any("not seen to be completed better" in words for words in found.uncertainty.warnings)


def test_answers_are_in_the_columns_units():
    rows, _ = ratings()
    plan, found = answered(rows, 2, 10.0, ScaledNoise(seed=73))
    told = found.in_columns(plan.shape.recipe, plan.expected_error)
    np.testing.assert_allclose(told.centers, np.nanmean(rows, axis=0), atol=0.1)
    np.testing.assert_array_equal(told.scales, 2.0)
    assert told.degrees_95 == pytest.approx(np.degrees(told.uncertainty.radius_95))


def test_the_noise_drawn_is_what_the_budget_pays_for():
    """The diameters are worked out here: √2 for sums, 1 for errors, √(2·.97² + 1 − .97²) for the moment."""
    rows, _ = ratings()
    target = PrivacyTarget(1.0, N**-1.5)
    plan = matrix_completion.plan(MatrixCompletionSpec(2), shape_of(), target)
    images = shape_of().recipe(rows)
    _, asked, drawn = recorded_run(plan, images, matrix_completion.run)
    assert asked == ["known-sums", "left", "held-out"]
    squares = {"known-sums": 2.0, "left": 2 * 0.97**2 + 1 - 0.97**2, "held-out": 1.0}
    spent = sum(squares[name] / draw[1] ** 2 for name, draw in zip(asked, drawn, strict=True))
    whole = mu_for(1.0, target.delta) ** 2
    assert 0.999 * whole <= spent <= whole
    assert spent <= plan.cost.mu_squared


def test_two_rows_of_any_values_and_gaps_are_no_further_apart_than_the_diameter():
    rng, dim = np.random.default_rng(4), 4
    fit = Completed(
        rng.uniform(-0.5, 0.5, dim), np.linalg.qr(rng.standard_normal((dim, 2)))[0], np.full(2, 0.3)
    )
    for statistic, point in ((KnownSums(dim), None), (HeldOut(), fit)):

        def apart(free, gaps, statistic=statistic, point=point):
            rows = np.where(gaps, np.nan, np.sin(free.reshape(2, dim)))
            one, other = (statistic.clipped_sum(point, rows[[at]], 1.0) for at in (0, 1))
            assert max(np.linalg.norm(one), np.linalg.norm(other)) <= 1 + 1e-12
            return -float(np.linalg.norm(one - other))

        furthest = 0.0
        for _ in range(40):
            gaps = rng.random((2, dim)) < 0.5
            found = minimize(apart, rng.uniform(-2, 2, 2 * dim), (gaps,), "Powell", options={"maxiter": 8})
            furthest = max(furthest, -found.fun)
        assert furthest <= statistic.diameter(1.0) * (1 + 1e-12)
        assert furthest > 0.8 * statistic.diameter(1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300, 3.0])
def test_unusual_rows_have_finite_answers(value):
    _, found = answered(np.full((N, DIM), value), 2, 1.0, ScaledNoise(seed=74))
    for each in (found.basis, found.centers, found.ridge, found.held_out_error, found.column_means_error):
        assert np.isfinite(each).all()


BAD = {
    "a constant column": lambda rows: np.column_stack([np.full(len(rows), 4.0), rows[:, 1:]]),
    "collinear columns": lambda rows: np.column_stack([rows[:, 1], rows[:, 1:]]),
    "more columns than rows": lambda rows: rows[:20],
    "a column of gaps": lambda rows: np.column_stack([np.full(len(rows), np.nan), rows[:, 1:]]),
    "bounds a hundred times too wide": lambda rows: rows,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", BAD)
def test_bad_tables_have_finite_answers_with_an_honest_radius_and_a_warning_where_they_are_useless(name):
    """20 runs: where 95 % are due, chance has fewer than 16 once in 400."""
    rows, wide = BAD[name](ratings()[0]), name.startswith("bounds")
    shape, target = shape_of(len(rows), 401.0 if wide else 5.0), PrivacyTarget(1.0, N**-1.5)
    plan = matrix_completion.plan(MatrixCompletionSpec(2), shape, target)
    hits, statistic = 0, LeftMoment(DIM)
    for seed in range(20):
        noise = ScaledNoise(seed=[75, seed])
        gate = Gate(Records(rows, 1, recipe=shape.recipe), plan.statistics, plan.releases, noise)
        found = matrix_completion.run(plan, gate)
        for each in (found.basis, found.centers, found.ridge, found.held_out_error, found.degrees_95):
            assert np.isfinite(each).all()
        sums = statistic.clipped_sum(found.centers, shape.recipe(rows), 1.0)
        exact = np.linalg.eigh(statistic.moment.whole(sums / len(rows))[0])[1][:, ::-1][:, :2]
        hits += Grassmann(DIM, 2).dist(exact, found.basis) <= found.uncertainty.radius_95
        if wide or len(rows) < DIM:
            assert found.uncertainty.warnings
    assert hits >= 16


def test_means_are_for_bounded_tables_and_one_moment():
    target, free = PrivacyTarget(1.0, 1e-6), PartialVectorsMetadata(N, DIM, 0.3)
    spec = MatrixCompletionSpec
    assert matrix_completion.plan(spec(2), shape_of(), target).means
    for options, shape in (({}, free), ({"means": False}, shape_of()), ({"steps": 4}, shape_of())):
        assert not matrix_completion.plan(spec(2, **options), shape, target).means
    for options, shape, words in (
        ({"means": True}, free, "columns all have low and high"),
        ({"means": True, "steps": 4}, shape_of(), "leave out the steps"),
    ):
        with pytest.raises(ValueError, match=words):
            matrix_completion.plan(spec(2, **options), shape, target)


def test_the_ridge_is_the_variance_beside_over_that_along():
    values = np.array([3.0, 1.5, 0.5, 0.5])
    np.testing.assert_allclose(ridge_of(values, 2, 0.0), [0.5 / 2.5, 0.5 / 1.0])
    assert ridge_of(values, 2, sqrt(5.0))[1] == 1e3  # noise may be all that there is
