"""A choice among classifiers: its bill, who wins, what a candidate sees, and where there is no choice."""

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import mpmath
import numpy as np
import pytest
from pydantic import TypeAdapter

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.linear_model import classifier_selection, logistic_regression
from privest.estimators.linear_model.candidate import Candidate
from privest.estimators.linear_model.classifier_selection import (
    SelectionPlan,
    SelectionSpec,
    plan,
    run,
)
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswersOfEach
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate, GateExhaustedError
from testing.accounting import drawn_laplace, within_request
from testing.noise import RecordedNoise, ScriptedNoise

N = 4_000
SHAPE = LabelledMetadata(
    N, ("noise", "signal", "more"), "y", ("a", "b"), mean=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0)
)
WORSE, BETTER = Candidate(features=("noise",)), Candidate(features=("signal", "more"))
MIXED = (
    Candidate(),
    Candidate(solver="newton", penalty=0.1),
    Candidate(solver="clipped", features=("signal",)),
    Candidate(solver="gd", penalty=0.1, steps=5),
    Candidate(loss="sigmoid", sampling_errors=False),
)


def rows(n=N, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    score = 1.5 * x[:, 1] + 0.5 * x[:, 2] + rng.logistic(size=n)
    return np.column_stack([x, np.digitize(score, np.linspace(-1, 1, classes + 1)[1:-1]).astype(float)])


def planned_for(*candidates, epsilon=3.0, delta=1e-6, shape=SHAPE):
    return plan(SelectionSpec(candidates), shape, PrivacyTarget(epsilon, delta))


def answered(planned, noise=None, data=None):
    gate = Gate(
        Records(rows() if data is None else data, threads=1), planned.statistics, planned.releases, noise
    )
    return run(planned, gate), gate


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_noise_drawn_pays_for_the_plan(delta, classes):
    """What was drawn costs no more than stated, by diameters that are worked out here for the scores."""
    shape = replace(SHAPE, classes=tuple("abc"[:classes]))
    candidates = MIXED if classes == 2 else MIXED[:-1]
    planned = planned_for(*candidates, epsilon=5.0, delta=delta, shape=shape)
    assert planned.chooses
    source = RecordedNoise()
    found, gate = answered(planned, source, rows(classes=classes))
    assert gate.remaining == 0
    assert gate.answered <= planned.steps
    taken = [r for r in planned.releases if getattr(r, "run", found.winner) == found.winner]
    owed = [("laplace" if delta == 0 else "gaussian", r.scale, r.size) for r in taken for _ in range(r.count)]
    assert sorted(source.drawn) == sorted(owed)
    spent, epsilon = mpmath.mpf(0), Fraction(0)
    for r in taken:
        widest = sqrt(len(candidates)) if r.statistic == "scores" else r.diameter
        ratio = Fraction(widest) / Fraction(r.scale)
        epsilon += r.count * ratio
        spent += (
            drawn_laplace([(ratio, r.size)] * r.count)
            if delta == 0
            else r.count * mpmath.mpf(float(ratio)) ** 2
        )
    assert spent <= planned.cost.mu_squared
    if delta:
        within_request(planned)
        assert spent >= 0.99 * planned.cost.mu_squared
    else:
        assert 0.95 * 5.0 <= epsilon <= 5.0


def test_no_second_large_fit_is_answered():
    planned = planned_for(*MIXED)
    found, gate = answered(planned)
    for statistic in planned.statistics:
        with pytest.raises(GateExhaustedError):
            gate.mean(None, statistic)
    assert found.winner in range(len(MIXED))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_clearly_better_candidate_wins_wherever_it_stands(delta):
    """The margin is of more than twenty standard errors."""
    for place in range(3):
        candidates = [WORSE, Candidate(features=("noise",), solver="clipped")]
        candidates.insert(place, BETTER)
        found, _ = answered(planned_for(*candidates, epsilon=8.0, delta=delta))
        assert found.winner == place
        assert found.features == ("signal", "more")
        assert found.label == "y"
        assert found.coefficients.shape == (2,)
        assert found.scores[place] > np.delete(found.scores, place).max() + 0.1


def test_the_first_candidate_is_kept_within_the_noise():
    deviation = 0.01
    margin = 3 * sqrt(2) * deviation
    for lead, winner in ((-0.3, 0), (0.0, 0), (0.99 * margin, 0), (1.01 * margin, 2)):
        scores = np.array([0.6, 0.1, 0.6 + lead])
        assert classifier_selection._winner(scores, deviation) == winner


def test_scores_without_noise_are_shares_of_right_answers_of_the_small_fits():
    planned, data = planned_for(*MIXED), rows()
    found, _ = answered(planned, ScriptedNoise())
    for place, fit in enumerate(planned.fits.small):
        places = MIXED[place].places(SHAPE)
        own = data[:, [*places, -1]]
        alone = logistic_regression.run(
            fit, Gate(Records(own, threads=1), fit.statistics, fit.releases, ScriptedNoise())
        )
        right = np.mean((own[:, :-1] @ alone.coefficients + alone.intercept > 0) == own[:, -1])
        assert found.scores[place] == pytest.approx(right, abs=1e-6)


def test_the_answer_is_that_of_its_own_question_on_what_is_left():
    planned = planned_for(WORSE, BETTER)
    found, _ = answered(planned, ScriptedNoise())
    large = planned.fits.large[1]
    own = Records(np.ascontiguousarray(rows()[:, 1:]), threads=1)
    alone = logistic_regression.run(large, Gate(own, large.statistics, large.releases, ScriptedNoise()))
    np.testing.assert_allclose(found.coefficients, alone.coefficients, rtol=1e-6)
    assert large.target.epsilon < planned.target.epsilon
    assert found.uncertainty.radius_95 == pytest.approx(alone.uncertainty.radius_95)


def test_candidates_of_a_table_name_columns():
    columns = (
        Column("sex", "category", categories=("f", "m"), missing="category"),
        Column("age", "number", 0.0, 100.0),
        Column("ill", "boolean"),
        Column("weight", "number"),
    )
    table = TableMetadata(50_000, columns)
    shape = metadata_for(LabelledMetadata, table, TableChoice(label="ill"))
    candidates = (Candidate(), Candidate(features=("weight", "sex")), Candidate(features=("age",)))
    planned = planned_for(*candidates, shape=shape)
    assert candidates[1].shape(shape).features == ("sex=m", "sex missing", "weight")
    assert candidates[1].places(shape) == (0, 1, 3)
    data = shape.recipe(table.dummy(50_000, np.random.default_rng(0)))
    data[:, -1] = data[:, 0]
    data[data[:, 1] == 1, -1] = 0.0
    found, _ = answered(planned, data=data)
    assert set(found.features) <= set(shape.features)
    assert found.coefficients.shape == (len(found.features),)
    assert found.in_columns(shape.recipe, planned.expected_error) is found


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_with_little_budget_the_first_is_fitted_with_all_of_it(delta):
    planned = planned_for(*MIXED, epsilon=0.1, delta=delta)
    alone = logistic_regression.plan(MIXED[0].spec, SHAPE, PrivacyTarget(0.1, delta))
    assert (planned.chooses, planned.score_error) == (False, None)
    assert planned.warnings[0].startswith("there is no choice")
    assert planned.cost == alone.cost
    assert [r.scale for r in planned.releases] == [r.scale for r in alone.releases]
    found, _ = answered(planned)
    assert (found.winner, found.scores.size, found.score_error) == (0, 0, None)


def test_scores_take_no_more_than_they_need():
    for n, most in ((3_000, 0.05), (10**6, 0.001)):
        planned = planned_for(*MIXED, epsilon=4.0, shape=replace(SHAPE, n=n))
        share = planned.fits.scores.cost.mu_squared / planned.cost.mu_squared
        assert share <= most * (1 + 1e-9)
        assert planned.score_error <= 0.01
    assert planned.score_error == pytest.approx(0.002, rel=1e-6)


def test_asking_for_each_costs_more():
    planned = planned_for(*MIXED)
    assert planned.each_alone > planned.target.epsilon * 1.5
    pure = planned_for(*MIXED, epsilon=5.0, delta=0.0)
    assert pure.each_alone == pytest.approx(5 * 0.85 * 5.0)


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([Candidate()], "candidates must be 2 to 20"),
        ([Candidate(penalty=0.01 * k, solver="newton") for k in range(21)], "candidates must be 2 to 20"),
        ([Candidate(), Candidate()], "candidates must differ"),
        ([Candidate(), Candidate(solver="spider", loss="sigmoid")], r"candidates\[1\]: the solver spider"),
        (
            [Candidate(), Candidate(solver="gd", batch_size=9)],
            r"candidates\[1\]: the solver spider and batch",
        ),
        ([Candidate(penalty=0.1, solver="clipped"), Candidate()], r"candidates\[0\]: penalty belongs"),
        ([Candidate(), Candidate(features=("age",))], r"candidates\[1\]: the question has no feature age"),
        ([Candidate(), Candidate(features=())], r"candidates\[1\]: features must name at least one"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(candidates, said):
    with pytest.raises(ValueError, match=said):
        planned_for(*candidates)


def test_a_refusal_does_not_depend_on_whether_there_is_a_choice():
    wrong = Candidate(features=("age",))
    for epsilon in (0.01, 8.0):
        with pytest.raises(ValueError, match=r"candidates\[1\]: the question has no feature age"):
            planned_for(Candidate(), wrong, epsilon=epsilon)


def test_plans_keep_through_json():
    kept = TypeAdapter(SelectionPlan)
    planned = planned_for(*MIXED)
    again = kept.validate_json(kept.dump_json(planned))
    assert again == planned
    assert again.fits.releases is not None


def test_a_plan_of_another_version_is_not_run():
    planned = planned_for(*MIXED)
    other = replace(planned, releases=(replace(planned.releases[0], scale=1.0), *planned.releases[1:]))
    with pytest.raises(ValueError, match="another version"):
        _ = other.statistics


def test_ties_and_overflow_are_counted_for_each_alone():
    points = [LinearScores(np.array([sign, -sign]), np.array(0.0)) for sign in (1.0, -1.0, 10.0)]
    data = np.array([[1, 1, 0], [2, 1, 1], [1, 2, 0], [1e308, -1e308, 1.0]])
    counts = [RightAnswersOfEach(3).clipped_sum(points, row[None], sqrt(3)) for row in data]
    assert np.array(counts).tolist() == [[1, 1, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0]]
