"""The cost computed again from the noise that was really drawn: never more than the plan says."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from privest import manifolds
from privest.data.metadata import PointsMetadata
from privest.data.records import CHUNK, Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.frechet_mean.losses import SquaredDistance, SquaredDistanceChange
from privest.privacy.accounting import PrivacyTarget, epsilon_for, mu_for
from privest.privacy.gate import Gate, GateExhaustedError
from privest.privacy.mechanisms import SampledSum, SubsampledRun, subsampled_sum
from privest.privacy.subsampling import certify
from testing.accounting import composed, drawn_laplace, exact_delta, taken_apart, within_request
from testing.noise import RecordedNoise, ScriptedNoise

MANIFOLDS = [{"name": "euclidean", "dim": 3}, {"name": "sphere", "dim": 3}, {"name": "spd", "dim": 2}]


def check(plan, drawn):
    """Fails where the draws, with a record worth twice the clip, cost more than was planned or asked."""
    assert drawn == [(r.noise, r.scale, r.size) for r in plan.releases for _ in range(r.count)]
    assert {size for _, _, size in drawn} == {plan.shape.space.coordinate_size}
    ratios = [Fraction(2) * Fraction(plan.clip) / Fraction(scale) for _, scale, _ in drawn]
    target = plan.target
    with mpmath.workdps(60):
        if target.delta == 0:
            assert {noise for noise, _, _ in drawn} == {"laplace"}
            assert sum(ratios) <= Fraction(target.epsilon)
            assert sum((Fraction(r.epsilon) for r in plan.releases), Fraction(0)) <= Fraction(target.epsilon)
            if target.epsilon < 50:
                spent = drawn_laplace([(r, size) for r, (_, _, size) in zip(ratios, drawn, strict=True)])
                assert spent <= mpmath.mpf(plan.cost.mu_squared)
        else:
            assert {noise for noise, _, _ in drawn} == {"gaussian"}
            assert sum(r**2 for r in ratios) <= Fraction(plan.cost.mu_squared)
            assert plan.cost.slack == 0.0
            stated = mpmath.sqrt(mpmath.mpf(plan.cost.mu_squared))
            assert exact_delta(target.epsilon, stated) <= mpmath.mpf(target.delta)


def run(plan, rows):
    spy = RecordedNoise()
    gate = Gate(Records(rows), plan.statistics, plan.releases, spy)
    answer = frechet_mean.run(plan, gate)
    assert gate.remaining == 0
    with pytest.raises(GateExhaustedError):
        gate.mean(answer)
    return answer, spy.drawn


@settings(max_examples=120, derandomize=True)
@given(
    manifold=st.sampled_from(MANIFOLDS),
    epsilon=st.floats(-3, 3).map(lambda e: 10.0**e),
    delta=st.just(0.0) | st.floats(-14, -0.1).map(lambda e: 10.0**e),
    n=st.integers(1, 60),
    radius=st.none() | st.sampled_from([1e-6, 0.3, 3.0]),
    steps=st.none() | st.integers(1, 40),
    clip=st.none() | st.floats(-3, 1).map(lambda e: 10.0**e),
)
def test_the_noise_drawn_pays_for_the_plan(manifold, epsilon, delta, n, radius, steps, clip):
    shape = PointsMetadata(n, manifold, radius=radius)
    plan = frechet_mean.plan(
        FrechetMeanSpec(diagnostics=False, steps=steps, clip=clip), shape, PrivacyTarget(epsilon, delta)
    )
    rng = np.random.default_rng(n)
    answer, drawn = run(plan, np.stack([shape.space.random_point(rng) for _ in range(n)]))
    check(plan, drawn)
    assert steps is None or len(drawn) == steps
    assert shape.space.belongs(answer)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-3, 1.0, 1e3, 1e5])
@pytest.mark.parametrize("delta", [0.0, 1e-300, 1e-14, 1e-6, 1e-3, 0.5])
def test_extreme_targets_are_covered_or_refused(epsilon, delta):
    shape = PointsMetadata(7, MANIFOLDS[2])
    target = PrivacyTarget(epsilon, delta)
    if epsilon < 1e-7 and 0 < delta < 1e-14:
        with pytest.raises(ValueError, match="float64"):
            frechet_mean.plan(FrechetMeanSpec(diagnostics=False), shape, target)
        return
    plan = frechet_mean.plan(FrechetMeanSpec(diagnostics=False), shape, target)
    rows = np.stack([shape.space.random_point(np.random.default_rng(k)) for k in range(7)])
    check(plan, run(plan, rows)[1])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_budget_is_used_up(delta):
    """Nothing is wasted either: the cost is that of the target within a millionth."""
    target = PrivacyTarget(1.0, delta, slack_per_mu_squared=0.0)
    plan = frechet_mean.plan(FrechetMeanSpec(diagnostics=False), PointsMetadata(1000, MANIFOLDS[0]), target)
    if delta:
        assert plan.cost.mu_squared == pytest.approx(mu_for(1.0, delta) ** 2, rel=1e-6)
        assert epsilon_for(plan.cost.mu_squared**0.5, delta) == pytest.approx(1.0, rel=1e-6)
    else:
        assert sum(r.epsilon for r in plan.releases) == pytest.approx(1.0, rel=1e-6)


def test_a_mutant_that_forgets_the_factor_two_is_caught():
    plan = frechet_mean.plan(
        FrechetMeanSpec(diagnostics=False, steps=4), PointsMetadata(9, MANIFOLDS[0]), PrivacyTarget(1.0, 1e-6)
    )
    half = [(noise, scale / 2, size) for noise, scale, size in run(plan, np.zeros((9, 3)))[1]]
    with pytest.raises(AssertionError):
        check(plan, half)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m["name"])
def test_neighbours_differ_at_the_gate_by_at_most_the_certified_sensitivity(manifold):
    """Chunks, blocks, grid and float sums included: one row of 9,000 replaced by its opposite."""
    n = 2 * CHUNK + 808
    shape = PointsMetadata(n, manifold)
    space, rng = shape.space, np.random.default_rng(8)
    steps = rng.standard_normal((n, space.coordinate_size))
    rows = space.exp_coordinates(space.reference, steps)
    plan = frechet_mean.plan(
        FrechetMeanSpec(diagnostics=False, clip=0.01, steps=1), shape, PrivacyTarget(1.0, 1e-6)
    )
    (release,) = plan.releases

    def exact(data):
        gate = Gate(Records(data), {"gradient": SquaredDistance(space)}, plan.releases, ScriptedNoise())
        return gate.mean(space.reference) * n

    before = exact(rows)
    for place in (0, CHUNK - 1, CHUNK, n - 1):
        neighbour = rows.copy()
        neighbour[place] = space.exp_coordinates(space.reference, -steps[place])
        moved = np.linalg.norm(exact(neighbour) - before)
        assert 1.99 * plan.clip < moved <= release.sensitivity * (1 + 1e-12)
        neighbour[place] = np.nan
        assert np.linalg.norm(exact(neighbour) - before) <= release.sensitivity / 2 + release.spacing * n


STOCHASTIC = [
    {"solver": "rsgd", "steps": 40, "rate": 0.1},
    {"solver": "rsgd", "sampling": "fixed", "steps": 40, "rate": 0.1},
    *(
        {"solver": "rsvrg", "sampling": scheme, "full_noise": full, "epochs": 2, "steps": 5, "restarts": 2,
         "rate": 0.05, "clip_change": 0.07}
        for scheme in ("poisson", "fixed")
        for full in ("epoch", "step")
    ),
]  # fmt: skip
each_stochastic = pytest.mark.parametrize(
    "options", STOCHASTIC, ids=lambda o: "-".join(str(v) for v in o.values() if isinstance(v, str))
)


def check_batches(plan, options, drawn):
    """Fails where the draws cost more than was planned or asked, with clips taken from the request."""
    whole, sampled = taken_apart(drawn)
    loops = options["epochs"] * options["restarts"] if options["solver"] == "rsvrg" else 0
    inner = loops * options["steps"] or options["steps"]
    assert len(sampled) == inner == plan.steps
    assert len(whole) == (loops if options.get("full_noise") != "step" else inner)
    assert {(noise, size) for _, (noise, _, size) in sampled} == {
        ("gaussian", plan.shape.space.coordinate_size)
    }
    ((kind, scale),) = {(batch, draw[1]) for batch, draw in sampled}
    n, rate, scheme = kind
    assert (n, scheme) == (plan.shape.n, options.get("sampling", "poisson"))
    assert rate == pytest.approx(options["rate"], abs=1 / n)
    ratios = [Fraction(2) * Fraction(plan.clip) / Fraction(scale) for _, scale, _ in whole]
    bound = options.get("clip_change", plan.clip)
    run = SubsampledRun(scheme, rate, scale / bound, inner)
    spent = sum(r**2 for r in ratios) + Fraction(certify((run,), plan.cost.slack).mu_squared) * (
        1 - Fraction(1, 10**6)
    )
    assert spent <= Fraction(plan.cost.mu_squared)
    assert 0 < plan.cost.slack < plan.target.delta
    with mpmath.workdps(60):
        stated = mpmath.sqrt(mpmath.mpf(plan.cost.mu_squared))
        total = mpmath.mpf(plan.cost.slack) + exact_delta(plan.target.epsilon, stated)
        assert total <= mpmath.mpf(plan.target.delta)
    return float(sum(r**2 for r in ratios)), run


@each_stochastic
@pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m["name"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (20.0, 1e-8)])
def test_the_noise_drawn_over_batches_pays_for_the_plan(options, manifold, epsilon, delta):
    shape = PointsMetadata(300, manifold, radius=1.0)
    plan = frechet_mean.plan(
        FrechetMeanSpec(diagnostics=False, **options), shape, PrivacyTarget(epsilon, delta)
    )
    rng = np.random.default_rng(3)
    answer, drawn = run(plan, np.stack([shape.space.random_point(rng) for _ in range(300)]))
    check_batches(plan, options, drawn)
    assert shape.space.belongs(answer)
    assert shape.space.dist(answer, shape.search_center) <= 1.0 + 1e-9


@pytest.mark.few(2)
@each_stochastic
def test_the_noise_drawn_over_batches_is_private_by_another_accountant(options):
    """dp-accounting, on its own grid: δ(ε) of full gradients and batches together, within the request."""
    shape, target = PointsMetadata(300, MANIFOLDS[0], radius=1.0), PrivacyTarget(2.0, 1e-5)
    plan = frechet_mean.plan(FrechetMeanSpec(diagnostics=False, **options), shape, target)
    full, batches = check_batches(plan, options, run(plan, np.zeros((300, 3)))[1])
    whole = composed(batches, 1e-3)
    if full:
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            full**-0.5, value_discretization_interval=1e-3
        )
        whole = whole.compose(gaussian._pmf_remove.to_dense_pmf())
    assert 0.2 * target.delta < whole.get_delta_for_epsilon(target.epsilon) <= target.delta


@pytest.mark.few(2)
@each_stochastic
def test_mutants_that_draw_too_little_noise_are_caught(options):
    shape = PointsMetadata(300, MANIFOLDS[0], radius=1.0)
    plan = frechet_mean.plan(FrechetMeanSpec(diagnostics=False, **options), shape, PrivacyTarget(1.0, 1e-6))
    drawn = run(plan, np.zeros((300, 3)))[1]
    check_batches(plan, options, drawn)
    less = [(e[0], e[1] * 0.95, e[2]) if isinstance(e[0], str) else e for e in drawn]
    more_often = [
        (n, rate, scheme) if isinstance(n, str) else (n, rate + 1 / 300, scheme) for n, rate, scheme in drawn
    ]
    for mutant in (less, more_often, drawn[:-2], [*drawn, drawn[-1]]):
        with pytest.raises((AssertionError, StopIteration)):
            check_batches(plan, options, mutant)


class Apart(SquaredDistanceChange):
    """The mutant of Utpala et al. 2023: both gradients clipped, then subtracted."""

    def clipped_sum(self, point, rows, clip):
        at, anchor = (SquaredDistance(self.manifold).clipped_sum(p, rows, clip) for p in point)
        return at - anchor


def change_of_one_record(statistic, release, pair, rows):
    """Norm of the change in a batch's sum, through the gate, if the last row is added."""
    everyone = range(len(rows))
    gate = Gate(Records(rows), {"change": statistic}, [release], ScriptedNoise(everyone[:-1], everyone))
    less, more = (gate.mean(pair, "change") * release.divisor for _ in range(2))
    return np.linalg.norm(more - less)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m["name"])
