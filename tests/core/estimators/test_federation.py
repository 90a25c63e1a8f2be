"""Several owners in one run: each one's cost from its own noise, weights, and what can be known of whom."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import sqrt

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from privest.data.metadata import LabelledMetadata, PartialVectorsMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators import federation
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.linear_model import classifier_score, logistic_regression
from privest.estimators.linear_model.classifier_score import ScoreSpec
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.subspace import matrix_completion, robust_pca
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import NoisySum, SubsampledSum
from privest.privacy.oracle import Oracle
from privest.privacy.subsampling import SubsampledRun, certify
from testing.accounting import exact_delta
from testing.noise import RecordedNoise, ScriptedNoise

VECTORS = VectorsMetadata(1, 6)
SPHERE = PointsMetadata(1, {"name": "sphere", "dim": 4}, radius=1.0)
SPD = PointsMetadata(1, {"name": "spd", "dim": 2}, radius=1.0)
PARTIAL = PartialVectorsMetadata(1, 8, 0.6)
LABELLED = LabelledMetadata(1, ("a", "b"), "y", ("0", "1"), 1.0)
ONE_FEATURE = LabelledMetadata(1, ("a",), "y", ("0", "1"), 1.0)

GAUSSIAN = [
    (frechet_mean, FrechetMeanSpec(diagnostics=False), SPD),
    (frechet_mean, FrechetMeanSpec(diagnostics=False, steps=4, local_steps=3), SPHERE),
    (robust_pca, RobustPCASpec(2), VECTORS),
    (robust_pca, RobustPCASpec(2, loss="squared"), VECTORS),
    (robust_pca, RobustPCASpec(2, loss="absolute", start="random", steps=3, local_steps=4), VECTORS),
    (robust_pca, RobustPCASpec(2, steps=5, turns=2), VECTORS),
    (robust_pca, RobustPCASpec(2, steps=4, local_steps=3, server_step=2.0, turns=3), VECTORS),
    (robust_pca, RobustPCASpec(2, center=True, explained=True, consensus=True, steps=3), VECTORS),
    (robust_pca, RobustPCASpec(2, solver="md-reaper", steps=4), VECTORS),
    (matrix_completion, MatrixCompletionSpec(2), PARTIAL),
    (matrix_completion, MatrixCompletionSpec(2, steps=3, local_steps=4), PARTIAL),
    (matrix_completion, MatrixCompletionSpec(2, steps=8, local_steps=2, turns=3), PARTIAL),
    (logistic_regression, LogisticSpec(), LABELLED),
    (logistic_regression, LogisticSpec(solver="newton"), LABELLED),
    (logistic_regression, LogisticSpec(solver="nag", steps=5, sampling_errors=True), LABELLED),
    (logistic_regression, LogisticSpec(loss="sigmoid"), LABELLED),
    (logistic_regression, LogisticSpec(loss="logistic-nonconvex", intercept=False), ONE_FEATURE),
    (classifier_score, ScoreSpec([1.0, -1.0], 0.5), LABELLED),
    (classifier_score, ScoreSpec([1.0, -1.0], 0.5, metric="auc"), LABELLED),
]
BATCHES = [
    (frechet_mean, FrechetMeanSpec(diagnostics=False, solver="rsgd", rate=0.1, steps=20), SPD),
    (
        frechet_mean,
        FrechetMeanSpec(diagnostics=False, solver="rsvrg", rate=0.1, steps=4, sampling="fixed"),
        SPD,
    ),
    (robust_pca, RobustPCASpec(2, solver="sggd", rate=0.1, steps=5, local_steps=2), VECTORS),
    (robust_pca, RobustPCASpec(2, solver="sggd", rate=0.1, steps=5, local_steps=2, turns=2), VECTORS),
    (robust_pca, RobustPCASpec(2, solver="rsvrg", loss="squared", rate=0.1, epochs=2, steps=3), VECTORS),
    (logistic_regression, LogisticSpec(solver="nag-opt", steps=20, batch_size=40), LABELLED),
]
PURE = [
    (frechet_mean, FrechetMeanSpec(diagnostics=False), SPD),
    (frechet_mean, FrechetMeanSpec(diagnostics=False, steps=4, local_steps=3), SPHERE),
    (logistic_regression, LogisticSpec(solver="clipped"), LABELLED),
    (logistic_regression, LogisticSpec(solver="nag", steps=5, batch_size=40), LABELLED),
    (classifier_score, ScoreSpec([1.0, -1.0], 0.5), LABELLED),
    (classifier_score, ScoreSpec([1.0, -1.0], 0.5, metric="auc"), LABELLED),
]
TURNS = [case for case in [*GAUSSIAN, *BATCHES] if getattr(case[1], "turns", 1) > 1]
COUNTS = (150, 400, 220)
TARGETS = [PrivacyTarget(0.3, 1e-6), PrivacyTarget(1.0, 1e-5), PrivacyTarget(3.0, 1e-7)]


def named(case):
    module, spec, _ = case
    chosen = {k: v for k, v in vars(spec).items() if v != getattr(type(spec), k, None)}
    return "-".join(map(str, (module.__name__.rpartition(".")[2], *chosen.values())))


def planned(case, targets=TARGETS, counts=COUNTS):
    module, spec, shape = case
    shapes = [replace(shape, n=n) for n in counts]
    return federation.plan(partial(module.plan, spec), shapes, targets)


def rows_for(plan, seed=0):
    rng = np.random.default_rng(seed)
    return [shape.dummy(shape.n, rng) for shape in plan.shapes]


def gates_over(plan, rows, noises=None):
    return [
        Gate(Records(own, threads=1), plan.statistics, part.releases, noise)
        for own, part, noise in zip(rows, plan.parts, noises or [None] * len(rows), strict=True)
    ]


def pure(target):
    return PrivacyTarget(target.epsilon, 0.0)


@pytest.mark.parametrize(
    ("case", "targets"),
    [*((case, TARGETS) for case in GAUSSIAN), *((case, list(map(pure, TARGETS))) for case in PURE)],
    ids=lambda it: named(it) if isinstance(it, tuple) else "pure" if it[0].delta == 0 else "gaussian",
)
def test_each_owner_spends_no_more_than_it_allows_by_the_noise_that_its_gate_drew(case, targets):
    module = case[0]
    plan = planned(case, targets)
    spies = [RecordedNoise() for _ in COUNTS]
    gates = gates_over(plan, rows_for(plan), spies)
    federation.run(plan, module.run, gates)
    if module is classifier_score:  # it has Laplace noise, and no δ, where budgets add up
        targets = [*map(pure, targets)]
    for part, gate, spy, target in zip(plan.parts, gates, spies, targets, strict=True):
        assert gate.remaining == 0
        assert part.target == target
        releases = [r for r in part.releases for _ in range(r.count)]
        drawn = [it for it in spy.drawn if isinstance(it[0], str)]
        assert sorted(drawn) == sorted((r.noise, r.scale, r.size) for r in releases)
        if target.delta == 0:
            spent = sum((Fraction(r.epsilon) for r in releases), Fraction(0))
            assert spent <= Fraction(target.epsilon)
            assert spent > Fraction(target.epsilon) * (1 - Fraction(1, 10**6))
            continue
        # By hand: how far one record moves a sum, over the noise that was drawn.
        spent = sum((Fraction(r.diameter) / Fraction(r.scale)) ** 2 for r in releases)
        assert spent <= Fraction(part.cost.mu_squared)
        assert part.cost.slack == 0.0
        with mpmath.workdps(60):
            stated = mpmath.sqrt(mpmath.mpf(part.cost.mu_squared))
            assert exact_delta(target.epsilon, stated) <= mpmath.mpf(target.delta)
        assert float(spent) > mu_for(target.epsilon, target.delta) ** 2 * (1 - 1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("case", BATCHES, ids=named)
def test_batches_of_each_owner_have_a_certificate_of_their_own(case):
    module = case[0]
    plan = planned(case)
    spies = [RecordedNoise() for _ in COUNTS]
    federation.run(plan, module.run, gates_over(plan, rows_for(plan), spies))
    for part, spy, target in zip(plan.parts, spies, TARGETS, strict=True):
        batches = [r for r in part.releases if isinstance(r, SubsampledSum)]
        full = sum(r.cost.mu_squared for r in part.releases if isinstance(r, NoisySum))
        runs = tuple(
            SubsampledRun(r.scheme, r.rate, r.scale / r.sensitivity * (1 - 1e-9), r.count) for r in batches
        )
        drawn = [it for it in spy.drawn if isinstance(it[0], str)]
        assert sorted(drawn) == sorted(
            (r.noise, r.scale, r.size) for r in part.releases for _ in range(r.count)
        )
        assert {it for it in spy.drawn if not isinstance(it[0], str)} == {
            (part.n, r.rate, r.scheme) for r in batches
        }
        again = certify(runs, part.cost.slack)
        assert full + again.mu_squared <= part.cost.mu_squared * (1 + 1e-3)
        with mpmath.workdps(40):
            spent = mpmath.mpf(part.cost.slack) + exact_delta(target.epsilon, sqrt(part.cost.mu_squared))
            assert spent <= mpmath.mpf(target.delta)
        assert part.cost.mu_squared > 0.95 * mu_for(target.epsilon, target.delta - part.cost.slack) ** 2


@pytest.mark.few(7)
@pytest.mark.parametrize("case", [it for it in [*GAUSSIAN, *BATCHES] if it not in TURNS], ids=named)
def test_all_gates_together_have_the_noise_that_the_course_was_planned_for(case):
    plan = planned(case)
    for k, release in enumerate(plan.course.releases):
        parts = [part.releases[k] for part in plan.parts]
        assert {(r.statistic, r.count, r.clip, r.size) for r in parts} == {
            (release.statistic, release.count, release.clip, release.size)
        }
        pooled = sqrt(sum((w * r.deviation) ** 2 for w, r in zip(plan.weights, parts, strict=True)))
        # The noise of batches is not in proportion to 1/μ, and their slack not counted by the course.
        error = 0.25 if isinstance(release, SubsampledSum) else 1e-4 if case in BATCHES else 1e-6
        assert pooled == pytest.approx(release.deviation, rel=error)


@pytest.mark.parametrize("case", TURNS, ids=named)
def test_owners_that_take_turns_have_less_noise_for_the_same_price(case):
    """Turns are public and so amplify nothing: an owner's budget goes to the rounds that are its own."""
    plan, everyone = planned(case), planned((case[0], replace(case[1], turns=1), case[2]))
    rounds, local_steps = case[1].steps, case[1].local_steps
    for place, (part, whole) in enumerate(zip(plan.parts, everyone.parts, strict=True)):
        own = [number for number in range(rounds) if number in (0, *range(place, rounds, case[1].turns))]
        counts = [sum(r.count for r in it.releases if r.statistic == "gradient") for it in (part, whole)]
        assert counts == [len(own) * local_steps, rounds * local_steps]
        assert part.cost.mu_squared == pytest.approx(whole.cost.mu_squared, rel=0.03)
        noise = [next(r.deviation for r in it.releases if r.statistic == "gradient") for it in (part, whole)]
        if case in GAUSSIAN and case[0] is robust_pca:
            assert noise[0] == pytest.approx(noise[1] * sqrt(len(own) / rounds), rel=1e-6)
        assert noise[0] < noise[1]


