"""Descents: the cost computed again from the noise that was really drawn, for every solver, noise and batch.

What a record is worth is written here by hand: a gradient is at most 1 long (√2 with more classes), and a
replaced record moves a sum by twice that.
"""

from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise
from math import cos, exp, log, log1p, pi, sin, sinh, sqrt

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from privest.data.metadata import LabelledMetadata
from privest.data.records import CHUNK, Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.cross_check import second_opinion
from privest.privacy.gate import Gate, GateExhaustedError
from privest.privacy.mechanisms import SubsampledRun, amplified, subsampled_sum, unamplified
from privest.privacy.subsampling import certify
from testing.accounting import (
    composed,
    drawn_laplace,
    drawn_over_batches,
    exact_delta,
    pure_mu_squared,
    taken_apart,
)
from testing.noise import RecordedNoise, ScriptedNoise

SOLVERS = ["gd", "hb", "nag", "masg", "gd-opt", "hb-opt", "nag-opt", "masg-opt"]
N, DIM = 300, 4
every = [
    pytest.mark.parametrize("solver", SOLVERS),
    pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"]),
    pytest.mark.parametrize("batch", [None, 40, 1], ids=["all", "batch", "one"]),
]


def each(test):
    for mark in every:
        test = mark(test)
    return test


def plan_of(solver, delta, batch, *, epsilon=1.0, classes=2, n=N, **options):
    shape = LabelledMetadata(n, tuple("abcd"), "y", tuple(map(str, range(classes))))
    spec = LogisticSpec(solver=solver, batch_size=batch, **options)
    return logistic_regression.plan(spec, shape, PrivacyTarget(epsilon, delta))


def run(plan, seed=0):
    rng = np.random.default_rng(seed)
    n, classes = plan.shape.n, len(plan.shape.classes)
    rows = np.column_stack([rng.standard_normal((n, DIM)), rng.integers(0, classes, n)])
    spy = RecordedNoise()
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, spy)
    found = logistic_regression.run(plan, gate)
    assert np.isfinite(found.coefficients).all()
    assert gate.remaining == 0
    with pytest.raises(GateExhaustedError):
        gate.mean(np.zeros(DIM + 1))
    return spy.drawn


def amplified_by_hand(ratio, rate, scheme="poisson"):
    """The ε of a batch's sum in mpmath's digits: (11) of the paper, or what a record of C and −C loses."""
    if scheme == "fixed":
        return mpmath.log1p(rate * mpmath.expm1(mpmath.mpf(ratio)))
    own, instead = (1 - rate + rate * mpmath.exp(sign * mpmath.mpf(ratio) / 2) for sign in (1, -1))
    return mpmath.log(own / instead)


