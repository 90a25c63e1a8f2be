"""How far completed subspaces are off, and what their answers say of that: real tables, and hopeless ones."""

from functools import cache

import numpy as np
import pytest
from sklearn import datasets

from privest.data.metadata import PartialVectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import matrix_completion
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise, ScriptedNoise

KNOWN = 0.6
TABLES = ("wine", "diabetes", "breast_cancer", "digits")
RANKS = (1, 3)


@cache
def table(name):
    """Standardised rows, of which a public random share of the entries is hidden."""
    rows = getattr(datasets, f"load_{name}")().data
    rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-9)
    return np.where(np.random.default_rng(1).random(rows.shape) < KNOWN, rows, np.nan)


def plan_of(rows, rank, epsilon, **options):
    n, dim = rows.shape
    shape = PartialVectorsMetadata(n, dim, KNOWN)
    return matrix_completion.plan(MatrixCompletionSpec(rank, **options), shape, PrivacyTarget(epsilon, 1e-6))


def answer(plan, rows, noise):
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, noise)
    return matrix_completion.run(plan, gate)


@cache
def runs(name, rank, epsilon, count):
    """The plan, distances of answers from the one without noise, and their uncertainties."""
    rows = table(name)
    plan, space = plan_of(rows, rank, epsilon), Grassmann(rows.shape[1], rank)
    exact = answer(plan, rows, ScriptedNoise()).basis
    found = [answer(plan, rows, ScaledNoise(seed=[7, seed])) for seed in range(count)]
    distances = np.array([float(space.dist(exact, each.basis)) for each in found])
    return plan, distances, [each.uncertainty for each in found]


# An honest radius holds each run with probability .95, all tables about alike: of 160 runs, fewer than 140
# with a probability of 4·10⁻⁵.
@pytest.mark.costly
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_answers_lie_within_their_radius(epsilon):
    inside = []
    for name in TABLES:
        for rank in RANKS:
            _, distances, found = runs(name, rank, epsilon, 20)
            inside.append(np.mean(distances <= [each.radius_95 for each in found]))
    assert np.mean(inside) >= 0.875
    assert min(inside) >= 0.7


def test_a_radius_is_not_padded():
    """Where directions stand out the median radius is at most twice the 95 % quantile of the distances."""
    told = 0
    for name in TABLES:
        for rank in RANKS:
            _, distances, found = runs(name, rank, 5.0, 20)
            if any("leaves open" in words for each in found for words in each.warnings):
                continue
            told += 1
            assert np.median([each.radius_95 for each in found]) < 2 * np.quantile(distances, 0.95)
    assert told >= 4


@pytest.mark.few(4)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("name", TABLES)
def test_errors_lie_within_the_unfavourable_case_of_the_forecast(name, epsilon):
    for rank in RANKS:
        plan, distances, _ = runs(name, rank, epsilon, 20)
        forecast = plan.expected_error
        assert "Unfavourable" in forecast.assumes
        assert np.quantile(distances, 0.95) <= forecast.unfavourable
        assert forecast.radius_95 <= forecast.unfavourable


