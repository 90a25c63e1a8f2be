"""One estimate over datasets of several owners, each with a gate, a privacy target and a cost of its own.

Suppose all gates answer the same query, and their answers are pooled with weights w. If owner i has n_i
records and spends μ_i, the noise on its mean is c/(n_i·μ_i) for some c. The noise on the pooled mean is

    c·√(Σ w_i²/(n_i·μ_i)²) = c/(N·μ),  N = Σ n_i.

This equation defines μ. An estimator plans one common course for N records and this μ. Every owner's gate
gets the course's releases with its own noise: each spends the same share of μ_i² as it does of μ² in the
course. So any estimator works over several owners unchanged. With δ = 0, ε takes the place of μ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum, inf, isfinite, sqrt
from typing import Generic, TypeVar

import numpy as np

from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest.estimators.base import BasePlan, Finding
from privest.estimators.uncertainty import ExpectedError
from privest.optim.pooling import Exchange, Joined, Pooled, Replayed
from privest.privacy.accounting import Cost, PrivacyTarget, epsilon_for, epsilon_within, mu_for
from privest.privacy.budget import certified, gaussian_budgets, left_of
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import (
    AlternativeSum,
    NoisySum,
    Release,
    SubsampledRun,
    SubsampledSum,
    noisy_sum,
    subsampled_sum,
    unamplified,
)
from privest.privacy.oracle import Oracle

P = TypeVar("P", bound=BasePlan)
S = TypeVar("S", bound=DatasetMetadata)

_UNLIKE = 0.5
"""Assumed root mean square difference between two owners' means, relative to the bound on one record's
vector. docs/reproductions.md has the measurement."""

_STANDS_FOR = 1e-6
"""Largest δ of the common plan's target. This target only encodes a μ; nobody is promised it."""

_ANY_SLACK = 1e300
"""Slack per μ² of the common plan's target: no bound, of a budget whose noise stays Gaussian."""

_MOST_RELEASES = 10_000
"""Most releases of all datasets together. Each has its own noise, is stored and is shown."""

_MOST_ANSWERS, _MOST_NUMBERS = 1_000_000, 2_000_000_000
"""Most answers of all gates together, and most numbers in these answers. More would take minutes."""

_MOST_CERTIFIED = 400
"""Most blocks of random batches to certify for different owners. Each takes a twentieth of a second."""

_LEANS = 0.02
"""Least total difference between weights and shares of records at which the analyst is warned."""

_SAFE = 1 - 4e-9
"""Factor on an owner's budget. It covers the rounding with which the common target encodes its μ."""


@dataclass(frozen=True)
class Part:
    """One owner's part of a run over several datasets.

    Attributes:
        n: number of this owner's records.
        target: (ε, δ) for these records.
        releases: the course's noisy sums, with this owner's noise.
        cost: the certified cost of these releases together.
        warnings: warnings for this owner.
        mechanism: description of the noise. The default is for parts that were stored without one.
    """

    n: int
    target: PrivacyTarget
    releases: tuple[Release, ...]
    cost: Cost
    warnings: tuple[str, ...]
    mechanism: str = "noise on every sum that is released"