@pytest.mark.parametrize("case", TURNS, ids=named)
def test_nobody_takes_turns_that_nobody_takes_part_in(case):
    with pytest.raises(ValueError, match="ask for fewer turns"):
        planned((case[0], replace(case[1], turns=4), case[2]))


def test_a_thing_asked_of_one_gate_and_of_several_alike_costs_root_of_their_number():
    """k owners of n records at ε, against all kn records at the same ε: √k times the noise."""
    spec = RobustPCASpec(2, loss="squared")
    alone = robust_pca.plan(spec, VectorsMetadata(5000, 6), PrivacyTarget(1.0, 1e-6))
    plan = planned((robust_pca, spec, VECTORS), [PrivacyTarget(1.0, 1e-6)] * 10, [500] * 10)
    np.testing.assert_allclose(plan.weights, 0.1, rtol=1e-12)
    ratio = plan.course.releases[0].deviation / alone.releases[0].deviation
    assert ratio == pytest.approx(sqrt(10), rel=1e-6)


def risk(weights, counts, noise, unlike=0.5):
    shares = counts / counts.sum()
    return np.sum(weights**2 * noise) + unlike**2 * np.sum((weights - shares) ** 2)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e2])
def test_weights_are_those_of_least_risk(scale):
    counts, noise = np.array([100.0, 400.0, 50.0, 50.0]), scale * np.array([1.0, 0.2, 0.01, 1.0])
    found = federation._weights(counts, noise)
    assert found.sum() == pytest.approx(1.0, abs=1e-15)
    assert (found > 0).all()

    def of(free):
        return risk(np.append(free, 1 - free.sum()), counts, noise)

    best = minimize(of, np.full(3, 0.25), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-16})
    assert risk(found, counts, noise) <= best.fun * (1 + 1e-6)


