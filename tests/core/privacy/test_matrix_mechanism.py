"""Streams: noise with the stated variance, sums of the stated sensitivity, and each record in one leaf."""

from fractions import Fraction
from math import comb, log2, sqrt

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.stats import chi2

from privest.data.records import CHUNK, Records
from privest.privacy.accounting import PrivacyTarget, epsilon_for, gaussian_delta
from privest.privacy.budget import cost_of_all, cost_of_runs, describe_mechanism
from privest.privacy.clipped_sums import clipped_sum
from privest.privacy.gate import Gate, GateExhaustedError
from privest.privacy.matrix_mechanism import (
    _COVER,
    PrefixSums,
    coefficients,
    column,
    left_row,
    nodes,
    prefix_sums,
    variance_of_total,
    variances,
)
from privest.privacy.mechanisms import Release, noisy_sum
from privest_papers.nonconvex_losses import ClippedGradient, ClippedHessian
from privest_papers.spider_schedule import _LONGEST
from testing.noise import RecordedNoise, ScaledNoise, ScriptedNoise

RUN = settings(derandomize=True, max_examples=60)
BOTH = pytest.mark.parametrize("factorisation", ["tree", "square-root"])
FALSE_ALARM = 1e-6
"""Probability that a statistical test here fails wrongly; besides, seeds are fixed."""


def left(factorisation, leaves):
    """The left factor L of the factorisation, as a matrix."""
    matrix = np.zeros((leaves, leaves))
    for t in range(leaves):
        matrix[t, : t + 1] = left_row(factorisation, t + 1)
    return matrix


def right(factorisation, leaves):
    return np.linalg.solve(left(factorisation, leaves), np.tri(leaves))


class Weighted:
    """Vectors that are the rows themselves, times a public weight: the point."""

    def __init__(self, size):
        self.size = size

    def diameter(self, clip):
        return 2 * clip

    def clipped_sum(self, point, rows, clip):
        return clipped_sum(point * rows, clip)


class Seen(Weighted):
    """Writes down which records came; rows carry their own number.

    The first sum is of no record of the dataset: the gate tries each statistic on a public one.
    """

    def __init__(self):
        super().__init__(1)
        self._sums = []

    @property
    def leaves(self):
        return self._sums[1:]

    def clipped_sum(self, _, rows, __):
        self._sums.append(rows[:, 0].astype(int).tolist())
        return np.zeros(1)


def stream(factorisation="square-root", n=64, size=3, clip=1.0, leaves=8, mu=1.0):
    return prefix_sums(factorisation, statistic="sum", n=n, size=size, clip=clip, leaves=leaves, mu=mu)


def gate(rows, release, noise=None):
    return Gate(Records(rows), {"sum": Weighted(rows.shape[1])}, [release], noise)


# The two factorisations


@RUN
@given(t=st.integers(1, 5000))
def test_nodes_are_the_fewest_dyadic_intervals_up_to_t(t):
    found = nodes(t)
    assert [k for first, last in found for k in range(first, last + 1)] == list(range(1, t + 1))
    for first, last in found:
        length = last - first + 1
        assert length & (length - 1) == 0
        assert (first - 1) % length == 0
    assert len(found) == t.bit_count()


@RUN
@given(leaves=st.integers(1, 700))
def test_the_height_of_a_tree_is_how_many_nodes_see_a_leaf(leaves):
    read = {node for t in range(1, leaves + 1) for node in nodes(t)}
    sees = [sum(first <= leaf <= last for first, last in read) for leaf in range(1, leaves + 1)]
    assert max(sees) == column("tree", leaves) == int(log2(leaves)) + 1


@BOTH
@pytest.mark.parametrize("leaves", [1, 2, 3, 8, 21, 64, 100])
def test_the_factors_multiply_to_prefix_sums_and_have_the_stated_norms(factorisation, leaves):
    ours, other = left(factorisation, leaves), right(factorisation, leaves)
    assert np.allclose(other, np.tril(other))
    norm = (other**2).sum(axis=0).max()
    assert norm <= column(factorisation, leaves) <= norm * (1 + 1e-8)
    np.testing.assert_allclose((ours**2).sum(axis=1), variances(factorisation, leaves))
    if factorisation == "square-root":
        np.testing.assert_allclose(ours @ ours, np.tri(leaves), atol=1e-12)
    else:
        assert set(np.unique(np.round(other, 9))) <= {0.0, 1.0}