@dataclass(frozen=True)
class Federated(Generic[P]):
    """The plan of a run over several datasets, made before any row is read.

    Attributes:
        course: the estimator's plan for all records and the noise of the pooled answers.
        weights: weights of the owners' answers, which add up to one.
        parts: each owner's part.
        warnings: warnings for the analyst.
    """

    course: P
    weights: tuple[float, ...]
    parts: tuple[Part, ...]
    warnings: tuple[str, ...]

    @property
    def shapes(self) -> tuple[DatasetMetadata, ...]:
        """Public facts about each dataset."""
        return tuple(replace(self.course.shape, n=part.n) for part in self.parts)

    @property
    def target(self) -> PrivacyTarget:
        """(ε, δ) that holds for every record of every owner. A smaller one may hold for some owners."""
        targets = [part.target for part in self.parts]
        return PrivacyTarget(max(t.epsilon for t in targets), max(t.delta for t in targets))

    @property
    def cost(self) -> Cost:
        """A cost that holds for every record. Each owner is only charged the cost of its own part."""
        costs = [part.cost for part in self.parts]
        return Cost(max(c.mu_squared for c in costs), max(c.slack for c in costs))

    @property
    def shape(self) -> DatasetMetadata:
        """Public facts about all records together."""
        return self.course.shape

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistics that every gate may sum."""
        return self.course.statistics

    @property
    def releases(self) -> tuple[Release, ...]:
        """Releases of the part that is charged most."""
        return self.most.releases

    @property
    def most(self) -> Part:
        """The part that is charged most."""
        return max(self.parts, key=lambda part: part.cost.mu_squared)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.course.steps

    @property
    def expected_error(self) -> ExpectedError:
        """The error that the pooled noise is expected to cause, from public facts alone."""
        return self.course.expected_error

    @property
    def finding(self) -> Finding | None:
        """What finding costs, of the pooled noise."""
        return self.course.finding

    @property
    def mechanism(self) -> str:
        """Description of the noise for analysts."""
        return f"weighted means over {len(self.parts)} gates, of which the least noisy: {self.most.mechanism}"


Plan = BasePlan | Federated[BasePlan]
"""A plan on one dataset, or on several."""


def plan(
    plan_one: Callable[[S, PrivacyTarget], P],
    shapes: Sequence[S],
    targets: Sequence[PrivacyTarget],
) -> Federated[P]:
    """The plan of one estimate over several datasets, from public facts alone.

    Args:
        plan_one: an estimator's planner with the analyst's options.
        shapes: public facts about each dataset, which may differ in the number of records only.
        targets: (ε, δ) of each dataset.

    Raises:
        ValueError: the datasets cannot be pooled, or an option is out of range.
    """
    _refuse(shapes, targets)
    counts = np.array([shape.n for shape in shapes], dtype=np.float64)
    pure = targets[0].delta == 0
    spend = np.array([t.epsilon if pure else mu_for(t.epsilon, t.delta) for t in targets])
    whole = replace(shapes[0], n=int(counts.sum()))

    # All owners have one kind of noise: Gaussian where the budget of one of them counts μ².
    owned_by = next((each for each in targets if not each.adds_up), targets[int(np.argmax(spend))])
    best = plan_one(
        whole, replace(targets[int(np.argmax(spend))], slack_per_mu_squared=owned_by.slack_per_mu_squared)
    )
    if best.target.delta == 0 and not pure:
        return plan(plan_one, shapes, [PrivacyTarget(each.epsilon, 0.0) for each in targets])
    size = max(release.size for release in best.releases)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        # Beyond these limits the weights do not change any more.
        noise = np.clip(4.0 * size * (size + 1 if pure else 1) / (counts * spend) ** 2, 1e-100, 1e100)
        weights = _weights(counts, noise)
        worth = float(1 / np.linalg.norm(weights / (counts * spend)))
    course = plan_one(whole, _stands_for(worth, whole.n, pure=pure))
    require_owners(course, len(shapes))
    _refuse_long(course, shapes, targets)
    owned = zip(range(len(shapes)), shapes, targets, strict=True)
    parts = tuple(_part(course, place, shape.n, target) for place, shape, target in owned)
    warnings = [*course.warnings]
    for place, part in enumerate(parts, start=1):
        warnings += [f"dataset {place}: {told}" for told in part.warnings]
    if np.abs(weights - counts / counts.sum()).sum() / 2 > _LEANS:
        warnings.append(_leaning(weights, counts / counts.sum()))
    warnings.append(_of_somebody_in_all(parts))
    return Federated(course, tuple(weights.tolist()), parts, tuple(warnings))


def _refuse(shapes: Sequence[DatasetMetadata], targets: Sequence[PrivacyTarget]) -> None:
    """Refuse datasets that cannot be pooled."""
    facts = [asdict(shape) | {"n": 0} for shape in shapes]
    names = sorted({name for each in facts for name in each})
    if unlike := [name for name in names if any(each.get(name) != facts[0].get(name) for each in facts)]:
        raise ValueError(
            "datasets of one question must have the same schema; these differ in " + ", ".join(unlike)
        )
    without = [str(place) for place, target in enumerate(targets, start=1) if target.delta == 0]
    if 0 < len(without) < len(targets):
        raise ValueError(
            "delta must be 0 for all datasets or for none, as their noise is of one kind; it is 0 for number "
            f"{', '.join(without)}, by default where a budget has none: state it for each"
        )


def require_owners(course: BasePlan, count: int) -> None:
    """Refuse a plan that is not for so many owners.

    Raises:
        ValueError: it is for one dataset, or has more turns than there are owners.
    """
    if count > 1 and course.one_dataset:
        raise ValueError(course.one_dataset)
    if count < course.fewest_owners:
        raise ValueError(
            f"with {course.fewest_owners} turns there must be as many datasets, and here are {count}: "
            "ask for fewer turns"
        )


def _refuse_long(
    course: BasePlan, shapes: Sequence[DatasetMetadata], targets: Sequence[PrivacyTarget]
) -> None:
    """Refuse runs that take too long over this many datasets."""
    owners, releases = len(shapes), course.releases
    batches = sum(isinstance(release, SubsampledSum) for release in releases)
    turns = map(course.counts, range(owners))
    alike = len(set(zip((shape.n for shape in shapes), targets, turns, strict=True)))
    if (
        owners * len(releases) > _MOST_RELEASES
        or owners * sum(release.count for release in releases) > _MOST_ANSWERS
        or owners * sum(release.count * release.size for release in releases) > _MOST_NUMBERS
    ):
        raise ValueError("these are too many noisy sums over too many datasets: ask for fewer steps")
    if alike * batches > _MOST_CERTIFIED:
        raise ValueError("random batches are certified dataset by dataset, too long for as many: name fewer")


def _leaning(weights: Array, shares: Array) -> str:
    """The warning that weights differ from shares of records, which no stated error covers."""
    place = int(np.argmax(shares - weights))
    return (
        f"noisier datasets count for less: number {place + 1} has {shares[place]:.0%} of the records and "
        f"{weights[place]:.0%} of the weight. Where owners' records differ the answer leans to the others', "
        "by which it may be off by more than the errors say"
    )


def _stands_for(worth: float, n: int, *, pure: bool) -> PrivacyTarget:
    """The target for n records with `worth` = n·μ, or n·ε if `pure`."""
    delta = 0.0 if pure else min(_STANDS_FOR, n**-1.5)
    epsilon = 0.0
    if isfinite(worth):
        epsilon = worth / n if pure else epsilon_within(worth / n, delta)
    if not 0.0 < epsilon < inf:
        raise ValueError("these epsilons are too small or too large for a common plan")
    return PrivacyTarget(epsilon, delta, None if pure else _ANY_SLACK)


def _weights(counts: Array, noise: Array) -> Array:
    """The owners' weights for which the pooled mean is expected to be nearest to the mean of all records.

    Let the owners' means m_i differ independently by h = `_UNLIKE` in root mean square. Let their noisy means
    m̃_i have noise of variance v_i. For shares p_i of the records, E|Σ w_i·m̃_i − Σ p_i·m_i|² is
    Σ w_i²·v_i + h²·Σ (w_i − p_i)². Subject to Σ w_i = 1 it is least at w_i = (h²·p_i + λ)/(h² + v_i). With
    little noise these are the shares, with much noise they are proportional to 1/v_i.
    """
    shares, square = counts / counts.sum(), _UNLIKE**2
    kept = square * shares / (square + noise)
    found = kept + (1 - kept.sum()) / (square + noise) / np.sum(1 / (square + noise))
    return found / found.sum()


def _part(course: BasePlan, place: int, n: int, target: PrivacyTarget) -> Part:
    """The part of a course for the owner of n records at this place."""
    releases = _releases(course, course.counts(place), n, target)
    return Part(n=n, releases=releases, **certified(releases, course.statistics, target, n))


def _releases(course: BasePlan, counts: Sequence[int], n: int, target: PrivacyTarget) -> tuple[Release, ...]:
    """The releases of a course for one owner's n records and target, with the same shares of the budget.

    Random batches are certified together. Their noise keeps the course's proportions. An owner that makes
    some releases less often than the course, as `counts` says, has less noise on those of their statistic.
    """
    made = [(release, count) for release, count in zip(course.releases, counts, strict=True) if count]
    together = [(r, count) for r, count in made if isinstance(r, SubsampledSum) and r.noise == "gaussian"]
    if target.delta == 0:
        ratio = target.epsilon / course.target.epsilon
    elif together:
        ratio = gaussian_budgets(target)[0][0] / gaussian_budgets(course.target)[0][0]
    else:
        ratio = mu_for(target.epsilon, target.delta) / mu_for(course.target.epsilon, course.target.delta)
    batches = iter(_batches(course, together, n, target, ratio) if together else ())
    found = list[Release]()
    for release, count in made:
        if isinstance(release, NoisySum):
            full = _full(release, count, n, ratio * _SAFE * _freed(course, counts, release.statistic))
            alternative = isinstance(release, AlternativeSum)
            found.append(AlternativeSum.of(full, release.run, full.statistic) if alternative else full)
        elif not isinstance(release, SubsampledSum):
            raise ValueError("spider works on one dataset only: name one, or ask for the solver escape")
        elif release.noise == "gaussian":
            found.append(next(batches))
        else:
            found.append(_pure_batches(release, n, ratio * _SAFE))
    return tuple(found)


def _freed(course: BasePlan, counts: Sequence[int], statistic: str) -> float:
    """Factor on the loss of each release of a statistic, for an owner that makes them less often.

    Plans in which owners take turns have Gaussian noise alone, so that squares of losses add up.
    """
    alike = [
        (r.cost.mu_squared, count / r.count)
        for r, count in zip(course.releases, counts, strict=True)
        if isinstance(r, NoisySum) and r.statistic == statistic
    ]
    if all(share == 1.0 for _, share in alike):
        return 1.0
    return sqrt(fsum(whole for whole, _ in alike) / fsum(whole * share for whole, share in alike))


def _full(release: NoisySum, count: int, n: int, ratio: float) -> NoisySum:
    return noisy_sum(
        release.noise,
        n=n,
        size=release.size,
        clip=release.clip,
        loss=release.sensitivity / release.scale * ratio,
        count=count,
        statistic=release.statistic,
        diameter=release.diameter,
    )


def _rate(release: SubsampledSum, n: int) -> float:
    """The rate of a release for n records. Batches of fixed size have a whole number of records."""
    return release.rate if release.scheme == "poisson" else max(1, round(release.rate * n)) / n


def _sampled(release: SubsampledSum, n: int, run: SubsampledRun) -> SubsampledSum:
    return subsampled_sum(
        run, statistic=release.statistic, n=n, size=release.size, clip=release.clip, law=release.noise
    )


def _pure_batches(release: SubsampledSum, n: int, ratio: float) -> SubsampledSum:
    rate = _rate(release, n)
    noise = 2 / unamplified(release.epsilon * ratio, rate, release.scheme)
    return _sampled(release, n, SubsampledRun(release.scheme, rate, noise, release.count))


def _batches(
    course: BasePlan,
    together: Sequence[tuple[SubsampledSum, int]],
    n: int,
    target: PrivacyTarget,
    ratio: float,
) -> list[SubsampledSum]:
    from privest.privacy.subsampling import noises_for  # noqa: PLC0415 - heavy, and for batches alone

    full = fsum(r.cost.mu_squared for r in course.releases if isinstance(r, NoisySum))
    left = left_of(gaussian_budgets(target), full * ratio**2)
    first, rate = together[0][0], _rate(together[0][0], n)
    sized = tuple((k, r.scale / r.sensitivity * first.sensitivity / first.scale) for r, k in together)
    allowed = tuple((mu * _SAFE, slack) for mu, slack in left)
    runs = noises_for(first.scheme, rate, sized, allowed, max(r.apart for r, _ in together))
    return [_sampled(release, n, run) for (release, _), run in zip(together, runs, strict=True)]


def _of_somebody_in_all(parts: Sequence[Part]) -> str:
    """The warning about people with a record in every dataset. Finding out who they are would read rows."""
    delta = fsum(part.target.delta for part in parts)
    if delta == 0:
        epsilon = fsum(part.target.epsilon for part in parts)
    else:
        slack = fsum(part.cost.slack for part in parts)
        mu = sqrt(fsum(part.cost.mu_squared for part in parts))
        epsilon = epsilon_for(mu, min(delta - slack, 1 - 1e-9))
    return (
        "each owner's guarantee is on its own records: somebody with a record in every one of these datasets "
        f"has them all together, epsilon {epsilon:.3g} at delta {min(delta, 1.0):.2g}"
    )


R = TypeVar("R")


def run(planned: Federated[P], run_one: Callable[[P, Oracle], R], gates: Sequence[Oracle]) -> R:
    """The answer of an estimator's own `run_one` to the pooled answers of all gates, one gate per owner."""
    return run_one(planned.course, Pooled(gates, planned.weights, _share(planned)))