def test_weights_go_from_shares_of_records_to_inverse_variances():
    counts = np.array([100.0, 300.0])
    np.testing.assert_allclose(
        federation._weights(counts, 1e-9 * np.array([9.0, 1.0])), [0.25, 0.75], rtol=1e-6
    )
    np.testing.assert_allclose(federation._weights(counts, 1e9 * np.array([9.0, 1.0])), [0.1, 0.9], rtol=1e-6)
    by_epsilon = [
        planned(GAUSSIAN[2], [PrivacyTarget(1.0, 1e-6), PrivacyTarget(e, 1e-6)], [300, 300]).weights[1]
        for e in (0.1, 0.5, 1.0, 2.0, 8.0)
    ]
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[2] == pytest.approx(0.5)


class Recorded(Oracle):
    """A gate whose answers are kept, or given again without it: what the others see of an owner."""

    def __init__(self, gate=None, answers=()):
        self.gate, self.answers, self.asked = gate, list(answers), 0

    @property
    def remaining(self):
        return self.gate.remaining if self.gate else len(self.answers) - self.asked

    def mean(self, point, statistic="gradient"):
        if self.gate:
            self.answers.append(self.gate.mean(point, statistic))
        self.asked += 1
        return self.answers[self.asked - 1]

    def pick(self, count):
        return count - 1


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("case", "targets"),
    [
        *((case, TARGETS) for case in [*GAUSSIAN, *BATCHES]),
        *((case, list(map(pure, TARGETS))) for case in PURE),
    ],
    ids=lambda it: named(it) if isinstance(it, tuple) else "pure" if it[0].delta == 0 else "gaussian",
)
def test_of_an_owner_nothing_counts_but_what_its_gate_released(case, targets):
    """The gate's answers in place of the gate give the same estimate to the last bit, without any row."""
    module = case[0]
    plan = planned(case, targets)
    rows = rows_for(plan)
    gates = [Recorded(gate) for gate in gates_over(plan, rows)]
    told = federation.run(plan, module.run, gates)
    heard = [Recorded(answers=gate.answers) for gate in gates]
    again = federation.run(plan, module.run, heard)
    assert repr(told) == repr(again)
    assert [gate.asked for gate in heard] == [sum(r.count for r in part.releases) for part in plan.parts]


