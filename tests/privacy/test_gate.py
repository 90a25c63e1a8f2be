"""The gate: what was planned, once, in order, for these rows, and nothing else."""

import numpy as np
import pytest

from privest import manifolds
from privest.losses.squared_distance import SquaredDistance
from privest.privacy.certificates import noisy_sum
from privest.privacy.gate import Gate, GateExhaustedError
from privest.records import Records

SPACE = manifolds.get("euclidean", dim=3)
ROWS = np.random.default_rng(0).standard_normal((50, 3))


def release(n=50, size=3, loss=1.0):
    return noisy_sum("gaussian", n=n, size=size, clip=10.0, loss=loss)


SUMS = {"gradient": SquaredDistance(SPACE)}


class Script:
    """Noise that is what the test says; keeps what was asked."""

    def __init__(self, value=0.0):
        self.value, self.asked = value, []

    def draw(self, noise, scale, size):
        self.asked.append((noise, scale, size))
        return np.full(size, self.value)


def test_answers_are_counted_and_end():
    gate = Gate(Records(ROWS), SUMS, [release(), release()])
    assert (gate.answered, gate.remaining) == (0, 2)
    gate.mean(SPACE.reference)
    gate.mean(SPACE.reference)
    assert (gate.answered, gate.remaining) == (2, 0)
    for _ in range(3):
        with pytest.raises(GateExhaustedError):
            gate.mean(SPACE.reference)


def test_a_gate_without_releases_answers_nothing():
    with pytest.raises(GateExhaustedError):
        Gate(Records(ROWS), SUMS, []).mean(SPACE.reference)


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
        Gate(Records(ROWS), SUMS, [release(), wrong])


def test_each_answer_carries_the_noise_of_its_own_release():
    releases = [release(loss=0.5), release(loss=2.0), release(loss=1.0)]
    script = Script()
    gate = Gate(Records(ROWS), SUMS, releases, script)
    for _ in releases:
        gate.mean(SPACE.reference)
    assert script.asked == [("gaussian", r.scale, 3) for r in releases]


def test_noise_is_added_whole_and_to_the_sum():
    silent = Gate(Records(ROWS), SUMS, [release()], Script()).mean(SPACE.reference)
    loud = Gate(Records(ROWS), SUMS, [release()], Script(100.0)).mean(SPACE.reference)
    np.testing.assert_allclose(silent, ROWS.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(loud - silent, 100.0 / 50, atol=1e-7)


def test_long_rows_are_all_summed():
    """Rows of 4 kB: several chunks, and however a chunk is cut to fit the cache."""
    space = manifolds.get("euclidean", dim=500)
    rows = np.random.default_rng(1).standard_normal((5000, 500))
    plan = [noisy_sum("gaussian", n=5000, size=500, clip=100.0, loss=1.0)]
    found = Gate(Records(rows), {"gradient": SquaredDistance(space)}, plan, Script()).mean(space.reference)
    np.testing.assert_allclose(found, rows.mean(axis=0), rtol=0, atol=2 * plan[0].spacing)


def test_without_a_source_the_noise_is_fresh_every_time():
    answers = np.stack([Gate(Records(ROWS), SUMS, [release()]).mean(SPACE.reference) for _ in range(5)])
    assert len(np.unique(answers)) == 15


def test_rows_cannot_be_read_from_a_gate():
    gate = Gate(Records(ROWS), SUMS, [release()])
    public = {name for name in dir(gate) if not name.startswith("_")}
    assert public == {"answered", "mean", "pick", "remaining"}
