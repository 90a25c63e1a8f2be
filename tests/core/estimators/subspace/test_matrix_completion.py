"""The planner of matrix completion: a pure function of public facts; what it refuses, what its runs find.

How far runs on real tables are off is in test_completion_error.py.
"""

import numpy as np
import pytest

from privest.data.metadata import PartialVectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import matrix_completion
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.partial_rows import known_part
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing import completion
from testing.noise import ScaledNoise, ScriptedNoise

TARGET = PrivacyTarget(1.0, 1e-6)
NO_NOISE = PrivacyTarget(1e8, 1e-6)


def planted(n, dim, rank, known, seed=0, off=0.0):
    """Rows in a random subspace, evenly spread in it, `off` it by that share of their length, with gaps."""
    rng = np.random.default_rng(seed)
    truth = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    rows = rng.standard_normal((n, rank)) @ truth.T
    rows += off * np.sqrt(rank / dim) * rng.standard_normal((n, dim))
    rows *= rng.uniform(0.1, 10.0, (n, 1))
    return np.where(rng.random((n, dim)) < known, rows, np.nan), truth


def planned(n=1000, dim=8, rank=2, target=TARGET, known=0.5, **options):
    shape = PartialVectorsMetadata(n, dim, known)
    return matrix_completion.plan(MatrixCompletionSpec(rank, **options), shape, target)


def estimate(rows, rank, known, target, seed=0, **options):
    plan = planned(*rows.shape, rank, target, known, **options)
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, ScaledNoise(seed=seed))
    return plan, matrix_completion.run(plan, gate)


def test_the_same_facts_give_the_same_plan_and_no_row_is_read(monkeypatch):
    def read(*_):
        raise AssertionError("a row was read")

    for method in ("sum", "sum_of"):
        monkeypatch.setattr(Records, method, read)
    assert planned() == planned()
    plan = planned(n=20_000, dim=30)
    Gate(Records(np.full((20_000, 30), np.nan)), plan.statistics, plan.releases)
    assert (plan.steps, plan.step_sizes) == (1, ())
    descent = planned(n=20_000, dim=30, steps=12)
    assert descent.steps == 1 + len(descent.step_sizes) == 13
    clips = [r.clip for r in descent.releases if r.statistic == "gradient"]
    assert all(np.diff(clips) < 0)


