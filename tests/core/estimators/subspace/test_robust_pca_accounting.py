"""Robust PCA: the cost computed again from the noise that was really drawn, whatever the data, in every run.

What a record is worth in each sum is written here once more, by hand: see `PULL`.
"""

from fractions import Fraction
from functools import cache
from math import sqrt

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from pydantic import TypeAdapter

from privest.data.metadata import VectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import robust_pca
from privest.estimators.subspace.robust_pca import RobustPCAPlan, RobustPCASpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import SampledSum
from privest.privacy.subsampling import SubsampledRun, certify
from privest_papers.reaper import relaxed_rows
from testing.accounting import composed, label, recorded_run, taken_apart, within_request
from testing.noise import ScriptedNoise

N, DIM, RANK, BOUND = 300, 6, 2, 2.5
TARGET = PrivacyTarget(1.0, 1e-6)
BATCHES = {"rate": 0.1, "steps": 7}
FULL = [
    {},
    {"adaptive": False},
    *({"loss": loss, "steps": 5} for loss in ("absolute", "squared", "bounded", "redescending")),
    *({"start": start} for start in ("random", "analyze-gauss", "sketch", "reaper")),
    {"start": "reaper", "consensus": True, "halvings": 9},
    {"start": "analyze-gauss", "consensus": True, "steps": 4},
    {"start": "sketch", "consensus": True, "steps": 3, "center": True, "explained": True},
    {"center": True, "steps": 3},
    {"explained": True},
    *({"solver": solver, "steps": 6} for solver in ("gd-reaper", "md-reaper")),
    {"solver": "md-reaper", "center": True, "explained": True},
]
SAMPLED = [
    {"solver": solver, "sampling": sampling, **BATCHES, **more}
    for solver, more in [
        ("sggd", {}),
        ("sggd", {"consensus": True, "center": True, "explained": True, "start": "sketch"}),
        ("sgd-reaper", {"center": True}),
        ("smd-reaper", {"explained": True}),
    ]
    for sampling in ("poisson", "fixed")
] + [{"solver": "sggd", "rate": 1.0, "steps": 3}, {"solver": "smd-reaper"}]
REDUCED = [
    {"solver": "rsvrg", "loss": "squared", "sampling": sampling, "rate": 0.1, "epochs": 2, "steps": 3, **more}
    for sampling in ("poisson", "fixed")
    for more in ({}, {"start": "random"}, {"start": "sketch", "center": True, "explained": True})
]


full = pytest.mark.parametrize("options", FULL, ids=label)
either = pytest.mark.parametrize("options", [*FULL, *SAMPLED, *REDUCED], ids=label)