def check(plan, drawn):
    """Fails where the draws cost more than was planned or asked; returns what is certified of batches."""
    classes, target, batch = len(plan.shape.classes), plan.target, plan.spec.batch_size
    longest = 1.0 if classes == 2 else sqrt(2.0)
    whole, sampled = taken_apart(drawn)
    assert len(whole) + len(sampled) == plan.steps
    assert not (whole if batch is not None else sampled)
    draws = whole or [draw for _, draw in sampled]
    law = "laplace" if target.delta == 0 else "gaussian"
    assert {(noise, size) for noise, _, size in draws} == {
        (law, (DIM + 1) * (1 if classes == 2 else classes))
    }
    with mpmath.workdps(60):
        ratios = [2 * mpmath.mpf(longest) / mpmath.mpf(scale) for _, scale, _ in draws]
        stated = mpmath.sqrt(mpmath.mpf(plan.cost.mu_squared))
        runs = []
        if sampled:
            n = plan.shape.n
            assert {how for how, _ in sampled} == {(n, batch / n, "poisson")}
        if law == "laplace":
            if sampled:
                far = [r / 2 for r in ratios]
                ratios = [amplified_by_hand(r, mpmath.mpf(batch) / plan.shape.n) for r in ratios]
            assert sum(ratios) <= mpmath.mpf(target.epsilon)
            assert sum(ratios) > 0.9999 * mpmath.mpf(target.epsilon)
            assert plan.cost.slack == 0.0
            asked = sum(Fraction(r.epsilon) * r.count for r in plan.releases)
            assert asked <= Fraction(target.epsilon)
            if target.epsilon < 50:
                exact = [(Fraction(str(r)), draws[0][2]) for r in ratios]
                spent = drawn_over_batches(far, batch / plan.shape.n) if sampled else drawn_laplace(exact)
                assert spent <= plan.cost.mu_squared
        elif sampled:
            counts = Counter(scale / longest for _, scale, _ in draws)
            runs = [SubsampledRun("poisson", batch / plan.shape.n, s, c) for s, c in counts.items()]
            certified = certify(tuple(sorted(runs, key=lambda r: r.noise)), plan.cost.slack).mu_squared
            # Noise is rounded down to 30 bits where a plan is certified.
            assert certified * (1 - 1e-6) <= plan.cost.mu_squared
            assert 0 < plan.cost.slack < target.delta
            assert mpmath.mpf(plan.cost.slack) + exact_delta(target.epsilon, stated) <= target.delta
        else:
            assert sum(r**2 for r in ratios) <= mpmath.mpf(plan.cost.mu_squared)
            assert plan.cost.slack == 0.0
            assert exact_delta(target.epsilon, stated) <= mpmath.mpf(target.delta)
    return runs


@pytest.mark.few(8)
@each
@pytest.mark.parametrize("classes", [2, 3])
def test_the_noise_drawn_pays_for_the_plan(solver, delta, batch, classes):
    plan = plan_of(solver, delta, batch, classes=classes)
    check(plan, run(plan))
    if delta == 0:
        assert plan.cost.mu_squared < 1.0 * 8 * log(2)


@pytest.mark.costly
@settings(max_examples=60, derandomize=True)
@given(
    solver=st.sampled_from(SOLVERS),
    epsilon=st.floats(-2, 1.5).map(lambda e: 10.0**e),
    delta=st.just(0.0) | st.floats(-10, -2).map(lambda e: 10.0**e),
    batch=st.none() | st.integers(1, 59),
    steps=st.none() | st.integers(1, 40),
    penalty=st.floats(-6, 4).map(lambda e: 10.0**e),
)
def test_so_it_does_for_other_choices(solver, epsilon, delta, batch, steps, penalty):
    try:
        plan = plan_of(solver, delta, batch, epsilon=epsilon, n=60, steps=steps, penalty=penalty)
    except ValueError as refused:
        # Sampled certificates end where a step alone loses hundreds; pure ones do not end.
        assert delta > 0
        assert batch is not None
        assert epsilon > 5
        assert "certif" in str(refused)  # noqa: PT017
        return
    check(plan, run(plan))


@pytest.mark.few(8)
@each
def test_mutants_that_draw_too_little_noise_are_caught(solver, delta, batch):
    """Half of it, one part in twenty less of it, a step more, a smaller batch."""
    plan = plan_of(solver, delta, batch)
    drawn = run(plan)
    check(plan, drawn)
    mutants = [[(e[0], e[1] * f, e[2]) if isinstance(e[0], str) else e for e in drawn] for f in (0.5, 0.95)]
    mutants.append([*drawn, drawn[-1]] if batch is None else [*drawn, *drawn[-2:]])
    if batch is not None:
        mutants.append([e if isinstance(e[0], str) else (e[0], e[1] + 1 / N, e[2]) for e in drawn])
    for mutant in mutants:
        with pytest.raises((AssertionError, ValueError)):
            check(plan, mutant)


@pytest.mark.parametrize("solver", ["nag", "masg-opt"])
def test_gaussian_batches_are_private_by_another_accountant(solver):
    """dp-accounting, on its own grid: δ(ε) of all parts together is within the request, and near it."""
    plan = plan_of(solver, 1e-5, 30, epsilon=2.0, steps=40)
    runs = check(plan, run(plan))
    first, *rest = (composed(part, 1e-3) for part in runs)
    for other in rest:
        first = first.compose(other)
    assert 0.2 * 1e-5 < first.get_delta_for_epsilon(2.0) <= 1e-5


