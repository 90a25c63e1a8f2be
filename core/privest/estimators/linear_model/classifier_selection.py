"""The private choice of a linear classifier: small fits of all candidates, their scores, one large fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, sqrt
from typing import Annotated, Any

import numpy as np

from privest.arrays import Array
from privest.data.column_estimates import references
from privest.data.metadata import LabelledMetadata
from privest.data.tables import Recipe
from privest.estimators.base import BasePlan, Estimator, require
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.candidate import Candidate, Renamed, on_all, seen
from privest.estimators.linear_model.forecast import CoefficientError
from privest.estimators.linear_model.logistic_regression import LogisticPlan, LogisticRegression
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswersOfEach
from privest.estimators.uncertainty import ExpectedError
from privest.memo import memoized
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget, epsilon_for, mu_for
from privest.privacy.budget import PrivacyBudget, certified, part_of
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import AlternativeSum, NoisySum, Release
from privest.privacy.oracle import Oracle

FEWEST, MOST = 2, 20

SMALL_SHARE = 0.1
"""Share of ε or of μ² for all small fits together."""

_MOST_FOR_SCORES, _ENOUGH = 0.05, 0.002
"""Largest share for the scores, and the noise on a score below which they take less than that."""

_TOO_NOISY = 0.01
"""Noise on a score from which on a choice would be worse than none, on the tables that constants are chosen
on. Small fits are noisy there, too."""

_MARGIN = 3.0
"""A score must exceed the first candidate's by so many standard errors of their difference."""

_MOST_RELEASES = 4_000
"""Most releases of all fits. Each is stored and shown."""

_SCORES = "scores"


@dataclass(frozen=True)
class SelectionSpec(Options):
    """A linear classifier to be estimated: one of several, which the records decide among.

    The first candidate is the one to beat. Name first what you would ask for if you asked for one alone.
    """

    candidates: Annotated[
        tuple[Candidate, ...],
        Option("from 2 to 20, each like a question for a logistic regression", ge=FEWEST, le=MOST),
    ]


@dataclass(frozen=True)
class Fits:
    """The fits of a plan, each planned like a question of its own.

    Attributes:
        small: one for each candidate, or none where there is no choice.
        scores: the release of their shares of right answers.
        large: one for each candidate, of which the run makes one; the first alone where there is no choice.
    """

    small: tuple[LogisticPlan, ...]
    scores: NoisySum | None
    large: tuple[LogisticPlan, ...]

    @property
    def releases(self) -> Iterator[Release]:
        """All that the gate may release, in order."""
        for place, fit in enumerate(self.small):
            yield from (replace(each, statistic=_small(place, each.statistic)) for each in fit.releases)
        if self.scores is not None:
            yield self.scores
        for place, fit in enumerate(self.large):
            for each in fit.releases:
                assert isinstance(each, NoisySum)  # noqa: S101 - candidates have no batches
                name = _large(place, each.statistic)
                chosen = self.scores is not None
                yield AlternativeSum.of(each, place, name) if chosen else replace(each, statistic=name)


def _small(place: int, statistic: str) -> str:
    return f"small fit {place}: {statistic}"


def _large(place: int, statistic: str) -> str:
    return f"large fit {place}: {statistic}"


@memoized
def _fits(spec: SelectionSpec, shape: LabelledMetadata, target: PrivacyTarget) -> Fits:
    """The fits that public facts ask for.

    Raises:
        ValueError: a candidate is out of range.
    """
    count = len(spec.candidates)
    scores = _scores(shape, target, count, _MOST_FOR_SCORES)
    if scores.deviation > _TOO_NOISY:
        return Fits((), None, _planned(spec.candidates, shape, target)[:1])
    share = _MOST_FOR_SCORES * min(1.0, scores.deviation / _ENOUGH) ** (1 if target.delta == 0 else 2)
    return Fits(
        _planned(spec.candidates, shape, part_of(target, SMALL_SHARE / count), small=True),
        _scores(shape, target, count, share),
        _planned(spec.candidates, shape, part_of(target, 1 - SMALL_SHARE - share)),
    )


def _scores(shape: LabelledMetadata, target: PrivacyTarget, count: int, share: float) -> NoisySum:
    """The release of all candidates' shares of right answers."""
    right = RightAnswersOfEach(count)
    return PrivacyBudget.of(target, shape.n).release(right, _SCORES, right.longest, share=share)