@BOTH
def test_prefixes_added_up_have_the_variance_of_their_rows_added_up(factorisation):
    rows = left(factorisation, 21)
    for first, last in [(1, 1), (1, 21), (4, 9), (16, 21)]:
        total = rows[first - 1 : last].sum(axis=0)
        assert variance_of_total(factorisation, first, last) == pytest.approx(total @ total)


def test_float64_s_square_root_costs_no_more_than_what_is_added_for_it():
    """L = √A(1 + E) with |E| ≤ |√A⁻¹|·|ΔL|, a sum of absolute coefficients each, that of √A⁻¹ below 2."""
    with mpmath.workdps(40):
        exact, moved, inverse, term = mpmath.mpf(1), mpmath.mpf(0), mpmath.mpf(1), mpmath.mpf(1)
        for k, found in enumerate(coefficients(_LONGEST)[1:].tolist(), 1):
            exact *= mpmath.mpf(2 * k - 1) / (2 * k)
            moved += abs(exact - mpmath.mpf(found))
            term *= mpmath.mpf(2 * k - 3) / (2 * k)
            inverse += abs(term)
        assert inverse < 2
        off = inverse * moved
        assert 0 < off < 1e-11
        assert 1 / (1 - off) ** 2 < mpmath.mpf(_COVER)


def test_coefficients_are_those_of_the_square_root():
    exact = [comb(2 * k, k) / 4**k for k in range(300)]
    np.testing.assert_allclose(coefficients(300), exact, rtol=1e-13)


@pytest.mark.parametrize("leaves", [1, 2, 3, 7, 8, 100, 1000])
def test_the_square_root_is_never_the_noisier_one(leaves):
    """At one cost, both the largest and the mean variance over all prefixes are compared."""
    tree, root = (column(f, leaves) * variances(f, leaves) for f in ("tree", "square-root"))
    assert root.max() <= tree.max() * (1 + 1e-8)
    assert root.mean() <= tree.mean() * (1 + 1e-8)


# What a gate releases


@BOTH
def test_the_noise_has_the_stated_variance(factorisation):
    """Each prefix by itself has Σ z²/variance as χ². There are 11 prefixes, so 2·11 tails of 1e-6."""
    release = stream(factorisation, n=11, size=4000, leaves=11)
    rows = np.zeros((11, 4000))
    source = gate(rows, release, ScaledNoise(seed=1, order=np.arange))
    wanted = release.scale**2 * variances(factorisation, 11)
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], 4000)
    for t in range(11):
        source.extend("sum", 1.0, 1)
        noise = source.prefix("sum")
        assert low < noise @ noise / wanted[t] < high
    assert wanted.max() == pytest.approx(release.variance)


@BOTH
def test_and_the_covariance_of_the_left_factor(factorisation):
    release = stream(factorisation, n=6, size=40_000, leaves=6)
    source = gate(np.zeros((6, 40_000)), release, ScaledNoise(seed=2, order=np.arange))
    seen = []
    for _ in range(6):
        source.extend("sum", 1.0, 1)
        seen.append(source.prefix("sum"))
    found = np.cov(seen) / release.scale**2
    wanted = left(factorisation, 6) @ left(factorisation, 6).T
    deviation = np.sqrt((wanted**2 + np.outer(wanted.diagonal(), wanted.diagonal())) / 40_000)
    assert (np.abs(found - wanted) < 5.5 * deviation).all()  # 21 entries: 8e-7


@BOTH
def test_prefixes_are_those_of_the_leaves_and_begin_anew(factorisation):
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (64, 3))
    source = gate(rows, stream(factorisation), ScriptedNoise())
    at, total = 0, np.zeros(3)
    for records, anew in [(5, False), (1, False), (20, False), (3, True), (7, False), (9, True)]:
        leaf = 0.25 * rows[at : at + records].sum(axis=0)
        total, at = (0 if anew else total) + leaf, at + records
        source.extend("sum", 0.25, records, anew=anew)
        for _ in range(2):
            np.testing.assert_allclose(source.prefix("sum"), total, atol=1e-7)
    assert source.unused == 64 - at