def test_a_change_of_gradients_is_clipped_as_one(manifold):
    """A record between point and anchor pulls them apart: 2C₁ where each gradient has its own clip."""
    space, n = manifolds.get(**manifold), 20
    rng = np.random.default_rng(1)
    release = subsampled_sum(
        SubsampledRun("poisson", 0.3, 3.0, 2),
        statistic="change",
        n=n,
        size=space.coordinate_size,
        clip=0.05,
    )
    worst = {SquaredDistanceChange: 0.0, Apart: 0.0}
    for _ in range(40):
        ends = rng.standard_normal((2, space.coordinate_size))
        at = space.random_point(rng)
        anchor = space.exp_coordinates(at, ends[0])
        middle = space.exp_coordinates(at, 0.5 * space.log_coordinates(at, anchor))
        rows = np.stack([*(space.random_point(rng) for _ in range(n - 1)), middle])
        for kind, before in worst.items():
            worst[kind] = max(before, change_of_one_record(kind(space), release, (at, anchor), rows))
    assert 0.9 * release.clip < worst[SquaredDistanceChange] <= release.sensitivity
    assert worst[Apart] > 1.7 * release.sensitivity


class ListeningGate(Gate):
    """A gate that writes down which statistic was asked for."""

    def mean(self, point, statistic="gradient"):
        self.asked = [*getattr(self, "asked", []), statistic]
        return super().mean(point, statistic)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m["name"])