def _planned(
    candidates: Sequence[Candidate], shape: LabelledMetadata, target: PrivacyTarget, *, small: bool = False
) -> tuple[LogisticPlan, ...]:
    """A plan of each candidate; that of a small fit learns nothing of sampling errors."""
    found = list[LogisticPlan]()
    for place, candidate in enumerate(candidates):
        try:
            spec = replace(candidate.spec, sampling_errors=candidate.sampling_errors and not small)
            found.append(logistic_regression.plan(spec, candidate.shape(shape), target))
        except ValueError as error:
            raise ValueError(f"candidates[{place}]: {error}") from None
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(BasePlan):
    """A plan of a choice among classifiers.

    Attributes:
        spec: the candidates.
    """

    shape: LabelledMetadata
    expected_error: CoefficientError
    spec: SelectionSpec

    @cached_property
    def _planned_fits(self) -> Fits:
        """The fits that its public facts ask for."""
        return _fits(self.spec, self.shape, self.target)

    @property
    def fits(self) -> Fits:
        """The fits with their releases.

        Raises:
            ValueError: another version of the program planned them otherwise.
        """
        fits = self._planned_fits
        if tuple(fits.releases) != self.releases:
            raise ValueError("this plan is of another version")
        return fits

    @property
    def one_dataset(self) -> str | None:
        """A choice is not pooled."""
        return "a choice among classifiers works on one dataset only: name one"

    @property
    def steps(self) -> int:
        """The most steps of a run that may see a record: how many there are depends on the choice."""
        fits = self._planned_fits
        return sum(fit.steps for fit in fits.small) + self.chooses + max(fit.steps for fit in fits.large)

    @property
    def chooses(
        self,
    ) -> Annotated[bool, Doc("whether there is a choice; if not the first candidate has the whole budget")]:
        """Whether there is a choice: else scores would be too noisy, and the first candidate is fitted."""
        return self.score_error is not None

    @property
    def score_error(self) -> Annotated[float | None, Doc("standard error of each score, by the noise")]:
        """Standard deviation of the noise on a score."""
        scores = [release for release in self.releases if release.statistic == _SCORES]
        return scores[0].deviation if scores else None

    @property
    def solvers(self) -> Annotated[tuple[str, ...], Doc("that fit the candidates, if they are chosen")]:
        """Solvers of the large fits."""
        return tuple(fit.solver for fit in self._planned_fits.large)

    @property
    def each_alone(
        self,
    ) -> Annotated[
        float | None,
        Doc("ε, at the same δ, of asking for every candidate with as little noise as the chosen one has"),
    ]:
        """What it would cost to ask for all candidates in questions of their own."""
        count, (large, *_) = len(self.spec.candidates), self._planned_fits.large
        if self.target.delta == 0:
            return count * large.target.epsilon
        found = epsilon_for(sqrt(count) * mu_for(large.target.epsilon, self.target.delta), self.target.delta)
        return found if isfinite(found) else None

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return _statistics(self.spec, self.shape, self.fits)


def _statistics(spec: SelectionSpec, shape: LabelledMetadata, fits: Fits) -> dict[str, AnyStatistic]:
    found: dict[str, AnyStatistic] = {_SCORES: RightAnswersOfEach(len(spec.candidates))}
    for named, plans in ((_small, fits.small), (_large, fits.large)):
        for place, fit in enumerate(plans):
            places = spec.candidates[place].places(shape)
            asked = {release.statistic for release in fit.releases}
            found |= {named(place, name): seen(fit.statistics[name], places) for name in asked}
    return found


@dataclass(frozen=True, kw_only=True)
class SelectedClassifier(LogisticRegression):
    """The private classifier that was chosen, for features in the units in which they were uploaded.

    Its errors are those of its own fit: that the same records chose it is in none of them.
    """

    winner: Annotated[int, Doc("place of the chosen one among the candidates, of which the first is 0")]
    scores: Annotated[
        Array,
        Doc(
            "share of right answers of each candidate's small fit, with noise, among the very records that "
            "it was fitted to: good for the choice, and flattering as an estimate; empty without a choice",
            axes=(1,),
        ),
    ]
    score_error: Annotated[float | None, Doc("standard error of each score, by the noise")]

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> "SelectedClassifier":
        """The classifier itself, which has the names of its own features already."""
        del recipe, expected
        return self