BAD = [
    ({"rank": 0}, "rank must be at least 1"),
    ({"rank": 8}, "below the number of columns"),
    ({"rank": 51, "dim": 60}, "at most 50"),
    ({"dim": 1001}, "at most 1000 columns"),
    ({"n": 2}, "more records than it has dimensions"),
    ({"target": PrivacyTarget(1.0, 0.0)}, "delta must be above 0"),
    ({"steps": 0}, "steps must be"),
    ({"steps": 1001}, "steps must be"),
    *(({"step_size": s}, "step_size must be") for s in (0.0, -1.0, 1e4, float("nan"), float("inf"))),
    ({"n": 10**7, "dim": 1000, "steps": 10}, "too long"),
    ({"n": 10**7, "dim": 1000, "step_size": 1.0}, "too long"),
    *(({"known": 0.1, "dim": 20} | it, "no descent") for it in ({"steps": 3}, {"local_steps": 2})),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_what_is_out_of_range_is_refused_in_clear_words(options, words):
    with pytest.raises(ValueError, match=words):
        planned(**options)


def test_weak_and_hopeless_requests_are_warned_of():
    assert any("delta" in w for w in planned(target=PrivacyTarget(1.0, 0.01)).warnings)
    assert any("hide the subspace" in w for w in planned(n=10, target=PrivacyTarget(0.1, 1e-6)).warnings)
    assert any("known entries" in w for w in planned(n=10**6, known=0.3).warnings)
    assert planned(n=10**6, dim=30, target=PrivacyTarget(1.0, 1e-9)).warnings == ()


def test_a_descent_is_made_where_it_is_asked_for():
    assert [r.statistic for r in planned().releases] == ["moment"]
    for options in ({"steps": 3}, {"step_size": 0.5}, {"local_steps": 2}):
        asked = planned(**options)
        assert asked.step_sizes
        assert "asked for" in asked.why


def signs(n, dim, known):
    """Rows of three kinds, all of 1 and −1, with gaps; and their own moment."""
    rng = np.random.default_rng(0)
    kinds = np.where(np.random.default_rng(1).random((3, dim)) < 0.5, 1.0, -1.0)
    rows = kinds[rng.choice(3, n, p=[0.5, 0.3, 0.2])]
    return np.where(rng.random((n, dim)) < known, rows, np.nan), rows.T @ rows / n / dim


@pytest.mark.parametrize("known", [0.15, 0.6, 1.0])
def test_the_moment_is_that_of_whole_rows_but_for_a_factor(known):
    """Such rows have no bias by division. Chance has 1/(D√n) an entry, and five times that is allowed."""
    n, dim = 20_000, 10
    rows, exact = signs(n, dim, known)
    statistic = GapMoment(dim)
    found, share = statistic.whole(statistic.clipped_sum(None, rows, 1.0) / n)
    some = (~np.isnan(rows)).sum(axis=1)
    assert share == pytest.approx(np.mean(some[some > 0] - 1) / 9, rel=1e-12)
    share = np.trace(found)
    assert np.abs(found - share * exact).max() < 5 / (dim * np.sqrt(n))


def test_noise_between_directions_is_what_is_drawn():
    """Variances of 4,000 draws are within 15 % of what is told, which is 6 deviations of them."""
    rows, _ = signs(20_000, 5, 0.6)
    statistic, deviation = GapMoment(5), 1e-3
    exact = statistic.clipped_sum(None, rows, 1.0) / len(rows)
    moment, pairs = statistic.whole(exact)
    vectors = np.linalg.eigh(moment)[1]
    rng = np.random.default_rng(4)
    drawn = [
        statistic.whole(exact + deviation * rng.standard_normal(statistic.size))[0] for _ in range(4_000)
    ]
    seen = np.var(vectors.T @ (np.array(drawn) - moment) @ vectors, axis=0)
    told = statistic.noise_between(vectors, moment, pairs, deviation)
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(told[off], seen[off], rtol=0.15)


@pytest.mark.parametrize(("known", "bound"), [(0.22, 1e-4), (0.5, 1e-5)])
def test_without_noise_the_subspace_is_recovered(known, bound):
    """The public number of steps is enough. The start alone has a bias of about 0.1."""
    rows, truth = planted(1000, 100, 2, known)
    plan, answer = estimate(rows, 2, known, NO_NOISE, steps=12)
    assert len(plan.step_sizes) == 12
    assert Grassmann(100, 2).dist(answer.basis, truth) < bound


# Root mean squares of 4 runs with seeded noise, over the forecast. Drawn 20,000 times from 60 runs with other
# noise they were between 0.49 and 0.83.
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("n", "dim", "rank", "known"), [(20_000, 30, 2, 0.4), (20_000, 30, 4, 0.4), (5_000, 50, 2, 0.5)]
)
def test_errors_of_a_descent_are_those_of_the_forecast(n, dim, rank, known):
    rows, truth = planted(n, dim, rank, known)
    errors = []
    for seed in range(4):
        plan, answer = estimate(rows, rank, known, PrivacyTarget(1.0, n**-1.5), seed, steps=12)
        errors.append(float(Grassmann(dim, rank).dist(answer.basis, truth)))
    got, forecast = np.sqrt(np.mean(np.square(errors))), plan.expected_error.standard_deviation
    assert 0.45 * forecast < got < 2 * forecast < 0.05
    assert got < np.sqrt(rank) * np.pi / 2 / 50  # of a basis that knows nothing


def test_rows_off_the_subspace_still_tell_it():
    """Rows are off by half of their length, far more than the forecast assumes."""
    rows, truth = planted(20_000, 30, 2, 0.4, off=0.5)
    _, answer = estimate(rows, 2, 0.4, PrivacyTarget(1.0, 1e-6))
    assert Grassmann(30, 2).dist(answer.basis, truth) < 0.15


def test_whoever_holds_a_column_completes_it():
    rows, truth = planted(20_000, 30, 2, 0.4)
    _, answer = estimate(rows, 2, 0.4, TARGET, steps=12)
    whole = np.random.default_rng(5).standard_normal((10, 2)) @ truth.T
    a, mask = known_part(np.where(np.random.default_rng(6).random(whole.shape) < 0.5, whole, np.nan))
    completed = completion.coefficients(answer.basis, a, mask) @ answer.basis.T
    cosines = np.vecdot(completed, whole) / np.linalg.norm(completed, axis=1) / np.linalg.norm(whole, axis=1)
    assert cosines.min() > 0.999


def test_the_length_of_a_row_and_its_sign_count_for_nothing():
    rows, _ = planted(500, 8, 2, 0.6)
    scaled = rows * np.random.default_rng(1).choice([-1e-90, 1e90, 2.0], (500, 1))

    plan = planned(n=500, target=NO_NOISE)
    bases = [
        matrix_completion.run(plan, Gate(Records(r), plan.statistics, plan.releases, ScriptedNoise())).basis
        for r in (rows, scaled)
    ]
    np.testing.assert_allclose(*bases, atol=1e-8)