@pytest.mark.parametrize("case", [*GAUSSIAN[:6], BATCHES[2]], ids=named)
def test_what_is_asked_of_whom_does_not_depend_on_rows(case):
    module = case[0]
    plan = planned(case)
    counts = set()
    for worst in (None, 0.0, 1e300, np.nan):
        rows = rows_for(plan, seed=3)
        if worst is not None:
            rows[1] = rows[1].copy()
            rows[1][0] = worst
        gates = [Recorded(gate) for gate in gates_over(plan, rows)]
        answer = federation.run(plan, module.run, gates)
        assert "nan" not in repr(answer)
        counts.add(tuple(gate.asked for gate in gates))
    assert len(counts) == 1


def test_datasets_that_do_not_go_together_are_refused():
    one = partial(robust_pca.plan, RobustPCASpec(2))
    target = PrivacyTarget(1.0, 1e-6)
    for other, fields in (
        (VectorsMetadata(50, 7), "dim"),
        (VectorsMetadata(50, 6, 2.0), "norm_bound"),
        (PointsMetadata(50, {"name": "sphere", "dim": 6}), "dim, manifold, norm_bound"),
    ):
        with pytest.raises(ValueError, match=f"these differ in {fields}"):
            federation.plan(one, [VectorsMetadata(100, 6), VectorsMetadata(80, 6), other], [target] * 3)
    mean = partial(frechet_mean.plan, FrechetMeanSpec(diagnostics=False))
    with pytest.raises(ValueError, match=r"delta must be 0 for all .* number 2, by default"):
        federation.plan(mean, [SPD, SPD], [target, pure(target)])