@pytest.mark.parametrize("options", [{}, {"clip": 0.5}, {"clip": 2.0, "steps": 4}])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_drawn_pays_for_looks_at_distances_too(delta, options, manifold):
    """What a record is worth in each sum stands here by hand."""
    shape, target = PointsMetadata(200, manifold, radius=1.0), PrivacyTarget(1.0, delta)
    plan = frechet_mean.plan(FrechetMeanSpec(**options), shape, target)
    spy, rng = RecordedNoise(), np.random.default_rng(5)
    rows = np.stack([shape.space.random_point(rng) for _ in range(200)])
    gate = ListeningGate(Records(rows), plan.statistics, plan.releases, spy)
    assert FRECHET_MEAN.run(plan, gate).uncertainty is not None
    assert gate.remaining == 0
    pull = 4 * Fraction(plan.clip) ** 2
    squares = {"gradient": pull, "check": pull, "several-values": Fraction(4)}
    looks = [name for name in plan.statistics if name == "range" or name.endswith("distances")]
    # Independent Laplace noise pays for the L1 distance of two records, which count at two nodes.
    independent = {each.statistic for each in plan.releases if each.noise == "independent-laplace"}
    assert independent <= set(looks)
    squares |= {name: Fraction(4 if name in independent else 2) for name in looks}
    drifts = [name for name in plan.statistics if name.endswith(("-gradient", "-check", "-paths"))]
    squares |= dict.fromkeys(drifts, Fraction(4))
    spent = [
        squares[name] / Fraction(scale) ** 2
        for name, (_, scale, _) in zip(gate.asked, spy.drawn, strict=True)
    ]
    if plan.target.delta:
        assert 0.999 * plan.cost.mu_squared < sum(spent) <= Fraction(plan.cost.mu_squared)
        within_request(plan)
    else:  # Laplace noise is planned where it is the smaller, with a delta above 0 too
        assert 0.999 < sum(float(each) ** 0.5 for each in spent) <= 1.0