def hopeless():
    """Rows of which nothing, or nothing more, can be learned, and words of the warning that they deserve."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((400, 5))
    gaps = rng.random(rows.shape) < 0.3
    constant, unknown = rows.copy(), rows.copy()
    constant[:, 2] = 0.0
    unknown[:, 2] = np.nan
    yield "two records", rows[:2], 1, "leaves open"
    yield "all rows equal", np.where(gaps, np.nan, rows[0]), 2, "may be there by chance"
    yield "all rows equal, no gap", np.tile(rows[0], (400, 1)), 2, "leaves open"
    yield "a constant column", np.where(gaps, np.nan, constant), 1, "counted from 1: 3"
    yield "a column without an entry", np.where(gaps, np.nan, unknown), 1, "counted from 1: 3"
    yield "rows without an entry", np.full((400, 5), np.nan), 1, "leaves open"
    yield "one entry of each row", np.where(np.eye(5)[np.arange(400) % 5] > 0, rows, np.nan), 1, "by chance"


HOPELESS = {name: rest for name, *rest in hopeless()}


@pytest.mark.parametrize("epsilon", [0.5, 50.0, 1e4])
@pytest.mark.parametrize("name", HOPELESS)
def test_no_answer_is_sure_of_what_rows_do_not_tell(name, epsilon):
    """With hardly any noise too. Two records are less sure with more noise, and told apart with less."""
    rows, rank, words = HOPELESS[name]
    found = answer(plan_of(rows, rank, epsilon), rows, ScaledNoise(seed=1))
    told = found.uncertainty
    assert np.isfinite(found.basis).all()
    assert np.isfinite([told.standard_deviation, told.radius_95, told.noise, told.sampling]).all()
    assert told.warnings
    if epsilon >= 1 and name != "two records":
        assert any(words in warning for warning in told.warnings), told.warnings
    if epsilon < 1:
        assert any("leaves open" in warning for warning in told.warnings)
        assert told.radius_95 > 0.9


@pytest.mark.parametrize("epsilon", [1e-140, 1e-100, 1e-20, 1e15])
def test_no_privacy_makes_an_error_that_is_no_number(epsilon):
    rows = table("digits")
    told = answer(plan_of(rows, 3, epsilon), rows, ScaledNoise(seed=1)).uncertainty
    assert np.isfinite([told.standard_deviation, told.radius_95, told.noise, told.sampling]).all()
    if epsilon < 1:
        assert told.radius_95 > 0.9 * Grassmann(64, 3).natural_radius


def test_a_row_without_an_entry_among_others_changes_little():
    rows = np.array(table("digits"))
    plan = plan_of(rows, 3, 5.0)
    whole = answer(plan, rows, ScriptedNoise())
    rows[5] = np.nan
    again = answer(plan, rows, ScriptedNoise())
    assert Grassmann(64, 3).dist(whole.basis, again.basis) < 0.05
    assert again.uncertainty.radius_95 == pytest.approx(whole.uncertainty.radius_95, rel=0.05)


def test_a_descent_by_chosen_steps_claims_nothing_but_its_forecast():
    rows = table("digits")
    plan = plan_of(rows, 3, 5.0, steps=3)
    told = answer(plan, rows, ScaledNoise(seed=1)).uncertainty
    assert told.radius_95 == Grassmann(64, 3).natural_radius
    assert told.noise == plan.expected_error.radius_95
    assert any("steps were chosen" in words for words in told.unknown)


@pytest.mark.parametrize(("off", "told"), [(0.0, True), (0.2, True), (3.0, False)])
def test_rows_in_a_subspace_are_told_of_a_descent(off, told):
    """Real tables are not, whatever the noise."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((20_000, 2)) @ rng.standard_normal((2, 30))
    rows += off * rng.standard_normal(rows.shape)
    rows = np.where(rng.random(rows.shape) < KNOWN, rows, np.nan)
    found = answer(plan_of(rows, 2, 1.0), rows, ScaledNoise(seed=2)).uncertainty
    assert any("a descent" in warning for warning in found.warnings) == told
    for name in TABLES:
        for rank in RANKS:
            _, _, uncertainties = runs(name, rank, 5.0, 20)
            assert not any("a descent" in words for each in uncertainties for words in each.warnings)


@pytest.mark.parametrize("name", TABLES)
def test_the_sampling_error_is_that_of_other_records(name):
    """Bootstraps of rows, without noise, are off by half to all of what is told of a first direction."""
    rows, rank = table(name), 1
    plan, rng = plan_of(rows, rank, 1e4), np.random.default_rng(6)
    told = answer(plan, rows, ScriptedNoise())
    others = [rows[rng.integers(len(rows), size=len(rows))] for _ in range(40)]
    space = Grassmann(rows.shape[1], rank)
    off = [float(space.dist(told.basis, answer(plan, each, ScriptedNoise()).basis)) for each in others]
    assert 0.5 < np.sqrt(np.mean(np.square(off))) / told.uncertainty.sampling < 1.05
