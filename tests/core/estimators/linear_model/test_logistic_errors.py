"""Stated errors of logistic regression against simulated ones, and runs at the edges of what may be asked."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import chi2

from benchmarks.coverage import Law, measure
from privest.arrays import lengths
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.logistic import ClassMoments
from privest.estimators.linear_model.score_model import Moment, ScoreModel, on_simplex
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest_papers.noise_division import best_shares

ALARM = 1e-6
"""Probability with which fresh seeds would fail a right program, in each upper bound below."""


INDEPENDENT = 40
"""Fewest squares that each mean below is taken of."""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("law", "n", "runs"),
    [
        (Law("gaussian"), 5_000, INDEPENDENT),
        (Law("cubed", even=False), 5_000, INDEPENDENT),
        (Law("gaussian", 4), 20_000, INDEPENDENT // 3),
        (Law("mixture"), 5_000, INDEPENDENT),
        (Law("gaussian", even=False), 2_000, INDEPENDENT),
    ],
    ids=["gaussian", "cubed", "four classes", "mixture", "rare class"],
)
def test_stated_errors_are_those_that_come_about(law, n, runs):
    """Mean squares of errors in units of the stated ones: 1 but for chance and loose bounds.

    A mean over the six coefficients of a run, however they hang together, is no less steady than one square;
    with four classes it is one of three contrasts, so that a run counts for three. Errors stated half as
    large as they are have the mean square 4, and twice as large 1/4. Of the rare class errors by noise are
    stated almost three times as large as they are, as a curvature that is near its noise is doubted.
    """
    plan = law.plan(n, 1.0, solver="newton")
    found = measure(law, plan, runs, each=1)
    most = chi2.ppf(1 - ALARM, INDEPENDENT) / INDEPENDENT
    assert most < 2.5
    for name, least in (("noise", 0.1), ("both", 0.25), ("true", 0.25)):
        assert least < np.mean(getattr(found, name) ** 2) < most, name


def test_a_ridge_lessens_what_sampling_adds():
    """H + 2λ divides gradients that vary by H: less than the inverse, and near (H + 2λ)⁻¹H(H + 2λ)⁻¹."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100_000, 3)) * [0.5, 0.3, 0.1]
    moment = x.T @ x / len(x)
    penalty = 0.02
    model = ScoreModel(np.zeros((1, 3)), Moment(moment, 0.0, 8 * penalty), np.zeros(3))
    hessian = moment / 4
    inverse = np.linalg.inv(hessian + 2 * penalty * np.eye(3))
    wanted = inverse @ hessian @ inverse
    np.testing.assert_allclose(model.sampling(0), wanted, rtol=1e-3, atol=1e-3 * wanted.max())
    assert inverse[2, 2] > 5 * wanted[2, 2]
    free = ScoreModel(np.zeros((1, 3)), Moment(moment, 0.0), np.zeros(3))
    np.testing.assert_allclose(free.sampling(0), np.linalg.inv(hessian), rtol=1e-3)


def test_steps_that_did_not_arrive_are_said_to_be_far_off():
    """Binary features of four classes: steps end many stated errors away, were noise all there is."""
    law = Law("binary", 4)
    found = measure(law, law.plan(20_000, 3.0, solver="newton"), 4, each=1)
    assert np.sqrt(np.mean(found.both**2)) < 4


@pytest.mark.parametrize("bound", [1e-170, 5e-324, 1.0])
def test_no_bound_is_so_small_that_a_row_is_longer(bound):
    """The squares of lengths below 1e-154 leave float64, and with them what a row was shortened by."""
    rng = np.random.default_rng(1)
    feature_map = FeatureMap(np.zeros(3), np.ones(3), bound, 0.0, bound)
    sizes = np.array([0.0, 5e-324, 1e-300, 1e-169, 1e-165, 1e-155, 1e-10, 1.0, 1e300])
    x = rng.standard_normal((200, len(sizes), 3)) * sizes[:, None]
    rows = np.column_stack([x.reshape(-1, 3), np.zeros(200 * len(sizes))])
    seen = feature_map.features(rows)
    assert lengths(seen).max() <= 1 + 1e-12
    moments = ClassMoments(3, 2)
    alone = np.stack([moments.clipped_sum(feature_map, row[None], moments.longest) for row in rows[::7]])
    assert lengths(alone).max() <= moments.longest * (1 + 1e-12)


@pytest.mark.parametrize("size", [1.0, 1e17, 1e40])
def test_the_simplex_is_found_from_afar(size):
    found = on_simplex(size * np.array([3.0, -1.0, 2.0, 2.5]))
    assert found.sum() == pytest.approx(1.0)
    assert found[0] == found.max() > 0.5


@pytest.mark.parametrize("pure", [True, False])
def test_every_step_has_a_share_that_float64_can_carry(pure):
    shares = best_shares(np.array([0.0, 1e-300, 1e-20, 1.0]), pure=pure)
    assert shares.min() > 1e-13
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("solver", "penalty"),
    [("newton", None), ("newton", 1e6), ("clipped", None), ("nag-opt", 1e6), ("gd", 1e-9)],
)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("epsilon", [1e-6, 1e6])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("n", "dim"), [(1, 1), (3, 3)])
def test_every_run_ends_with_finite_answers(solver, penalty, count, epsilon, delta, n, dim):
    names = tuple(map(str, range(dim)))
    shape = LabelledMetadata(n, names, "y", tuple(map(str, range(count))), None, (0.0,) * dim, (1.0,) * dim)
    spec = LogisticSpec(solver, penalty, sampling_errors=True, standardisation="private")
    planned = logistic_regression.plan(spec, shape, PrivacyTarget(epsilon, delta))
    x = np.random.default_rng(2).standard_normal((n, dim))
    for features in (x, 0 * x, 1e200 * x):
        rows = np.column_stack([features, np.arange(n) % min(count, 2)])
        gate = Gate(Records(rows, threads=1), planned.statistics, planned.releases)
        found = logistic_regression.run(planned, gate)
        assert gate.remaining == 0
        for spread in (found.noise, found.sampling):
            assert np.isfinite(spread.standard_errors).all()
            assert (spread.standard_errors[..., :-1] > 0).all()
        assert np.isfinite(found.coefficients).all()
        assert np.isfinite(found.intercept).all()


def test_no_records_are_refused_in_words():
    shape = LabelledMetadata(0, ("a",), "y", ("0", "1"), None, (0.0,), (sqrt(2),))
    with pytest.raises(ValueError, match="at least one record"):
        logistic_regression.plan(LogisticSpec(), shape, PrivacyTarget(1.0, 1e-6))