def test_what_all_guarantees_are_together_is_said():
    """A person with a record in every dataset loses the sum of all μ² and of all δ."""
    plan = planned(GAUSSIAN[2], [PrivacyTarget(1.0, 1e-6)] * 4, [300] * 4)
    (told,) = [it for it in plan.warnings if "every one" in it]
    epsilon = float(told.split("epsilon ")[1].split()[0])
    together = sqrt(4 * plan.parts[0].cost.mu_squared)
    with mpmath.workdps(40):
        assert exact_delta(epsilon * 1.01, together) <= 4e-6 <= exact_delta(epsilon * 0.99, together)
    plan = planned(PURE[0], [PrivacyTarget(0.5, 0.0)] * 4, [300] * 4)
    assert "epsilon 2 at delta 0" in plan.warnings[-1]
    weak = planned(GAUSSIAN[2], [PrivacyTarget(1.0, 1e-6), PrivacyTarget(1.0, 0.01)], [300, 300])
    assert [it for it in weak.warnings if it.startswith("dataset 2: delta")]


@pytest.mark.few(1)
@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_sampling_errors_are_those_of_weighted_records(metric):
    """Over 300 draws of the rows without noise, the stated error is within 15 % of their spread.

    The test fails wrongly with probability 2e-4.
    """
    spec = ScoreSpec([2.0], 0.0, metric=metric)
    least, n = 0.005 if metric == "accuracy" else 0.02, 1000
    targets = [PrivacyTarget(least, 1e-6, 0.0), PrivacyTarget(3.0, 1e-6, 0.0)]
    plan = planned((classifier_score, spec, ONE_FEATURE), targets, [n, n])
    assert 0.02 < plan.weights[0] < 0.25
    rng = np.random.default_rng(2)

    def rows():
        y = 1.0 * (rng.random(n) < 0.5)
        return np.column_stack([y + rng.standard_normal(n) - 0.5, y])

    noises = [ScriptedNoise(), ScriptedNoise()]
    found = [
        federation.run(plan, classifier_score.run, gates_over(plan, [rows(), rows()], noises))
        for _ in range(300)
    ]
    told = np.mean([score.sampling_error for score in found])
    assert np.std([score.value for score in found]) == pytest.approx(told, rel=0.15)


def test_who_asks_is_told_that_an_answer_leans():
    uneven = planned(GAUSSIAN[2], [PrivacyTarget(0.1, 1e-6), PrivacyTarget(3.0, 1e-6)], [300, 300])
    (told,) = [it for it in uneven.warnings if "leans" in it]
    assert f"number 1 has 50% of the records and {uneven.weights[0]:.0%} of the weight" in told
    even = planned(GAUSSIAN[2], [PrivacyTarget(1.0, 1e-6)] * 2, [300, 300])
    assert not [it for it in even.warnings if "leans" in it]


def test_the_noise_of_uneven_budgets_is_between_that_of_even_ones():
    """Owners with ε = .3, 1 and 3: each pays its own, for an answer between those at .3 and at 3."""
    few, both, many = (
        planned(GAUSSIAN[3], [PrivacyTarget(e, 1e-6) for e in epsilons], [300] * 3)
        for epsilons in ((0.3,) * 3, (0.3, 1.0, 3.0), (3.0,) * 3)
    )
    deviations = [plan.course.releases[0].deviation for plan in (many, both, few)]
    assert deviations == sorted(deviations)
    assert [part.target.epsilon for part in both.parts] == [0.3, 1.0, 3.0]


def test_the_whole_is_as_private_as_its_least_private_part():
    plan = planned(GAUSSIAN[2])
    assert plan.target == PrivacyTarget(3.0, 1e-5)
    assert plan.cost.mu_squared == max(part.cost.mu_squared for part in plan.parts)
    assert plan.releases == plan.parts[2].releases


def test_answers_are_weighed_as_planned():
    """A mean in a plane with almost no noise is the weighted mean of the owners' means."""
    plane = PointsMetadata(1, {"name": "euclidean", "dim": 2}, radius=4.0)
    targets = [PrivacyTarget(1e4, 1e-6), PrivacyTarget(1e6, 1e-6)]
    plan = planned((frechet_mean, FrechetMeanSpec(diagnostics=False), plane), targets, [100, 300])
    rows = [np.tile([1.0, 0.0], (100, 1)), np.tile([0.0, 1.0], (300, 1))]
    found = federation.run(plan, frechet_mean.run, gates_over(plan, rows))
    np.testing.assert_allclose(found, plan.weights, atol=0.01)
    assert abs(plan.weights[0] - 0.25) < 0.05