def test_early_releases_of_large_data_are_of_samples_and_paid_as_if_of_all_records():
    """The bill by hand takes every record to be in every sample. Far off the start, the mean is found."""
    n = 8 * 8 * CHUNK
    shape = PointsMetadata(n, {"name": "euclidean", "dim": 3}, radius=1000.0)
    plan = frechet_mean.plan(FrechetMeanSpec(), shape, PrivacyTarget(1.0, 1e-8))
    rows = np.random.default_rng(5).standard_normal((n, 3)) + np.array([300.0, 0.0, 0.0])
    spy = RecordedNoise(seed=7)
    gate = ListeningGate(Records(rows), plan.statistics, plan.releases, spy)
    found = FRECHET_MEAN.run(plan, gate)
    assert np.linalg.norm(found.point - rows.mean(axis=0)) < found.uncertainty.radius_95 < 2e-3
    whole, sampled = taken_apart(spy.drawn)
    assert [how for how, _ in sampled] == [(n, 1 / 8, "fixed")] * 7
    drawn = [*whole, *(noise for _, noise in sampled)]
    spent = sum((4 if size == 3 else 2) / Fraction(scale) ** 2 for _, scale, size in drawn)
    assert 0.999 * plan.cost.mu_squared < spent <= Fraction(plan.cost.mu_squared)
    within_request(plan)
    assert plan.cost.slack == 0.0


def test_samples_are_taken_where_they_save_time_alone():
    """All records are looked at where they are few, for little privacy budget, and with pure noise."""
    space = {"name": "spd", "dim": 11}
    for n, target in (
        (100_000, PrivacyTarget(1.0, 1e-6)),
        (1_000_000, PrivacyTarget(0.01, 1e-9)),
        (1_000_000, PrivacyTarget(1.0, 0.0)),
    ):
        plan = frechet_mean.plan(FrechetMeanSpec(), PointsMetadata(n, space), target)
        assert not any(isinstance(release, SampledSum) for release in plan.releases)
    plan = frechet_mean.plan(FrechetMeanSpec(), PointsMetadata(1_000_000, space), PrivacyTarget(1.0, 1e-9))
    samples = [release for release in plan.releases if isinstance(release, SampledSum)]
    assert len(samples) == 7
    assert sum(release.cost.mu_squared for release in samples) < 0.028 * plan.cost.mu_squared