def run_joined(
    planned: Federated[P],
    run_one: Callable[[P, Oracle], R],
    gate: Oracle,
    place: int,
    exchange: Exchange,
    seed: int,
) -> R:
    """The answer of `run` where one owner's gate is: the other gates are behind an exchange of answers.

    Args:
        planned: the plan, the same in all places.
        run_one: the estimator's own.
        gate: of this owner, with the releases of its part.
        place: of this owner among the parts.
        exchange: with the others.
        seed: of choices that all places make alike, such as a random iterate. It is public.

    Raises:
        ValueError: what the exchange gave is no answer.
    """
    choices = np.random.default_rng(seed)
    return run_one(planned.course, Joined(gate, place, _share(planned), exchange, choices))


def replay(
    planned: Federated[P],
    run_one: Callable[[P, Oracle], R],
    answers: Iterable[tuple[str, Array]],
    seed: int,
) -> R:
    """The answer of `run_joined` once more, from the pooled answers of a run with their names, in order.

    Raises:
        ValueError: they are not all that such a run exchanges, or more.
    """
    left = iter(answers)
    answer = run_one(planned.course, Replayed(left, _share(planned), np.random.default_rng(seed)))
    if next(left, None) is not None:
        raise ValueError("the record is not of this run: it has more answers")
    return answer


def _share(planned: Federated[P]) -> float:
    """Share of all records whose unweighted mean has the sampling error of the weighted one."""
    counts, weights = np.array([part.n for part in planned.parts]), np.array(planned.weights)
    return min(1.0, float(1 / np.sum(weights**2 / counts) / counts.sum()))