@pytest.mark.parametrize(
    ("case", "counts", "targets"),
    [
        (GAUSSIAN[0], [23, 166], [PrivacyTarget(199.0, 6e-14), PrivacyTarget(2.3e-6, 7e-9)]),
        (GAUSSIAN[0], [100, 100], [PrivacyTarget(1.0, 1e-6), PrivacyTarget(1e-6, 1e-9)]),
        (PURE[0], [2434, 111, 11], [PrivacyTarget(e, 0.0) for e in (2688.0, 0.001, 0.012)]),
    ],
)
def test_owners_who_allow_next_to_nothing_hinder_nobody(case, counts, targets):
    plan = planned(case, targets, counts)
    for part, target in zip(plan.parts, targets, strict=True):
        assert part.target == target
    assert max(plan.weights) > 0.999


def test_what_float64_cannot_carry_is_refused_in_words():
    for epsilons in ([1e300, 1e300], [1e170, 1e170], [1e-200, 1e-200]):
        targets = [PrivacyTarget(epsilon, 0.0) for epsilon in epsilons]
        with pytest.raises(ValueError, match=r"epsilon|privacy"):
            planned(PURE[0], targets, [100, 100])


@pytest.mark.parametrize(
    ("module", "spec", "shape"),
    [
        (frechet_mean, FrechetMeanSpec(diagnostics=False, local_steps=1_000_000), SPHERE),
        (frechet_mean, FrechetMeanSpec(diagnostics=False, local_steps=1_000, steps=1_000), SPHERE),
        (robust_pca, RobustPCASpec(2, loss="absolute", local_steps=10_000), VECTORS),
        (robust_pca, RobustPCASpec(2, local_steps=200), VectorsMetadata(10**6, 100)),
        (matrix_completion, MatrixCompletionSpec(2, local_steps=1_000), PARTIAL),
    ],
)
def test_local_steps_pass_by_no_limit(module, spec, shape):
    with pytest.raises(ValueError, match="steps"):
        module.plan(spec, replace(shape, n=max(shape.n, 500)), PrivacyTarget(1.0, 1e-6))


@pytest.mark.parametrize(
    ("case", "owners", "n", "words"),
    [
        (
            (robust_pca, RobustPCASpec(50, loss="squared", start="random", steps=10, local_steps=900)),
            100,
            40,
            "ask for fewer steps",
        ),
        (
            (frechet_mean, FrechetMeanSpec(diagnostics=False, solver="rsgd", steps=30_000)),
            50,
            1000,
            "ask for fewer steps",
        ),
        (
            (logistic_regression, LogisticSpec(solver="nag-opt", batch_size=256, steps=50)),
            60,
            300,
            "name fewer",
        ),
    ],
    ids=lambda it: it[0].__name__.rpartition(".")[2] if isinstance(it, tuple) else "",
)
def test_what_is_quick_for_one_dataset_is_refused_for_too_many(case, owners, n, words):
    shapes = {robust_pca: VectorsMetadata(1, 1000), frechet_mean: SPD, logistic_regression: LABELLED}
    counts = [n + place for place in range(owners)]
    with pytest.raises(ValueError, match=words):
        planned((*case, shapes[case[0]]), [PrivacyTarget(1.0, 1e-4)] * owners, counts)


def test_plans_over_many_datasets_stay_small():
    with pytest.raises(ValueError, match="too many noisy sums"):
        planned(
            (frechet_mean, FrechetMeanSpec(diagnostics=False, steps=1000), SPHERE),
            TARGETS[:1] * 11,
            [300] * 11,
        )
    plan = planned(GAUSSIAN[0], TARGETS[:1] * 100, [300] * 100)
    assert len(plan.parts) == 100
    assert not hasattr(plan.parts[0], "center")


def test_an_owner_is_told_of_its_own_weak_delta():
    plan = planned(GAUSSIAN[2], [PrivacyTarget(1.0, 1e-6), PrivacyTarget(1.0, 0.01)], [300, 300])
    assert plan.parts[0].warnings == ()
    assert "delta is at least 1/n" in plan.parts[1].warnings[0]
