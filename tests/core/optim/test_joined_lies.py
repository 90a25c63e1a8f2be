"""Whatever others answer in a joint run, one record moves no sum of one's own gate by more than is stated.

Whoever answers in place of the other owners chooses the points at which a gate is asked. So here they lie, as
far as answers may be off, and what single rows add is looked at wherever that leads a run.
"""

from contextlib import suppress
from itertools import cycle

import numpy as np
import pytest

from privest.arrays import lengths
from privest.estimators import federation
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.logistic import Classifier
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.optim import pooling
from privest.privacy import clipped_sums
from privest.privacy.mechanisms import NoisySum
from testing.hostile_rows import EXTREMES, each_alone
from tests.core.estimators import test_federation as cases

SIZES = (1.0, -1.0, 1e-320, 1e8, 1e52, 1e77, -1e77, 0.5e100, 1e100)
"""What lies are as large as: sums of their squares are finite, products of more of them need not be."""

LARGEST = (1.7e308, -1.7e308, 1e155, 1e300, -1e250, 1e200, 1.0, 1e100)
"""Sizes of lies that would be taken if every finite number were."""


def hostile(rows, rng):
    """Rows as they are, as large and as small as float64 can hold, and such as are no numbers."""
    few = rows[:6]
    wild = rng.choice(EXTREMES, few.shape) * rng.choice([-1.0, 1.0], few.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([few, -few, *(few * size for size in (1e-300, 1e150, 1.7e308)), wild])


class WatchedGate:
    """A gate that says what its rows really add, and looks at any two of them wherever it is asked."""

    def __init__(self, plan, rows):
        self._clips = {r.statistic: r for r in plan.parts[0].releases}
        self._statistics, self._rows = plan.statistics, rows
        self.asked = 0

    def mean(self, point, statistic="gradient"):
        release, summed = self._clips[statistic], self._statistics[statistic]
        alone = each_alone(summed, point, self._rows, release.clip)
        assert np.isfinite(alone).all()
        apart = release.diameter if isinstance(release, NoisySum) else release.apart * release.clip
        allowed = clipped_sums.sensitivity(apart, release.clip, release.size, 0.0)
        assert lengths(alone).max() <= release.clip * (1 + 1e-9)
        assert lengths(alone[:, None] - alone[None]).max() <= allowed
        self.asked += 1
        return alone.mean(axis=0)

    def pick(self, _):
        return 0


def led_astray(case, targets, seed, sizes=SIZES):
    """How often a gate was asked in a run whose pooled answers are lies, each of another size."""
    plan = cases.planned(case, targets)
    rng = np.random.default_rng(seed)
    sizes = cycle(rng.permutation(sizes).tolist())
    gate = WatchedGate(plan, hostile(cases.rows_for(plan)[0], rng))

    def exchange(_, own):
        lie = rng.choice([-1.0, 1.0], own.shape) if seed % 2 else rng.uniform(-1.0, 1.0, own.shape)
        return next(sizes) * lie

    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):  # a lie may end a run
        federation.run_joined(plan, case[0].run, gate, 0, exchange, 0)
    return gate.asked


CASES = [
    *((case, cases.TARGETS) for case in [*cases.GAUSSIAN, *cases.BATCHES]),
    *((case, [cases.pure(target) for target in cases.TARGETS]) for case in cases.PURE),
]


@pytest.mark.few(24)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("case", "targets"), CASES, ids=[cases.named(case) for case, _ in CASES])
def test_no_lie_leads_where_a_record_moves_more_than_is_stated(case, targets, seed):
    assert led_astray(case, targets, seed) > 0


# Faults that this would see


def caught(case, sizes=SIZES):
    """Whether one of six runs asks where some row adds what is no number, or too much."""
    for seed in range(6):
        try:
            led_astray(case, cases.TARGETS, seed, sizes)
        except AssertionError:
            return True
    return False


LOGISTIC = next(case for case in cases.GAUSSIAN if isinstance(case[1], LogisticSpec))
SUBSPACE = next(case for case in cases.GAUSSIAN if isinstance(case[1], RobustPCASpec))


def test_weights_that_go_anywhere_are_seen(monkeypatch):
    """The fault of an earlier version: weights at which one row's score is no number."""
    monkeypatch.setattr(Classifier, "__post_init__", lambda _: None)
    assert caught(LOGISTIC)


def test_answers_of_any_size_lead_nowhere_either(monkeypatch):
    """Statistics are total in their points: this holds without the bound on what a site answers, too."""
    monkeypatch.setattr(pooling, "_FURTHEST", np.inf)
    assert not caught(SUBSPACE, LARGEST)
