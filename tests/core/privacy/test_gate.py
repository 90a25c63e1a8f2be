"""The gate: what was planned, once, in order, for these rows, and nothing else."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from privest import manifolds
from privest.data.records import CHUNK, Records
from privest.estimators.frechet_mean.losses import SquaredDistance, SquaredDistanceChange
from privest.privacy.clipped_sums import batch_sensitivity
from privest.privacy.clipped_sums import sensitivity as grid_sensitivity
from privest.privacy.gate import ChunkSum, Gate, GateExhaustedError
from privest.privacy.matrix_mechanism import prefix_sums
from privest.privacy.mechanisms import (
    AlternativeSum,
    NoisySum,
    SampledSum,
    SubsampledRun,
    SubsampledSum,
    noisy_sum,
    subsampled_sum,
)
from testing.noise import ScaledNoise, ScriptedNoise

SPACE = manifolds.get("euclidean", dim=3)
STATISTICS = {"gradient": SquaredDistance(SPACE)}
ROWS = np.random.default_rng(0).standard_normal((50, 3))


def release(n=50, size=3, loss=1.0):
    return noisy_sum("gaussian", n=n, size=size, clip=10.0, loss=loss)


def test_answers_are_counted_and_end():
    gate = Gate(Records(ROWS), STATISTICS, [release(), release()])
    assert (gate.answered, gate.remaining) == (0, 2)
    gate.mean(SPACE.reference)
    gate.mean(SPACE.reference)
    assert (gate.answered, gate.remaining) == (2, 0)
    for _ in range(3):
        with pytest.raises(GateExhaustedError):
            gate.mean(SPACE.reference)


def test_a_gate_without_releases_answers_nothing():
    with pytest.raises(GateExhaustedError):
        Gate(Records(ROWS), STATISTICS, []).mean(SPACE.reference)


def of_runs(*names):
    return [AlternativeSum.of(release(), run, name) for run, name in enumerate(names)]


def test_of_alternatives_one_run_is_made():
    names = {name: SquaredDistance(SPACE) for name in ("gradient", "first", "second")}
    releases = [release(), *of_runs("first", "second"), *of_runs("first", "second")[1:]]
    gate = Gate(Records(ROWS), names, releases)
    assert gate.remaining == 3
    gate.mean(SPACE.reference)
    gate.mean(SPACE.reference, "second")
    with pytest.raises(GateExhaustedError, match="another was begun"):
        gate.mean(SPACE.reference, "first")
    gate.mean(SPACE.reference, "second")
    assert (gate.answered, gate.remaining) == (3, 0)


def test_runs_are_told_apart_whatever_their_statistic_is_called():
    gate = Gate(Records(ROWS), STATISTICS, of_runs("gradient", "gradient"))
    gate.mean(SPACE.reference)
    with pytest.raises(GateExhaustedError, match="another was begun"):
        gate.mean(SPACE.reference)


def test_an_answer_that_failed_is_spent():
    class Broken(SquaredDistance):
        def clipped_sum(self, *_):
            raise RuntimeError("no sum")

    gate = Gate(Records(ROWS), {"gradient": Broken(SPACE)}, [release()])
    with pytest.raises(RuntimeError, match="no sum"):
        gate.mean(SPACE.reference)
    assert gate.remaining == 0


@pytest.mark.parametrize("wrong", [release(n=49), release(n=51), release(size=2)])
def test_a_plan_for_other_data_is_refused(wrong):
    with pytest.raises(ValueError, match="other data"):
        Gate(Records(ROWS), STATISTICS, [release(), wrong])


def test_each_answer_carries_the_noise_of_its_own_release():
    releases = [release(loss=0.5), release(loss=2.0), release(loss=1.0)]
    script = ScriptedNoise()
    gate = Gate(Records(ROWS), STATISTICS, releases, script)
    for _ in releases:
        gate.mean(SPACE.reference)
    assert script.drawn == [("gaussian", r.scale, 3) for r in releases]


def test_noise_is_added_whole_and_to_the_sum():
    silent = Gate(Records(ROWS), STATISTICS, [release()], ScriptedNoise()).mean(SPACE.reference)
    loud = Gate(Records(ROWS), STATISTICS, [release()], ScriptedNoise(value=100.0)).mean(SPACE.reference)
    np.testing.assert_allclose(silent, ROWS.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(loud - silent, 100.0 / 50, atol=1e-7)


def test_long_rows_are_all_summed():
    """Rows of 4 kB: several chunks, and however a chunk is cut to fit the cache."""
    space = manifolds.get("euclidean", dim=500)
    rows = np.random.default_rng(1).standard_normal((5000, 500))
    plan = [noisy_sum("gaussian", n=5000, size=500, clip=100.0, loss=1.0)]
    found = Gate(Records(rows), {"gradient": SquaredDistance(space)}, plan, ScriptedNoise()).mean(
        space.reference
    )
    np.testing.assert_allclose(found, rows.mean(axis=0), rtol=0, atol=2 * plan[0].spacing)


def test_without_a_source_the_noise_is_fresh_every_time():
    answers = np.stack([Gate(Records(ROWS), STATISTICS, [release()]).mean(SPACE.reference) for _ in range(5)])
    assert len(np.unique(answers)) == 15


def test_rows_cannot_be_read_from_a_gate():
    gate = Gate(Records(ROWS), STATISTICS, [release()])
    public = {name for name in dir(gate) if not name.startswith("_")}
    answers = {"answered", "extend", "mean", "pick", "prefix", "remaining", "streams", "unused"}
    assert public == answers | {"pooled", "share"}
    assert gate.share == 1.0
    assert gate.pooled(lambda place, owner: np.array([place, owner is gate])).tolist() == [0, 1]


def batches(count=1, n=50, size=3, clip=10.0, rate=0.2, scheme="poisson", statistic="gradient", noise=1.0):
    return subsampled_sum(
        SubsampledRun(scheme, rate, noise, count), statistic=statistic, n=n, size=size, clip=clip
    )


def test_a_batch_is_drawn_by_the_gate_summed_and_divided_by_its_expected_size():
    script = ScriptedNoise([3, 7, 8], [0], value=100.0)
    gate = Gate(Records(ROWS), STATISTICS, [batches(count=2)], script)
    answers = [gate.mean(SPACE.reference) for _ in range(2)]
    sums = np.stack([ROWS[[3, 7, 8]].sum(axis=0), ROWS[0]])
    np.testing.assert_allclose(answers, (sums + 100.0) / 10, atol=1e-6)
    assert script.drawn == [(50, 0.2, "poisson"), ("gaussian", batches().scale, 3)] * 2


def test_a_sample_is_drawn_by_the_gate_without_repetition_and_costs_as_all_records():
    sampled = SampledSum.of(release(), 20)
    assert sampled.cost == release().cost
    assert (sampled.divisor, sampled.deviation) == (20, release().deviation * 50 / 20)
    noise = ScriptedNoise(np.arange(20) + 3)
    found = Gate(Records(ROWS), STATISTICS, [sampled], noise).mean(SPACE.reference)
    np.testing.assert_allclose(found, ROWS[3:23].mean(axis=0), atol=1e-6)
    # Of as many records as there are, the sample is all of them, whatever is drawn.
    whole = SampledSum.of(release(loss=1e8), 50)
    found = Gate(Records(ROWS), STATISTICS, [whole]).mean(SPACE.reference)
    np.testing.assert_allclose(found, ROWS.mean(axis=0), atol=1e-4)


def test_a_replaced_record_moves_the_sum_over_a_sample_by_at_most_its_sensitivity():
    """In the sample it moves one chunk, the same in both worlds, and out of it none."""
    n, clip = 3 * CHUNK, 1.0
    rows = np.random.default_rng(0).standard_normal((n, 3))
    sampled = SampledSum.of(noisy_sum("gaussian", n=n, size=3, clip=clip, loss=1.0), 2 * CHUNK)
    sample = np.random.default_rng(1).permutation(n)[: 2 * CHUNK]
    answers = []
    for place, value in ((sample[-1], 1e9), (sample[-1], -1e9), (np.setdiff1d(np.arange(n), sample)[0], 1e9)):
        changed = rows.copy()
        changed[place] = [value, 0.0, 0.0]
        gate = Gate(Records(changed), STATISTICS, [sampled], ScriptedNoise(sample))
        answers.append(gate.mean(SPACE.reference) * sampled.divisor)
    assert 2 * clip - 1e-6 <= np.abs(answers[0] - answers[1]).max() <= sampled.sensitivity
    gate = Gate(Records(rows), STATISTICS, [sampled], ScriptedNoise(sample))
    np.testing.assert_array_equal(gate.mean(SPACE.reference) * sampled.divisor, answers[2])


def test_what_a_sample_may_be_off_by_is_that_of_the_noise_and_of_sampling():
    """Rows at two opposite points at the clip, half each, have all the variance that rows may have.

    Of 400 draws the root mean square is off by a tenth in one of 200 runs, of which this is one.
    """
    rows = np.zeros((50 * 64, 3))
    rows[::2, 0], rows[1::2, 0] = 1.0, -1.0
    exact = noisy_sum("gaussian", n=len(rows), size=3, clip=1.0, loss=40.0)
    sampled = SampledSum.of(exact, 64)
    assert exact.doubt == exact.deviation < sampled.deviation
    noise = ScaledNoise(seed=7)
    squares = [
        np.sum(Gate(Records(rows), STATISTICS, [sampled], noise).mean(SPACE.reference) ** 2)
        for _ in range(400)
    ]
    assert np.sqrt(np.mean(squares)) == pytest.approx(sampled.doubt * np.sqrt(3), rel=0.1)


def test_an_empty_batch_answers_noise_alone():
    """An empty batch looks like any other answer: every step draws its noise."""
    script = ScriptedNoise([], [], value=7.0)
    gate = Gate(Records(ROWS), STATISTICS, [batches(count=2)], script)
    for _ in range(2):
        np.testing.assert_allclose(gate.mean(SPACE.reference), 0.7, rtol=1e-6)
    assert [event[0] for event in script.drawn] == [50, "gaussian"] * 2


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("rate", [0.02, 0.2, 1.0])
def test_answers_over_batches_lie_on_the_grid(scheme, rate):
    release = batches(count=20, rate=rate, scheme=scheme)
    gate = Gate(Records(ROWS), STATISTICS, [release])
    for _ in range(20):
        answer = gate.mean(SPACE.reference)
        integers = np.rint(answer * release.divisor / release.spacing)
        assert np.abs(integers).max() < 2**53
        np.testing.assert_array_equal(integers * release.spacing / release.divisor, answer)
    assert gate.remaining == 0


def test_every_statistic_has_its_own_releases():
    names = {"gradient": SquaredDistance(SPACE), "change": SquaredDistanceChange(SPACE)}
    plan = [replace(release(), count=2), batches(count=3, statistic="change")]
    gate = Gate(Records(ROWS), names, plan)
    pair = (SPACE.reference, SPACE.reference + 1.0)
    assert gate.remaining == 5
    for _ in range(2):
        gate.mean(SPACE.reference)
    with pytest.raises(GateExhaustedError):
        gate.mean(SPACE.reference)
    for _ in range(3):
        gate.mean(pair, "change")
    for name in names:
        with pytest.raises(GateExhaustedError):
            gate.mean(pair, name)
    assert (gate.answered, gate.remaining) == (5, 0)


def test_releases_come_in_the_order_of_the_plan_each_as_often_as_it_counts():
    plan = [replace(release(loss=0.5), count=2), batches(count=1), replace(release(loss=2.0), count=1)]
    script = ScriptedNoise([1])
    gate = Gate(Records(ROWS), STATISTICS, plan, script)
    for _ in range(4):
        gate.mean(SPACE.reference)
    scales = [scale for law, scale, _ in script.drawn if law == "gaussian"]
    assert scales == [plan[0].scale] * 2 + [plan[1].scale, plan[2].scale]


def test_a_plan_with_batches_for_other_data_is_refused():
    nearer = subsampled_sum(
        SubsampledRun("poisson", 0.3, 3.0, 2, apart=1.99), statistic="gradient", n=50, size=3, clip=10.0
    )
    for wrong in (batches(n=49), batches(size=2), nearer):
        with pytest.raises(ValueError, match="other data"):
            Gate(Records(ROWS), STATISTICS, [wrong])


class Counted(SquaredDistance):
    """A statistic that counts its sums."""

    calls = 0

    def clipped_sum(self, point, rows, clip):
        Counted.calls += 1
        return super().clipped_sum(point, rows, clip)


def test_a_sum_asked_for_again_at_the_same_point_gets_fresh_noise_only():
    Counted.calls = 0
    gate = Gate(Records(ROWS), {"gradient": Counted(SPACE)}, [replace(release(), count=5)])
    answers = [gate.mean(SPACE.reference) for _ in range(2)]  # two equal points, each its own array
    assert Counted.calls == 1 + 2  # the first is of a public record
    point = SPACE.reference
    answers += [gate.mean(point) for _ in range(3)]
    assert Counted.calls == 1 + 3
    assert len(np.unique(answers)) == 15


def test_a_kept_sum_is_of_the_same_statistic_clip_and_grid():
    """Two sums at one point that differ in any of them: no answer may be the other's, with its noise."""
    plan = [
        NoisySum("gaussian", 50, 3, clip, 2 * clip, 1.0, spacing, statistic)
        for statistic, clip, spacing in [
            ("gradient", 10.0, 2.0**-20),
            ("gradient", 0.1, 2.0**-20),
            ("gradient", 0.1, 2.0**-3),
            ("other", 0.1, 2.0**-3),
        ]
    ]
    point = SPACE.reference + 1.0

    class Half(SquaredDistance):
        def clipped_sum(self, point, rows, clip):
            return super().clipped_sum(point, rows, clip) / 2

    gate = Gate(
        Records(ROWS), {"gradient": SquaredDistance(SPACE), "other": Half(SPACE)}, plan, ScriptedNoise()
    )
    whole, clipped, coarse = (gate.mean(point) for _ in range(3))
    np.testing.assert_allclose(whole, (ROWS - point).mean(axis=0), atol=1e-6)
    assert np.linalg.norm(clipped) <= 0.1
    np.testing.assert_array_equal(np.rint(coarse * 50 * 8), coarse * 50 * 8)
    np.testing.assert_allclose(gate.mean(point, "other"), clipped / 2, atol=1 / 50 / 8)