def squares_of_pulls(dim, rank):
    """How far one replaced record moves each exact sum, squared, and how long the summed vector is."""
    columns = min(dim, 4 * rank + 8)
    seen = min(Fraction(1), Fraction(9 * columns, 4 * dim))
    return {
        "location": (Fraction(BOUND) ** 2, dim),
        "moment": (Fraction(2), dim * (dim + 1) // 2),
        "sketch": (
            4 * seen * (1 - seen) if 3 * seen <= 1 else 2 * seen + (1 - seen) ** 2 / 2,
            dim * columns,
        ),
        "tilt": (Fraction(4 * (rank + 1)), (rank + 1) ** 2),
        "objective": (Fraction(2 * rank + 2), 2 * rank + 2),
        "wide-tilt": (Fraction(4 * (rank + 2)), (rank + 2) ** 2),
        "wide-objective": (Fraction(2 * rank + 4), 2 * rank + 4),
        "distances": (Fraction(2), 10),
        "look": (Fraction(2), dim * (dim + 1) // 2),
        "relaxed": (Fraction(2), relaxed_rows(dim, rank) * (relaxed_rows(dim, rank) + 1) // 2),
        "explained": (Fraction(min(rank, 2)), rank * (rank + 1) // 2),
    }


def plan_of(options, n=N, dim=DIM, rank=RANK, target=TARGET):
    shape = VectorsMetadata(n, dim, BOUND)
    return robust_pca.plan(RobustPCASpec(rank, **options), shape, target)


def run(plan, rows):
    return recorded_run(plan, rows, robust_pca.run)


def check(plan, asked, drawn):
    """Fails where the draws cost more than was planned or asked; returns full sums' cost, and batches."""
    dim, rank = plan.shape.dim, plan.rank
    relaxed = plan.solver in robust_pca.RELAXED
    pulls = squares_of_pulls(dim, rank)
    pulls["gradient"] = pulls["relaxed"] if relaxed else (Fraction(4), dim * rank)
    whole, batches = taken_apart(drawn)
    stochastic = plan.solver in robust_pca.STOCHASTIC
    on_batches = "change" if plan.epochs else "gradient"
    names = [name for name in asked if not (stochastic and name == on_batches)]
    assert len(names) == len(whole)
    assert len(asked) == len(whole) + len(batches) == plan.steps
    spent = Fraction(0)
    for name, (noise, scale, size) in zip(names, whole, strict=True):
        square, expected = pulls[name]
        assert (noise, size) == ("gaussian", expected)
        spent += square / Fraction(scale) ** 2
    sampled_run = None
    if stochastic:
        assert {(noise, size) for _, (noise, _, size) in batches} == {("gaussian", pulls["gradient"][1])}
        ((kind, scale),) = {(batch, draw[1]) for batch, draw in batches}
        n, rate, scheme = kind
        assert n == plan.shape.n
        apart = sqrt(2) * (1 + 1e-9) if relaxed else 2.0
        # C₁ is the plan's own choice, to which the gate keeps.
        bound = plan.releases[[r.statistic for r in plan.releases].index(on_batches)].clip
        assert bound == 1.0 or plan.epochs
        sampled_run = SubsampledRun(scheme, rate, scale / bound, len(batches), apart)
        certified = Fraction(certify((sampled_run,), plan.cost.slack).mu_squared)
        assert spent + certified * (1 - Fraction(1, 10**6)) <= Fraction(plan.cost.mu_squared)
        assert 0 < plan.cost.slack < plan.target.delta
    else:
        assert not batches
        assert plan.cost.slack == 0.0
        assert spent <= Fraction(plan.cost.mu_squared)
        assert float(spent) > (0.999 if plan.target.epsilon > 1e-4 else 0.9) * plan.cost.mu_squared
    within_request(plan)
    return float(spent), sampled_run


def ordinary(n=N, dim=DIM, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, dim))
    rows[: n // 2, RANK:] *= 0.05
    return rows


@either
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (30.0, 1e-9), (0.05, 1e-3)])
def test_the_noise_drawn_pays_for_the_plan(options, epsilon, delta):
    if options.get("solver") in robust_pca.STOCHASTIC and epsilon == 30.0:
        epsilon = 8.0
    plan = plan_of(options, target=PrivacyTarget(epsilon, delta))
    answer, asked, drawn = run(plan, ordinary())
    check(plan, asked, drawn)
    np.testing.assert_allclose(answer.basis.T @ answer.basis, np.eye(RANK), atol=1e-12)
    if "epochs" in options:
        assert asked.count("gradient") == options["epochs"]
        assert asked.count("change") == options["epochs"] * options["steps"]
    elif "steps" in options:
        assert asked.count("gradient") == options["steps"] == len(plan.step_sizes)
    assert (answer.center is not None) == ("center" in options) == ("location" in asked)
    # A second moment tells the shares of variance at no cost.
    assert ("explained" in asked) == ("moment" not in asked)
    assert np.all((answer.explained >= 0) & (answer.explained <= 1))
    assert np.all(np.diff(answer.explained) <= 0)
    if answer.center is not None:
        assert np.linalg.norm(answer.center) <= BOUND * (1 + 1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [*SAMPLED[:2], *SAMPLED[5:7], REDUCED[0], REDUCED[5]], ids=label)
def test_the_noise_drawn_is_private_by_another_accountant(options):
    """dp-accounting, on its own grid: δ(ε) of full sums and batches together, within the request."""
    target = PrivacyTarget(2.0, 1e-5)
    plan = plan_of(options, target=target)
    _, asked, drawn = run(plan, np.zeros((N, DIM)))
    spent, batches = check(plan, asked, drawn)
    whole = composed(batches, 1e-3)
    if spent:
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            spent**-0.5, value_discretization_interval=1e-3
        )
        whole = whole.compose(gaussian._pmf_remove.to_dense_pmf())
    assert 0.1 * target.delta < whole.get_delta_for_epsilon(target.epsilon) <= target.delta


@pytest.mark.parametrize("options", [FULL[9], SAMPLED[2], SAMPLED[5], REDUCED[2]], ids=label)
def test_mutants_that_draw_too_little_noise_are_caught(options):
    plan = plan_of(options)
    _, asked, drawn = run(plan, np.zeros((N, DIM)))
    check(plan, asked, drawn)
    less = [(e[0], e[1] * 0.95, e[2]) if isinstance(e[0], str) else e for e in drawn]
    narrow = [(e[0], e[1], e[2] - 1) if e[0] == "gaussian" else e for e in drawn]
    for mutant in (less, narrow, drawn[:-2], [*drawn, drawn[-1]]):
        with pytest.raises((AssertionError, StopIteration, ValueError)):
            check(plan, asked, mutant)


def degenerate():
    """Data of which some solver might have no opinion: none of them may stop a run or cost it more."""
    rng = np.random.default_rng(7)
    rows = ordinary()
    yield "zeros", np.zeros((N, DIM))
    yield "one row", np.tile(rows[0], (N, 1))
    yield "equal columns", np.ones((N, DIM))
    yield "constant columns", rows * np.array([1, 1, 1, 0, 0, 0]) + np.array([0, 0, 0, 1e6, 0, 0])
    yield "outliers", np.where(np.arange(N)[:, None] % 3 == 0, 1e150, rows)
    yield "no numbers", np.where(rng.random((N, DIM)) < 0.3, np.nan, rows)
    yield "infinite", np.where(rng.random((N, DIM)) < 0.3, -np.inf, rows)
    yield "huge and denormal", rows * 10.0 ** rng.uniform(-320, 300, (N, 1))
    yield "a line", rows[:, :1] * rows[:1]


DATA = dict(degenerate())


@cache
def plan_of_hardly_any_noise(*options):
    """One plan for all data, so that these are seen as they are."""
    target = PrivacyTarget(8.0 if "rate" in dict(options) else 1e3, 1e-6)
    return plan_of(dict(options), target=target)


@pytest.mark.few(48)
@pytest.mark.parametrize(
    "options", [FULL[0], *FULL[8:10], *FULL[12:], *SAMPLED[:5:2], SAMPLED[6], *REDUCED[:3]], ids=label
)
@pytest.mark.parametrize("kind", DATA)
def test_no_data_stop_a_run_or_change_what_it_releases(options, kind):
    plan = plan_of_hardly_any_noise(*options.items())
    answer, asked, drawn = run(plan, DATA[kind])
    check(plan, asked, drawn)
    assert np.isfinite(answer.basis).all()
    np.testing.assert_allclose(answer.basis.T @ answer.basis, np.eye(RANK), atol=1e-10)
    assert sorted(asked) == sorted(r.statistic for r in plan.releases for _ in range(r.count))


@pytest.mark.parametrize("options", [{}, {"solver": "md-reaper"}, {"center": True, "explained": True}])
@pytest.mark.parametrize(("n", "dim", "rank"), [(2, 2, 1), (3, 20, 2), (6, 6, 5)])
def test_the_least_number_of_records_is_enough(options, n, dim, rank):
    plan = plan_of(options, n=n, dim=dim, rank=rank)
    answer, asked, drawn = run(plan, np.random.default_rng(n).standard_normal((n, dim)))
    check(plan, asked, drawn)
    assert answer.basis.shape == (dim, rank)


@pytest.mark.parametrize("options", [*FULL[10:12], FULL[15], *SAMPLED[::3], REDUCED[1]], ids=label)
def test_a_plan_that_went_through_json_runs_the_same(options):
    plan, rows = plan_of(options), ordinary()
    adapter = TypeAdapter(RobustPCAPlan)
    again = adapter.validate_json(adapter.dump_json(plan))
    assert again == plan
    assert [type(r) for r in again.releases] == [type(r) for r in plan.releases]
    answers = [
        robust_pca.run(p, Gate(Records(rows, threads=1), p.statistics, p.releases, ScriptedNoise()))
        for p in (plan, again)
    ]
    np.testing.assert_array_equal(answers[0].basis, answers[1].basis)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("delta", [1e-14, 1e-6, 0.5])
@pytest.mark.parametrize("options", [{}, {"start": "sketch", "center": True}, {"solver": "gd-reaper"}])
def test_extreme_targets_are_covered_or_refused(options, epsilon, delta):
    plan = plan_of(options, target=PrivacyTarget(epsilon, delta))
    answer, asked, drawn = run(plan, ordinary())
    check(plan, asked, drawn)
    assert np.isfinite(answer.basis).all()


def test_the_sketch_s_clip_is_that_of_the_plan():
    """The one clip that follows from a shape: 1.5·√(columns/dim), and not quite twice that is paid for."""
    plan = plan_of({"start": "sketch"}, dim=400)
    (release,) = [r for r in plan.releases if r.statistic == "sketch"]
    assert release.clip == pytest.approx(1.5 * sqrt(16 / 400))
    assert release.diameter == pytest.approx(2 * release.clip * sqrt(1 - release.clip**2))


@pytest.mark.parametrize(
    "options",
    [*({"solver": solver} for solver in ("gd-reaper", "smd-reaper")), {"start": "reaper"}],
    ids=label,
)
def test_relaxations_of_wide_rows_cost_what_is_planned(options):
    """Above 300 columns REAPER keeps within the span of a sketch, which is asked for first."""
    plan = plan_of(options, n=60, dim=310)
    answer, asked, drawn = run(plan, ordinary(60, 310))
    check(plan, asked, drawn)
    assert asked[0] == "sketch"
    assert answer.basis.shape == (310, RANK)


def test_decisions_look_at_samples_where_they_save_time_alone():
    """They look at all records where these are few, and for little privacy budget."""
    decisions = {"wide-tilt", "wide-objective", "tilt", "objective", "distances"}
    for n, epsilon, looked in ((200_000, 1.0, set()), (1_000_000, 0.001, set()), (1_000_000, 1.0, decisions)):
        target = PrivacyTarget(epsilon, 1e-9)
        plan = robust_pca.plan(RobustPCASpec(rank=3), VectorsMetadata(n, 20), target)
        samples = [release for release in plan.releases if isinstance(release, SampledSum)]
        assert {release.statistic for release in samples} == looked
        assert sum(release.cost.mu_squared for release in samples) < 0.021 * plan.cost.mu_squared
        assert plan.cost.mu_squared <= mu_for(epsilon, 1e-9) ** 2