def test_the_rates_of_parts_do_not_mix():
    """What is certified of unequal parts is more than of the quietest noise, less than of the loudest."""
    plan = plan_of("nag-opt", 1e-6, 400, n=3000, epsilon=4.0)
    runs = check(plan, run(plan))
    assert len(runs) > 4
    noises = sorted(r.noise for r in runs)
    ends = [
        certify((SubsampledRun("poisson", 400 / 3000, s, plan.steps),), plan.cost.slack)
        for s in (noises[-1], noises[0])
    ]
    assert ends[0].mu_squared < plan.cost.mu_squared < ends[1].mu_squared


# Amplification of pure ε, by other routes.

CASES = [
    *((n, batch / n, "fixed") for n, batch in [(4, 1), (4, 2), (5, 3), (6, 5), (5, 5)]),
    *((n, rate, "poisson") for n, rate in [(3, 0.01), (4, 0.25), (5, 0.6), (6, 0.9), (4, 1.0)]),
]


@pytest.mark.parametrize(("n", "rate", "scheme"), CASES)
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_amplification_by_every_batch_that_there_is(n, rate, scheme, ratio):
    """Exact densities of Laplace mixtures on the line over all subsets, records at −C, 0, C: |log p/q| ≤ ε.

    On the line the noise of `laplace` is Laplace's own. Between kinks p/q is a ratio of a·e^x + b·e^−x,
    monotone in e^2x, so that it is largest at kinks and at the ends.
    """
    bound, scale = 1.0, 2.0 / ratio
    claimed = amplified(ratio, rate, scheme)
    assert claimed == pytest.approx(float(amplified_by_hand(ratio, rate, scheme)), rel=1e-9)
    rng = np.random.default_rng(0)
    sizes = [round(rate * n)] if scheme == "fixed" else range(n + 1)
    subsets = [list(s) for size in sizes for s in combinations(range(n), size)]
    chances = np.array([rate ** len(s) * (1 - rate) ** (n - len(s)) for s in subsets])
    chances /= chances.sum()
    worst = 0.0
    others = [rng.choice([-bound, 0.0, bound], n - 1) for _ in range(30)] + [
        np.full(n - 1, v) for v in (-bound, 0.0, bound)
    ]
    for rest in others:
        for own, instead in ((bound, -bound), (-bound, bound), (bound, 0.0)):
            centres = [np.array([np.append(rest, v)[s].sum() for s in subsets]) for v in (own, instead)]
            at = np.unique(np.concatenate([*centres, [-50.0, 50.0]]))
            p, q = (np.exp(-np.abs(at[:, None] - c) / scale) @ chances for c in centres)
            worst = max(worst, float(np.abs(np.log(p / q)).max()))
    assert worst <= claimed * (1 + 1e-9)
    assert worst >= 0.999 * claimed  # reached: with all others at one end


@settings(max_examples=300, derandomize=True)
@given(
    own=st.tuples(st.floats(-pi, pi), st.floats(0.0, 1.0)),
    instead=st.tuples(st.floats(-pi, pi), st.floats(0.0, 1.0)),
    rate=st.floats(1e-3, 1.0),
    ratio=st.floats(0.01, 10.0),
)
def test_no_pair_in_the_plane_loses_more_over_poisson_batches(own, instead, rate, ratio):
    """Densities with a record, with its replacement and without either, wherever the answer may be."""
    at = 30 * np.random.default_rng(0).standard_normal((400, 2)) * np.geomspace(1e-3, 1.0, 400)[:, None]
    added = [length * np.array([cos(angle), sin(angle)]) for angle, length in (own, instead)]
    at = np.concatenate([at, *(np.outer(np.linspace(-9, 9, 61), v) for v in added)])
    without, *held = (np.exp(-ratio / 2 * np.hypot(*(at - v).T)) for v in (np.zeros(2), *added))
    p, q = ((1 - rate) * without + rate * h for h in held)
    assert np.abs(np.log(p / q)).max() <= amplified(ratio, rate, "poisson") * (1 + 1e-9)