def test_one_record_more_in_a_batch_moves_its_sum_by_at_most_the_certified_length():
    """Where rounding does its worst: 0.46 of a grid step alone rounds to nothing, with 4.08 more to five."""
    coarse = SubsampledSum("gradient", 2, 1, 1.02, 1.0, 0.25, "poisson", 0.5, 2)
    line = manifolds.get("euclidean", dim=1)
    rows = np.array([[0.115], [1.02]])
    gate = Gate(Records(rows), {"gradient": SquaredDistance(line)}, [coarse], ScriptedNoise([0], [0, 1]))
    less, more = (gate.mean(line.reference)[0] * coarse.divisor for _ in range(2))
    assert more - less == 1.25
    assert more - less <= coarse.sensitivity
    assert (
        grid_sensitivity(2.04, 1.02, 1, 0.25) / 2 < 1.25
    )  # half the bound on a replaced record is too little


@pytest.mark.parametrize("place", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_also_where_all_later_records_change_chunks(place):
    n, clip = 2 * CHUNK + 10, 0.7
    rows = np.random.default_rng(5).standard_normal((n, 3))
    plan = [batches(count=3, n=n, clip=clip, rate=0.9)]
    rest = np.delete(np.arange(n), place)
    shuffled = np.random.default_rng(6).permutation(n)
    gate = Gate(Records(rows), STATISTICS, plan, ScriptedNoise(np.arange(n), rest, shuffled))
    whole, less, mixed = (gate.mean(SPACE.reference) * plan[0].divisor for _ in range(3))
    moved = np.linalg.norm(whole - less)
    vector = rows[place] * min(1.0, clip / np.linalg.norm(rows[place]))
    assert moved <= plan[0].sensitivity
    assert moved == pytest.approx(np.linalg.norm(vector), abs=1e-6)
    assert np.linalg.norm(whole - mixed) <= plan[0].sensitivity - clip


@pytest.mark.parametrize("size", [1, 66])
@pytest.mark.parametrize("n", [1, CHUNK, CHUNK + 1, 10**9])
def test_a_replaced_record_moves_a_batch_by_at_most_twice_that_length(size, n):
    for clip, spacing in [(1.0, 0.0), (1.0, 2.0**-20), (1e-3, 1.0)]:
        assert 2 * batch_sensitivity(clip, size, spacing, n) >= grid_sensitivity(
            2 * clip, clip, size, spacing
        )
        assert batch_sensitivity(clip, size, spacing, n) >= batch_sensitivity(clip, size, spacing, 1)


def test_rows_may_stay_in_a_file(tmp_path):
    n = CHUNK + 100
    rows = np.random.default_rng(1).standard_normal((n, 3))
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    plan = [replace(release(n=n), count=1), batches(n=n, rate=0.5)]
    chosen = np.random.default_rng(2).permutation(n)[:5000]
    answers = []
    for data in (rows, mapped):
        gate = Gate(Records(data), STATISTICS, plan, ScriptedNoise(chosen))
        answers.append([gate.mean(SPACE.reference) for _ in range(2)])
    np.testing.assert_array_equal(answers[0], answers[1])


def test_a_pick_is_uniform_and_uses_no_release():
    gate = Gate(Records(ROWS), STATISTICS, [release()])
    picks = [gate.pick(7) for _ in range(300)]
    assert set(picks) == set(range(7))  # but for 7·(6/7)^300 = 6e-20
    assert gate.remaining == 1


# Records that are groups of rows

PLACES = 4


def group_sums(rows, clip=1.0, spacing=2.0**-30, statistic=None, point=None):
    """Integer sums of records that are groups, in units of the values."""
    statistic = statistic or SquaredDistance(SPACE)
    point = SPACE.reference if point is None else point
    records = Records(rows, threads=1, grouped=True)
    return records.sum(ChunkSum(statistic, point, clip, spacing, True)) * spacing


@pytest.mark.parametrize("n", [1, 50, CHUNK + 3])
def test_a_group_counts_as_the_mean_of_its_rows_each_clipped(n):
    rows = 2 * np.random.default_rng(8).standard_normal((n, PLACES, 3))
    clipped = rows * np.minimum(1, 1 / np.linalg.norm(rows, axis=-1, keepdims=True))
    np.testing.assert_allclose(group_sums(rows), clipped.mean(axis=1).sum(axis=0), atol=1e-8)


def test_a_group_of_equal_rows_counts_as_that_row():
    rows = np.random.default_rng(8).standard_normal((CHUNK + 3, 3))
    alone = Records(rows).sum(ChunkSum(SquaredDistance(SPACE), SPACE.reference, 1.0, 2.0**-30, False))
    np.testing.assert_allclose(group_sums(np.repeat(rows[:, None], 3, axis=1)), alone * 2.0**-30, atol=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_group_moves_the_sum_by_at_most_one_records_sensitivity(seed):
    """All its rows replaced, by the opposite, by outliers and by nothing; also on a coarse grid."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((30, PLACES, 3)) * 10 ** rng.uniform(-2, 3)
    for spacing in (2.0**-30, 0.25):
        bound = grid_sensitivity(2.0, 1.0, 3, spacing)
        before = group_sums(rows, spacing=spacing)
        for other in (-rows[5], 1e9 * rng.standard_normal((PLACES, 3)), 0 * rows[5]):
            changed = rows.copy()
            changed[5] = other
            assert np.linalg.norm(group_sums(changed, spacing=spacing) - before) <= bound
    unit = np.broadcast_to([1.0, 0, 0], rows.shape).copy()
    flipped = unit.copy()
    flipped[5] *= -1
    assert np.linalg.norm(group_sums(flipped) - group_sums(unit)) == pytest.approx(2.0)  # which is reached


def test_batches_of_groups_are_of_whole_groups():
    rows = np.random.default_rng(1).standard_normal((50, PLACES, 3)) / 10
    plan = [batches(n=50, rate=0.5, count=2)]
    gate = Gate(Records(rows, grouped=True), STATISTICS, plan, ScriptedNoise([3, 7, 11], []))
    wanted = rows[[3, 7, 11]].mean(axis=1).sum(axis=0) / plan[0].divisor
    np.testing.assert_allclose(gate.mean(SPACE.reference), wanted, atol=1e-6)


def test_the_error_of_a_chunk_of_groups_is_within_the_bound():
    """Against exact sums, where every addition rounds: the float error of a full chunk of many places."""
    places, line = 50, manifolds.get("euclidean", dim=1)
    rows = np.random.default_rng(3).uniform(0.5, 1, (CHUNK, places, 1))
    exact = sum(map(Fraction, rows.ravel())) / places
    found = ChunkSum(SquaredDistance(line), line.reference, 1.0, 2.0**-40, True)(rows) * 2.0**-40
    assert abs(Fraction(found[0]) - exact) <= (grid_sensitivity(2.0, 1.0, 1, 2.0**-40) - 2.0) / 2


# The last defence


class Slipping(SquaredDistance):
    """A statistic that a row beyond 1e6 leads astray, in one way or another."""

    def clipped_sum(self, point, rows, clip):
        astray = np.abs(rows[:, 0]) > 1e6
        total = super().clipped_sum(point, rows[~astray].reshape(-1, 3), clip)
        return self.slip(total) if astray.any() else total

    def slip(self, total):
        raise NotImplementedError


def slipping(slip):
    return type("Slipping", (Slipping,), {"slip": staticmethod(slip)})(SPACE)


def raises(error):
    def slip(total):
        raise error

    return slip


def cast_to_integer(total):
    """0/0, as an integer: what equal nodes once made of a histogram."""
    return (np.zeros(1) / np.zeros(1)).astype(np.int64) + total


SLIPS = {
    "NaN": lambda total: np.full_like(total, np.nan),
    "one NaN": lambda total: total + np.array([0.0, np.nan, 0.0]),
    "infinity": lambda total: total - np.inf,
    "too long": lambda total: total + 1e9,
    "too long to square": lambda total: total + 1e200,
    "an integer of NaN": cast_to_integer,
    "division by zero": raises(ZeroDivisionError()),
    "overflow": raises(OverflowError()),
    "no such place": raises(IndexError()),
    "a singular matrix": raises(np.linalg.LinAlgError()),
    "a wrong value": raises(ValueError()),
}

slips = pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)


def astray(rows, place):
    changed = rows.copy()
    changed[place] = [1e9, 0.5, 0.0] if rows.ndim == 2 else np.tile([1e9, 0.5, 0.0], (rows.shape[1], 1))
    return changed


def answers_of(rows, statistic, plan, *drawn, grouped=False, threads=1):
    """What is released of the sums, without noise."""
    records = Records(rows, threads, grouped=grouped)
    gate = Gate(records, {"gradient": statistic}, [plan], ScriptedNoise(*drawn))
    return gate.mean(SPACE.reference) * plan.divisor


@slips
def test_a_row_at_which_a_statistic_slips_counts_as_zero(slip, recwarn, caplog):
    """Nothing shows it but how long the sum took. The other rows count as they do beside any row."""
    n, place = CHUNK + 20, 7
    rows = np.random.default_rng(3).standard_normal((n, 3))
    plan, statistic = noisy_sum("gaussian", n=n, size=3, clip=0.7, loss=1.0), slipping(slip)
    without = rows.copy()
    without[place] = 0.0
    found = answers_of(astray(rows, place), statistic, plan)
    np.testing.assert_allclose(found, answers_of(without, statistic, plan), rtol=0, atol=2 * plan.spacing)
    np.testing.assert_array_equal(found, answers_of(astray(rows, place), statistic, plan, threads=3))
    moved = np.linalg.norm(found - answers_of(rows, statistic, plan))
    assert 0 < moved <= plan.sensitivity / 2 + 2 * plan.spacing
    assert not recwarn.list
    assert not caplog.records


@slips
def test_so_it_does_in_batches_samples_groups_and_streams(slip):
    statistic, rows = slipping(slip), np.random.default_rng(4).standard_normal((50, 3))
    wrong, without = astray(rows, 7), np.delete(rows, 7, axis=0)
    drawn = np.arange(10)
    whole = noisy_sum("gaussian", n=50, size=3, clip=0.7, loss=1.0)
    for plan in (batches(clip=0.7), SampledSum.of(whole, 10)):
        found = answers_of(wrong, statistic, plan, drawn)
        np.testing.assert_allclose(found, answers_of(rows, statistic, plan, np.delete(drawn, 7)), atol=1e-6)
    groups = np.random.default_rng(5).standard_normal((50, PLACES, 3))
    zero = groups.copy()
    zero[7] = 0.0
    found = answers_of(astray(groups, 7), statistic, whole, grouped=True)
    np.testing.assert_allclose(found, answers_of(zero, statistic, whole, grouped=True), atol=1e-6)
    stream = prefix_sums("tree", statistic="gradient", n=50, size=3, clip=0.7, leaves=4, mu=1e6)
    gate = Gate(Records(wrong), {"gradient": statistic}, [stream])
    gate.extend("gradient", SPACE.reference, 50)
    wanted = np.sum(without * np.minimum(1, 0.7 / np.linalg.norm(without, axis=1, keepdims=True)), axis=0)
    np.testing.assert_allclose(gate.prefix("gradient"), wanted, atol=1e-3)


def test_where_every_row_is_astray_there_is_noise_alone():
    plan = noisy_sum("gaussian", n=50, size=3, clip=0.7, loss=1.0)
    every = np.full((50, 3), 1e9)
    for slip in SLIPS.values():
        assert answers_of(every, slipping(slip), plan).tolist() == [0.0, 0.0, 0.0]


def test_a_sum_within_its_bound_is_not_touched():
    """All rows at the clip, in one direction: rounding alone does not call the defence."""
    Counted.calls = 0
    rows = np.tile([3.0, 4.0, 0.0], (CHUNK, 1))
    plan = noisy_sum("gaussian", n=CHUNK, size=3, clip=0.1, loss=1.0)
    found = answers_of(rows, Counted(SPACE), plan)
    assert Counted.calls == 1 + 1  # the first is of a public record
    np.testing.assert_allclose(found, [0.06 * CHUNK, 0.08 * CHUNK, 0.0], rtol=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_bug_that_no_row_causes_ends_the_run(grouped):
    """Else all rows would count as zero, and noise alone would be released at the full charge."""

    class OfOtherRows(SquaredDistance):
        def clipped_sum(self, point, rows, clip):
            return super().clipped_sum(point, rows @ np.zeros((4, 3)), clip)

    class OfAnotherSize(SquaredDistance):
        def clipped_sum(self, point, rows, clip):
            return super().clipped_sum(point, rows, clip)[:1]

    rows = np.ones((50, PLACES, 3)) if grouped else np.ones((50, 3))
    plan = noisy_sum("gaussian", n=50, size=3, clip=0.7, loss=1.0)
    stream = prefix_sums("tree", statistic="gradient", n=50, size=3, clip=0.7, leaves=4, mu=1.0)
    for statistic, why in ((OfOtherRows(SPACE), "matmul"), (OfAnotherSize(SPACE), "of shape")):
        with pytest.raises(ValueError, match=why):
            answers_of(rows, statistic, plan, grouped=grouped)
        gate = Gate(Records(rows, grouped=grouped), {"gradient": statistic}, [stream])
        with pytest.raises(ValueError, match=why):
            gate.extend("gradient", SPACE.reference, 50)
