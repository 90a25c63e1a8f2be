"""A run over gates in several places is the run over the same gates in one place, bit for bit."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict

import numpy as np
import pytest

from privest.estimators import federation
from privest.optim.pooling import Joined, weighted
from testing.noise import ScaledNoise
from testing.server import HANG_GUARD
from tests.core.estimators import test_federation as cases

SEED = 5
CASES = [
    *((case, cases.TARGETS) for case in [*cases.GAUSSIAN, *cases.BATCHES]),
    *((case, [cases.pure(target) for target in cases.TARGETS]) for case in cases.PURE),
]


class Meeting:
    """Where the places of a run meet: each brings its k-th answer, and all leave with the weighted sum."""

    def __init__(self, weights):
        self.weights, self.record = weights, []
        self._brought = [("", np.empty(0))] * len(weights)
        self._all = threading.Barrier(len(weights), self._pool, timeout=HANG_GUARD)

    def _pool(self):
        (name,) = {name for name, _ in self._brought}
        self.record.append((name, weighted([answer for _, answer in self._brought], self.weights)))

    def of(self, place):
        def exchange(name, own):
            self._brought[place] = name, own
            self._all.wait()
            return self.record[-1][1].copy()

        return exchange


def gates(plan):
    noises = [ScaledNoise(seed=[SEED, place]) for place in range(len(plan.parts))]
    return cases.gates_over(plan, cases.rows_for(plan), noises)


def joined(plan, run_one):
    """What each place of a run finds, and the record of what was exchanged."""
    meeting = Meeting(plan.weights)

    def at(place, gate):
        return federation.run_joined(plan, run_one, gate, place, meeting.of(place), SEED)

    with ThreadPoolExecutor(len(plan.parts)) as places:
        return list(places.map(at, *zip(*enumerate(gates(plan)), strict=True))), meeting.record


def bits(answer):
    if isinstance(answer, np.ndarray):
        return answer.tobytes()
    return repr(asdict(answer)) if hasattr(answer, "__dataclass_fields__") else repr(answer)


@pytest.mark.few(8)
@pytest.mark.parametrize(("case", "targets"), CASES, ids=[cases.named(case) for case, _ in CASES])
def test_every_place_and_the_record_of_answers_come_to_what_one_place_would(case, targets):
    plan = cases.planned(case, targets)
    run_one = case[0].run
    found, record = joined(plan, run_one)
    answers = {bits(answer) for answer in found}
    assert answers == {bits(federation.replay(plan, run_one, record, SEED))}
    if getattr(case[1], "solver", None) != "rsvrg":  # whose random iterate is drawn elsewhere
        assert answers == {bits(federation.run(plan, run_one, gates(plan)))}


def test_local_steps_are_exchanged_once_a_round():
    case = next(case for case in cases.GAUSSIAN if getattr(case[1], "local_steps", 1) > 1)
    plan = cases.planned(case)
    _, record = joined(plan, case[0].run)
    assert [name for name, _ in record] == ["pooled"] * case[1].steps
    assert sum(release.count for release in plan.parts[0].releases) == case[1].steps * case[1].local_steps


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda own: own[:-1], "no weighted sum"),
        (lambda own: np.append(own, 0.0), "no weighted sum"),
        (lambda own: own * np.nan, "no weighted sum"),
        (lambda own: own + np.inf, "no weighted sum"),
        (lambda own: own + 1.7e308, "no weighted sum"),
    ],
    ids=["short", "long", "nan", "inf", "huge"],
)
def test_what_is_no_pooled_answer_ends_a_run(given, why):
    """A hub may send what it likes."""
    case = cases.GAUSSIAN[0]
    plan = cases.planned(case)
    own = gates(plan)[0]
    with pytest.raises(ValueError, match=why):
        federation.run_joined(plan, case[0].run, own, 0, lambda _, answer: given(answer), SEED)


@pytest.mark.few(19)
@pytest.mark.parametrize("size", [0.0, 1e30, -1e99])
@pytest.mark.parametrize("case", cases.GAUSSIAN, ids=cases.named)
def test_lies_of_a_hub_end_in_an_answer_or_in_no_answer(case, size):
    """Where the arithmetic breaks off, the site tells that its run failed; nothing else can happen."""
    plan = cases.planned(case)
    own = gates(plan)[0]

    def lie(_, answer):
        return np.where(np.arange(answer.size).reshape(answer.shape) % 2, answer, size)

    with warnings.catch_warnings(), suppress(ValueError, ArithmeticError, np.linalg.LinAlgError):
        warnings.simplefilter("ignore", RuntimeWarning)
        federation.run_joined(plan, case[0].run, own, 0, lie, SEED)


def test_a_record_of_another_run_is_refused():
    case = cases.GAUSSIAN[0]
    plan = cases.planned(case)
    _, record = joined(plan, case[0].run)
    for other, why in (
        (record[:-1], "another answer here, or none"),
        ([("moment", record[0][1]), *record[1:]], "another answer here, or none"),
        ([*record, record[-1]], "more answers"),
    ):
        with pytest.raises(ValueError, match=why):
            federation.replay(plan, case[0].run, other, SEED)


def test_all_places_choose_alike_and_no_choice_comes_of_a_gate():
    choices = [Joined(None, place, 1.0, None, np.random.default_rng(SEED)) for place in (0, 1)]
    assert [choices[0].pick(100) for _ in range(9)] == [choices[1].pick(100) for _ in range(9)]