def test_no_record_is_used_twice_and_none_is_skipped():
    statistic = Seen()
    source = Gate(Records(np.arange(100.0)[:, None]), {"sum": statistic}, [stream(n=100, size=1)])
    sizes = [3, 1, 40, 12, 30, 14]
    for k, records in enumerate(sizes):
        source.extend("sum", None, records, anew=k % 2 == 0)
        source.prefix("sum")
    assert [len(leaf) for leaf in statistic.leaves] == sizes
    used = [record for leaf in statistic.leaves for record in leaf]
    assert sorted(used) == list(range(100))
    assert used != list(range(100))  # but for one of 100! orders
    with pytest.raises(GateExhaustedError):
        source.extend("sum", None, 1, anew=True)


def test_the_order_is_the_gates_own_and_uniform():
    """How often each of 6 records comes first in 3,000 gates."""
    first = np.zeros(6)
    for _ in range(3000):
        statistic = Seen()
        source = Gate(Records(np.arange(6.0)[:, None]), {"sum": statistic}, [stream(n=6, size=1)])
        source.extend("sum", None, 1)
        first[statistic.leaves[0][0]] += 1
    assert ((first - 500) ** 2 / 500).sum() < chi2.ppf(1 - FALSE_ALARM, 5)


def test_what_a_stream_may_not_do_is_refused_before_a_record_is_read():
    statistic = Seen()
    source = Gate(Records(np.arange(20.0)[:, None]), {"sum": statistic}, [stream(n=20, size=1, leaves=2)])
    with pytest.raises(GateExhaustedError):
        source.prefix("sum")
    for records in (0, -1, 21):
        with pytest.raises(GateExhaustedError):
            source.extend("sum", None, records)
    source.extend("sum", None, 4)
    source.extend("sum", None, 4)
    with pytest.raises(GateExhaustedError):
        source.extend("sum", None, 1)
    assert (len(statistic.leaves), source.unused) == (2, 12)
    source.extend("sum", None, 12, anew=True)
    assert source.unused == 0


def test_a_leaf_that_failed_has_used_its_records():
    class Broken(Seen):
        def clipped_sum(self, *_):
            raise RuntimeError("no sum")

    source = Gate(Records(np.zeros((9, 1))), {"sum": Broken()}, [stream(n=9, size=1)])
    with pytest.raises(RuntimeError, match="no sum"):
        source.extend("sum", None, 4)
    assert source.unused == 5


def test_hostile_rows_change_neither_sizes_nor_the_number_of_answers():
    """The noise is one fixed sequence. What the solver is told moves by at most what clips allow."""
    calm = np.random.default_rng(3).uniform(-0.1, 0.1, (64, 3))
    seen = []
    for value in (0.0, 1e308, -1e308, np.nan, np.inf):
        rows = calm.copy()
        rows[7] = value
        release = stream(leaves=4)
        source = gate(rows, release, ScaledNoise(1e-3, seed=0, order=np.arange))
        answers = []
        for k in range(8):
            source.extend("sum", 1.0, 8, anew=k % 4 == 0)
            answers.append(source.prefix("sum"))
        seen.append(answers)
        assert (source.answered, source.unused) == (8, 0)
        assert np.isfinite(answers).all()
        assert np.linalg.norm(np.array(answers) - seen[0], axis=1).max() <= 2 * release.clip * (1 + 1e-9)


# Sensitivity and cost


@BOTH
@pytest.mark.parametrize("spacing", [2.0**-30, 0.25])
def test_a_replaced_record_moves_the_whole_stream_by_at_most_its_certificate(factorisation, spacing):
    """All places of a record are tried: R·(sums of leaves), taken together as one vector."""
    leaves, sizes = 6, [3, 1, 2, 4, 1, 1]
    fine = stream(factorisation, n=12, leaves=leaves)
    release = PrefixSums("sum", 12, 3, 1.0, fine.scale, spacing, factorisation, leaves)
    rng, r = np.random.default_rng(4), right(factorisation, leaves)
    rows = rng.standard_normal((12, 3))

    def sums(data):
        source = gate(data, release, ScriptedNoise())
        prefixes = []
        for records in sizes:
            source.extend("sum", 1.0, records)
            prefixes.append(source.prefix("sum"))
        return r @ np.diff(prefixes, axis=0, prepend=0.0)

    before, worst = sums(rows), 0.0
    for place in range(12):
        for other in (-rows[place] * 100, np.full(3, np.nan), rng.standard_normal(3) * 1e200):
            neighbour = rows.copy()
            neighbour[place] = other
            worst = max(worst, float(np.sum((sums(neighbour) - before) ** 2)))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    flipped = unit.copy()
    flipped[0] *= -1
    worst = max(worst, float(np.sum((sums(flipped) - sums(unit)) ** 2)))
    bound = column(factorisation, leaves) * release.sensitivity**2
    assert worst <= bound
    if spacing < 0.1:
        assert worst >= 0.999 * 4 * column(factorisation, leaves)  # which the first leaf reaches