def test_densities_between_kinks_are_between_theirs():
    """What the test above rests on, on a fine grid."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        centres = rng.integers(-3, 4, (2, 6)).astype(float)
        kinks = np.unique(centres)
        for left, right in pairwise(kinks):
            at = np.linspace(left, right, 101)
            p, q = (np.exp(-np.abs(at[:, None] - c)).mean(axis=1) for c in centres)
            ratio = np.log(p / q)
            assert ratio.max() <= max(ratio[0], ratio[-1]) + 1e-12
            assert ratio.min() >= min(ratio[0], ratio[-1]) - 1e-12


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("ratio", [0.1, 1.0])
def test_amplification_by_dp_accounting(rate, ratio):
    """Its sampled Laplace mechanism removes a record: (1 − q)Lap(0) + q·Lap(2C), the pair of Theorem 9."""
    pld = privacy_loss_distribution.from_laplace_mechanism(
        1 / ratio, sampling_prob=rate, value_discretization_interval=1e-4
    )
    claimed = amplified(ratio, rate, "fixed")
    assert pld.get_delta_for_epsilon(claimed + 2e-4) <= 1e-12
    assert pld.get_delta_for_epsilon(claimed * 0.99 - 2e-4) > 1e-6


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.5, 0.9999, 1.0])
@pytest.mark.parametrize(
    "epsilon", [1e-12, 1e-3, 1.0, 20.5, 30.0, 590.0, 699.9999, 700.0001, 720.0, 1500, 1e5]
)
def test_amplification_is_rounded_up_and_its_inverse_down(epsilon, rate, scheme):
    most = mpmath.mpf(1e-11)
    with mpmath.workdps(400):
        exact = amplified_by_hand(epsilon, mpmath.mpf(rate), scheme)
        assert exact <= mpmath.mpf(amplified(epsilon, rate, scheme)) <= exact * (1 + most) + 1e-11
        inverse = mpmath.mpf(unamplified(epsilon, rate, scheme))
        assert amplified_by_hand(inverse, mpmath.mpf(rate), scheme) <= epsilon
        assert amplified_by_hand(inverse * (1 + 4 * most), mpmath.mpf(rate), scheme) >= epsilon
    assert amplified(unamplified(epsilon, rate, scheme), rate, scheme) <= epsilon


def batches(**changed):
    facts = {
        "statistic": "gradient",
        "n": 1000,
        "size": 3,
        "clip": 1.0,
        "rate": 0.1,
        "count": 5,
        "noise": 4.0,
        "scheme": "poisson",
    }
    facts |= changed
    scheme = facts.pop("scheme")
    run = SubsampledRun(scheme, facts.pop("rate"), facts.pop("noise"), facts.pop("count"))
    return subsampled_sum(run, law="laplace", **facts)


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
def test_laplace_batches_cost_less_than_the_worst_of_their_amplified_epsilon(scheme):
    release = batches(scheme=scheme)
    with mpmath.workdps(50):
        ratio = 2 * mpmath.mpf(release.clip) / mpmath.mpf(release.scale)
        exact = amplified_by_hand(ratio, mpmath.mpf(0.1), scheme)
        assert exact <= mpmath.mpf(release.epsilon) <= exact * (1 + mpmath.mpf(1e-8))
        # No μ is less than what the total variation of a single one asks for.
        worst = 5 * pure_mu_squared(Fraction(release.epsilon))
        variation = mpmath.mpf(0.1) * (1 - mpmath.exp(-ratio / 2))
        assert 8 * mpmath.erfinv(variation) ** 2 <= mpmath.mpf(release.cost.mu_squared) <= 0.7 * worst
    assert release.cost.slack == 0.0
    assert release.variance == pytest.approx(4 * release.scale**2)
    run = SubsampledRun(scheme, 0.1, 4.0, 5)
    gaussian = subsampled_sum(run, statistic="gradient", n=1000, size=3, clip=1.0)
    assert gaussian.epsilon == np.inf
    with pytest.raises(ValueError, match="whole run"):
        _ = gaussian.cost


def test_sums_too_fine_for_integers_are_refused():
    with pytest.raises(ValueError, match="too large for exact sums"):
        batches(noise=1e-12, n=10**9)


@pytest.mark.parametrize(
    ("scheme", "one"), [("fixed", log1p(0.1 * (exp(0.5) - 1))), ("poisson", 2 * 0.1 * sinh(0.25))]
)
def test_the_second_opinion_has_the_same_epsilon_of_laplace_batches(scheme, one):
    told = second_opinion((batches(scheme=scheme), batches(scheme=scheme, count=2)), 0.0)
    assert told.epsilon == pytest.approx(7 * one, rel=1e-6 if scheme == "fixed" else 0.01)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("dim", [3, 20, 33])
def test_a_record_s_gradient_is_the_same_wherever_it_is_in_a_batch(classes, dim):
    """Even at weights so large that the rounding of a score is worth a whole gradient."""
    shape = LabelledMetadata(50, tuple(map(str, range(dim))), "y", tuple(map(str, range(classes))))
    feature_map = FeatureMap.of(shape, 1.0, intercept=True)
    loss = LogisticGradient(feature_map.size, classes)
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.standard_normal((50, dim)), rng.integers(0, classes, 50)])
    at = rng.standard_normal(loss.shape)
    at -= np.mean(np.atleast_2d(at), axis=0) if classes > 2 else 0.0
    x = feature_map.features(rows)
    at = 1e17 * (at - (np.atleast_2d(at) @ x[0] / (x[0] @ x[0]))[..., None] * x[0]).reshape(loss.shape)
    at = Classifier(feature_map, at)
    alone = [loss.clipped_sum(at, row[None], loss.longest) for row in rows]
    for size in range(1, 20):
        for begin in (0, 1, 5):
            batch = np.r_[1:size, 0, begin + size : 50]
            whole = loss.clipped_sum(at, rows[batch], loss.longest)
            np.testing.assert_allclose(whole, sum(alone[k] for k in batch), rtol=0, atol=1e-12)


def test_batches_that_differ_in_one_record_differ_by_what_is_certified():
    """Replaced, or another drawn in its place at any place in the batch, over three chunks, grid included."""
    n, m = 3 * CHUNK, 2 * CHUNK + 5
    shape = LabelledMetadata(n, ("a", "b"), "y", ("0", "1"))
    feature_map, loss = FeatureMap.of(shape, 1.0, intercept=False), LogisticGradient(2, 2)
    rng = np.random.default_rng(5)
    rows = np.column_stack([1e3 * rng.standard_normal((n, 2)), rng.integers(0, 2, n)])
    rows[0] = [1e9, 0.0, 1.0]
    rows[-1] = [1e9, 0.0, 0.0]
    at = Classifier(feature_map, np.array([-1e3, 0.0]))  # of the first all is lost: its gradient is 1 long
    release = batches(n=n, size=2, rate=m / n, noise=0.5, count=4)
    usual = np.arange(m)
    shifted = np.concatenate([np.arange(1, m), [n - 1]])
    replaced = rows.copy()
    replaced[0] = rows[-1]
    gate = Gate(Records(rows, threads=1), {"gradient": loss}, [release], ScriptedNoise(usual, shifted))
    other = Gate(Records(replaced, threads=1), {"gradient": loss}, [release], ScriptedNoise(usual))
    before, moved = (gate.mean(at) * release.divisor for _ in range(2))
    for after in (moved, other.mean(at) * release.divisor):
        assert 0.99 < np.linalg.norm(after - before) <= 2 * release.sensitivity
    # At the origin of weights both are half as long, and opposite.
    gate = Gate(Records(rows, threads=1), {"gradient": loss}, [release], ScriptedNoise(usual, shifted))
    before, moved = (gate.mean(Classifier(feature_map, np.zeros(2))) * release.divisor for _ in range(2))
    assert np.linalg.norm(moved - before) == pytest.approx(1.0, rel=1e-6)
