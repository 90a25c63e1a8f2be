"""Matrix completion: the cost computed again from the noise that was really drawn, whatever the data.

What a record is worth in each sum is written here once more, by hand: the square is 2·0.97² in the moment
and 1 − 0.97² in the number beside it, or that of twice the clip in a gradient.
"""

from fractions import Fraction

import numpy as np
import pytest
from pydantic import TypeAdapter

from privest.data.metadata import PartialVectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import matrix_completion
from privest.estimators.subspace.matrix_completion import MatrixCompletionPlan, MatrixCompletionSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.accounting import label, recorded_run, taken_apart, within_request
from testing.noise import ScriptedNoise

N, DIM, RANK = 300, 6, 2
TARGET = PrivacyTarget(1.0, 1e-6)
OPTIONS = [{}, {"steps": 5}, {"steps": 1, "step_size": 0.5}, {"step_size": 3.0}]


each = pytest.mark.parametrize("options", OPTIONS, ids=label)


def plan_of(options, n=N, dim=DIM, rank=RANK, target=TARGET, known=0.7):
    shape = PartialVectorsMetadata(n, dim, known)
    return matrix_completion.plan(MatrixCompletionSpec(rank, **options), shape, target)


def run(plan, rows):
    return recorded_run(plan, rows, matrix_completion.run)


def check(plan, asked, drawn):
    """Fails where the draws cost more than was planned or asked."""
    dim, rank = plan.shape.dim, plan.rank
    whole, batches = taken_apart(drawn)
    assert not batches
    assert asked == ["moment"] + ["gradient"] * len(plan.step_sizes)
    assert len(whole) == len(asked)
    clips = [r.clip for r in plan.releases for _ in range(r.count)]
    spent = Fraction(0)
    for name, clip, (noise, scale, size) in zip(asked, clips, whole, strict=True):
        square = Fraction("1.9409") if name == "moment" else 4 * Fraction(clip) ** 2
        assert (noise, size) == ("gaussian", dim * (dim + 1) // 2 + 1 if name == "moment" else dim * rank)
        assert name == "gradient" or clip == 1
        spent += square / Fraction(scale) ** 2
    cost = Fraction(plan.cost.mu_squared)
    # Where there is very much noise, what its grid is paid for is a part of the whole.
    assert (1 - Fraction(1, 10 if plan.target.epsilon < 0.01 else 10**5)) * cost <= spent <= cost
    assert plan.cost.slack == 0
    within_request(plan)


def ordinary(n=N, dim=DIM, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, RANK)) @ rng.standard_normal((RANK, dim))
    return np.where(rng.random((n, dim)) < 0.7, rows, np.nan)


@each
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (30.0, 1e-9), (0.05, 1e-3)])
def test_the_noise_drawn_pays_for_the_plan(options, epsilon, delta):
    plan = plan_of(options, target=PrivacyTarget(epsilon, delta))
    answer, asked, drawn = run(plan, ordinary())
    check(plan, asked, drawn)
    np.testing.assert_allclose(answer.basis.T @ answer.basis, np.eye(RANK), atol=1e-12)
    if "steps" in options:
        assert asked.count("gradient") == options["steps"]


@pytest.mark.parametrize("options", OPTIONS[1:3], ids=label)
def test_mutants_that_draw_too_little_noise_are_caught(options):
    plan = plan_of(options)
    _, asked, drawn = run(plan, np.zeros((N, DIM)))
    check(plan, asked, drawn)
    less = [(noise, scale * 0.95, size) for noise, scale, size in drawn]
    narrow = [(noise, scale, size - 1) for noise, scale, size in drawn]
    for mutant in (less, narrow, drawn[:-1], [*drawn, drawn[-1]]):
        with pytest.raises((AssertionError, ValueError)):
            check(plan, asked, mutant)


def degenerate():
    """Data of which some step might have no opinion: none of them may stop a run or cost it more."""
    rng, rows = np.random.default_rng(7), ordinary()
    yield "nothing known", np.full((N, DIM), np.nan)
    yield "zeros", np.zeros((N, DIM))
    yield "one entry of each", np.where(np.eye(DIM)[np.arange(N) % DIM] > 0, 1.0, np.nan)
    yield "one row", np.tile(rows[0], (N, 1))
    yield "equal columns", np.ones((N, DIM))
    yield "an unknown column", np.where(np.arange(DIM) == 2, np.nan, rows)
    yield "outliers", np.where(np.arange(N)[:, None] % 3 == 0, 1e150, rows)
    yield "infinite", np.where(rng.random((N, DIM)) < 0.3, -np.inf, rows)
    with np.errstate(over="ignore"):
        yield "huge and denormal", rows * 10.0 ** rng.uniform(-320, 308, (N, 1))
    yield "largest", np.where(np.isnan(rows), np.nan, 1e308)
    yield "a line", np.where(np.isnan(rows), np.nan, 1.0) * rng.standard_normal((N, 1))


DATA = dict(degenerate())


@each
@pytest.mark.parametrize("kind", DATA)
def test_no_data_stop_a_run_or_change_what_it_releases(options, kind):
    """A plan of hardly any noise, so that data are seen as they are, and the same releases of all of them."""
    plan = plan_of(options, target=PrivacyTarget(1e3, 1e-6))
    answer, asked, drawn = run(plan, DATA[kind])
    check(plan, asked, drawn)
    assert np.isfinite(answer.basis).all()
    np.testing.assert_allclose(answer.basis.T @ answer.basis, np.eye(RANK), atol=1e-10)
    assert drawn == run(plan, ordinary(seed=9))[2]


@pytest.mark.parametrize(("n", "dim", "rank"), [(2, 2, 1), (3, 20, 2), (6, 6, 5)])
@pytest.mark.parametrize("known", [1e-300, 0.1, 1.0])
def test_the_least_number_of_records_is_enough(n, dim, rank, known):
    for options in OPTIONS:
        if options and known * dim <= rank:
            with pytest.raises(ValueError, match="no descent learns"):
                plan_of(options, n=n, dim=dim, rank=rank, known=known)
            continue
        plan = plan_of(options, n=n, dim=dim, rank=rank, known=known)
        answer, asked, drawn = run(plan, np.random.default_rng(n).standard_normal((n, dim)))
        check(plan, asked, drawn)
        assert answer.basis.shape == (dim, rank)


@each
def test_a_plan_that_went_through_json_runs_the_same(options):
    plan, rows = plan_of(options), ordinary()
    adapter = TypeAdapter(MatrixCompletionPlan)
    again = adapter.validate_json(adapter.dump_json(plan))
    assert again == plan
    bases = [
        matrix_completion.run(
            p, Gate(Records(rows, threads=1), p.statistics, p.releases, ScriptedNoise())
        ).basis
        for p in (plan, again)
    ]
    np.testing.assert_array_equal(*bases)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-148, 1e-145, 1e16])
def test_targets_beyond_float64_are_refused_in_words_if_at_all(epsilon):
    for options in OPTIONS:
        try:
            plan = plan_of(options, target=PrivacyTarget(epsilon, 1e-300))
        except ValueError as refused:
            assert "float64" in str(refused) or "too large" in str(refused)  # noqa: PT017
        else:
            assert np.isfinite([plan.expected_error.radius_95, *plan.step_sizes]).all()


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("delta", [1e-14, 1e-6, 0.5])
@each
def test_extreme_targets_are_covered_or_refused(options, epsilon, delta):
    plan = plan_of(options, target=PrivacyTarget(epsilon, delta))
    answer, asked, drawn = run(plan, ordinary())
    check(plan, asked, drawn)
    assert np.isfinite(answer.basis).all()