@BOTH
@RUN
@given(
    leaves=st.integers(1, 60),
    mu=st.floats(-2, 1).map(lambda e: 10.0**e),
    clip=st.floats(-3, 3).map(lambda e: 10.0**e),
    n=st.integers(1, 300),
)
def test_the_noise_drawn_pays_for_the_stream(factorisation, leaves, mu, clip, n):
    """There are as many leaves and segments as records allow, each with noise for a record worth 2C."""
    release = stream(factorisation, n=n, clip=clip, leaves=leaves, mu=mu)
    spy = RecordedNoise()
    source = gate(np.zeros((n, 3)), release, spy)
    for k in range(n):
        source.extend("sum", 1.0, 1, anew=k % leaves == 0)
        source.prefix("sum")
    assert spy.drawn == [("gaussian", release.scale, 3)] * n
    ratio = Fraction(2) * Fraction(clip) / Fraction(release.scale)
    norm = Fraction((right(factorisation, leaves) ** 2).sum(axis=0).max())
    assert norm * ratio**2 <= Fraction(release.cost.mu_squared) * (1 + Fraction(1, 10**12))
    assert release.cost.mu_squared <= mu**2 * (1 + 1e-9)
    assert release.cost.mu_squared >= mu**2 * 0.999


@pytest.mark.few(2)
@BOTH
@pytest.mark.parametrize("leaves", [1, 5, 16])
def test_another_accountant_finds_the_same_price(factorisation, leaves):
    """dp-accounting on what the first leaf's record can be seen in: a normal vector for each entry of R."""
    release = stream(factorisation, leaves=leaves, mu=0.7)
    shifts = right(factorisation, leaves)[:, 0]
    events = [GaussianDpEvent(release.scale / (2 * abs(r))) for r in shifts if abs(r) > 1e-12]
    accountant = PLDAccountant().compose(ComposedDpEvent(events))
    ours = epsilon_for(sqrt(release.cost.mu_squared), 1e-5)
    assert accountant.get_epsilon(1e-5) == pytest.approx(ours, rel=2e-3)


@pytest.mark.costly
@BOTH
def test_sizes_and_segments_that_follow_the_answers_cost_no_more(factorisation):
    """The privacy loss of whole adaptive runs, from densities of what was released: E(1 − e^(ε−loss))₊ <= δ.

    The solver grows its batches with what it sees and begins anew when it likes. Losses are exact for each
    run. With 1,500 of them the mean of a variable in [0, 1] whose variance is below 0.15, as here, is off by
    0.05 with probability below 2e-5, by Bernstein's inequality. A certificate that forgets the norm of R's
    columns is off by more.
    """
    n, leaves, mu = 40, 8, 1.5
    release = stream(factorisation, n=n, size=1, leaves=leaves, mu=mu)
    rows = np.full((n, 1), 0.1)
    place = 0
    rows[place] = 1.0
    covariance = release.scale**2 * left(factorisation, leaves) @ left(factorisation, leaves).T
    inverses = [np.linalg.inv(covariance[:length, :length]) for length in range(leaves + 1)]
    losses = []
    for seed in range(1500):
        source = gate(rows, release, ScaledNoise(seed=seed, order=np.arange))
        segment, at, loss, hit = [], 0, 0.0, None

        def lost(segment, hit):
            if hit is None:
                return 0.0
            inverse = inverses[len(segment)]
            moved = np.where(np.arange(len(segment)) >= hit, 2.0, 0.0)  # from 1 to −1 in the other world
            noise = np.array(segment)
            return noise @ inverse @ moved + moved @ inverse @ moved / 2

        mean, records, anew = 0.0, 1, True
        while source.unused >= records:
            source.extend("sum", 1.0, records, anew=anew)
            if anew:
                loss, segment, hit, mean = loss + lost(segment, hit), [], None, 0.0
            mean += rows[at : at + records].sum()
            if at <= place < at + records:
                hit = len(segment)
            at += records
            answer = float(source.prefix("sum")[0])
            segment.append(answer - mean)
            anew = abs(answer) > 8.0 or len(segment) == leaves
            records = 1 + int(abs(answer)) % 3
        losses.append(loss + lost(segment, hit))
    losses = np.array(losses)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        found = np.maximum(0.0, 1 - np.exp(epsilon - losses)).mean()
        assert found <= gaussian_delta(epsilon, sqrt(release.cost.mu_squared)) + 0.05
    assert np.maximum(0.0, 1 - np.exp(-losses)).mean() > gaussian_delta(0.0, 2 / release.scale) + 0.05
    assert losses.mean() <= release.cost.mu_squared / 2 + 6 * mu / sqrt(3000)
    assert losses.mean() > 0.3 * release.cost.mu_squared / 2