def plan(spec: SelectionSpec, shape: LabelledMetadata, target: PrivacyTarget) -> SelectionPlan:
    """Noise and exact cost of a private choice, from public facts alone.

    A record moves each of k scores by at most 1/n, so that noise of √k/(n·μ) on each makes all of them
    μ-Gaussian private. The large fits are alternatives: the run makes one, and all of them cost what the
    costliest does, as questions do that an analyst chooses by earlier answers.

    Raises:
        ValueError: candidates are out of range, in words fit for whoever named them.
    """
    count = len(spec.candidates)
    require(FEWEST <= count <= MOST, f"candidates must be {FEWEST} to {MOST}")
    require(len(set(spec.candidates)) == count, "candidates must differ")
    require(shape.n >= 1, "a classifier needs at least one record")
    fits = _fits(spec, shape, target)
    releases, statistics = tuple(fits.releases), _statistics(spec, shape, fits)
    require(len(releases) <= _MOST_RELEASES, "these are too many noisy sums: name fewer candidates or steps")
    told = [warning for fit in fits.large for warning in fit.warnings]
    private = certified(releases, statistics, target, shape.n)
    return SelectionPlan(
        target=target,
        cost=private["cost"],
        mechanism=_mechanism(fits),
        warnings=tuple(dict.fromkeys([*_warnings(fits, shape, target, count), *told, *private["warnings"]])),
        shape=shape,
        spec=spec,
        releases=releases,
        expected_error=max((fit.expected_error for fit in fits.large), key=lambda e: e.standard_deviation),
    )


def _mechanism(fits: Fits) -> str:
    first = fits.large[0].mechanism
    if fits.scores is None:
        return first
    return (
        f"{len(fits.small)} small fits with {SMALL_SHARE:.0%} of the budget together; noise of standard "
        f"deviation {fits.scores.deviation:.4g} on the share of right answers of each; and one large fit "
        f"with the rest, of the first candidate: {first}"
    )


def _warnings(fits: Fits, shape: LabelledMetadata, target: PrivacyTarget, count: int) -> Iterator[str]:
    if fits.scores is None:
        noise = _scores(shape, target, count, _MOST_FOR_SCORES).deviation
        yield (
            "there is no choice: the noise would move scores by "
            f"{min(noise, 1.0):.2g}, and choose nearly by chance. The first candidate is fitted with the "
            "whole budget. A larger epsilon, more records or fewer candidates make a choice worth its price"
        )


def run(planned: SelectionPlan, gate: Oracle) -> SelectedClassifier:
    """The private choice: sees the plan and the gate's noisy answers, never a row."""
    fits, shape, candidates = planned.fits, planned.shape, planned.spec.candidates

    def fitted(fit: LogisticPlan, names: dict[str, str]) -> LogisticRegression:
        return logistic_regression.run(fit, Renamed(gate, names))

    winner, scores = 0, np.empty(0)
    if fits.scores is not None:
        points = list[LinearScores]()
        for place, fit in enumerate(fits.small):
            found = fitted(fit, {name: _small(place, name) for name in fit.statistics})
            places = candidates[place].places(shape)
            points.append(LinearScores(on_all(found.coefficients, places, shape.dim), found.intercept))
        scores = gate.mean(points, _SCORES)
        winner = _winner(scores, fits.scores.deviation)
    chosen = fits.large[winner]
    found = fitted(chosen, {name: _large(winner, name) for name in chosen.statistics})
    recipe = chosen.shape.recipe
    told: dict[str, Any] = {**vars(found), "features": chosen.shape.features, "label": shape.label}
    told["references"] = None if recipe is None else references(recipe)
    return SelectedClassifier(**told, winner=winner, scores=scores, score_error=planned.score_error)


def _winner(scores: Array, deviation: float) -> int:
    """The candidate of the best score, or the first where that is not above its by more than noise is."""
    best = int(np.argmax(scores))
    return best if scores[best] - scores[0] > _MARGIN * sqrt(2) * deviation else 0


CLASSIFIER_SELECTION = Estimator(
    name="classifier-selection",
    schema_name="ClassifierSelection",
    title="classifier selection",
    summary="The best of several linear classifiers, chosen and fitted privately",
    plain_words=(
        "Tries several ways to fit a classifier, and answers with the one that is right most often. The"
        " trials are noisy and small, so that nearly all of the budget is left for the answer."
    ),
    metadata=LabelledMetadata,
    spec=SelectionSpec,
    plan_type=SelectionPlan,
    error=CoefficientError,
    answer=SelectedClassifier,
    planner=plan,
    run=run,
    shown=("chooses", "score_error", "solvers", "each_alone"),
    error_meaning="of all coefficients of standardised features together, root mean square; favourable case",
)