@pytest.mark.parametrize("place", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_a_leaf_of_many_chunks_moves_by_one_chunks_error(place):
    n = 2 * CHUNK + 10
    rows = np.random.default_rng(5).standard_normal((n, 3))
    release = stream(n=n, clip=0.7)
    neighbour = rows.copy()
    neighbour[place] *= -1
    answers = []
    for data in (rows, neighbour):
        source = gate(data, release, ScriptedNoise())
        source.extend("sum", 1.0, n)
        answers.append(source.prefix("sum"))
    moved = np.linalg.norm(answers[1] - answers[0])
    length = min(0.7, np.linalg.norm(rows[place]))
    assert moved == pytest.approx(2 * length, abs=1e-7)
    assert moved <= release.sensitivity


def test_answers_lie_on_the_grid():
    release = stream(mu=0.3)
    source = gate(np.random.default_rng(1).standard_normal((64, 3)), release)
    for k in range(16):
        source.extend("sum", 1.0, 4, anew=k == 8)
        steps = source.prefix("sum") / release.spacing
        np.testing.assert_array_equal(steps, np.rint(steps))


# The currency


def test_of_streams_the_costliest_counts_and_other_sums_are_added():
    target = PrivacyTarget(3.0, 1e-5)
    cheap, dear = stream(mu=0.3), stream("tree", mu=0.5)
    full = noisy_sum("gaussian", n=64, size=3, clip=1.0, loss=0.4)
    assert cost_of_all([cheap, dear], target) == dear.cost
    assert cost_of_runs([[cheap, dear], [cheap]], 0.0).mu_squared == pytest.approx(
        dear.cost.mu_squared + cheap.cost.mu_squared
    )  # the same record is in a leaf of each run
    assert cost_of_all([cheap, full, dear], target).mu_squared == pytest.approx(0.25 + 0.16, rel=1e-6)
    with pytest.raises(ValueError, match="certified"):
        cost_of_all([stream(mu=5.0)], target)


def test_streams_are_stored_and_charged_again():
    adapter = TypeAdapter(tuple[Release, ...])
    plan = (
        stream("tree"),
        stream("square-root", leaves=1),
        noisy_sum("gaussian", n=64, size=3, clip=1.0, loss=0.1),
    )
    again = adapter.validate_python(adapter.dump_python(plan, mode="json"))
    assert again == plan
    assert [type(r) for r in again] == [type(r) for r in plan]
    assert adapter.validate_json(adapter.dump_json(plan)) == plan


def test_a_stream_is_told_describe_mechanism():
    sums = prefix_sums("tree", statistic="gradient", n=1000, size=3, clip=0.01, leaves=8, mu=1.0)
    matrices = prefix_sums("tree", statistic="hessian", n=1000, size=6, clip=0.01, leaves=1, mu=1.0)
    gradients = ClippedGradient(3)
    statistics = {"gradient": gradients, "hessian": ClippedHessian(3, 0.0, 1.0)}
    gradient, hessian = describe_mechanism([sums, matrices], statistics).split("; ")
    assert "Gaussian noise, σ" in gradient
    assert "on the mean gradient of records that are seen once" in gradient
    assert gradient.endswith("8 steps")
    assert f"{matrices.scale:.4g} on the mean Hessian" in hessian
    assert hessian.endswith("1 step")
    with pytest.raises(ValueError, match="no statistic called hessian"):
        describe_mechanism([sums, matrices], {"gradient": gradients})
