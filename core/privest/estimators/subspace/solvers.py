"""The protocol of solvers of subspaces, and what they share: choices, planned steps, the course of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from privest.arrays import Array
from privest.optim.federated import Rounds
from privest.optim.variance_reduction import Epochs
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, Scheme, SubsampledSum
from privest.privacy.oracle import Oracle

Start = Literal["random", "analyze-gauss", "sketch", "reaper"]


@dataclass(frozen=True)
class Choices:
    """An analyst's choices of the steps; what is None is left to the solver.

    Attributes:
        steps: of the descent, or of an epoch.
        step_size: of the first step.
        local_steps: that every owner takes in a step.
        turns: in which owners take part.
        epochs: of variance-reduced steps.
        rate: probability of a record in a batch.
        sampling: how batches are drawn.
    """

    steps: int | None = None
    step_size: float | None = None
    local_steps: int = 1
    turns: int = 1
    epochs: int | None = None
    rate: float | None = None
    sampling: Scheme = "poisson"


@dataclass(frozen=True)
class PlannedDescent:
    """A planned descent.

    Attributes:
        releases: its noisy sums, in order.
        step_sizes: length of each step, or the one of all where there are epochs.
        forecast: square of the distance to expect at its end.
        twice: whether the steps are those of two descents.
        epochs: the loops of variance-reduced steps.
        start: the kind of start among the releases, if the solver makes one.
        why: the reason for the start or the descent, for the analyst; empty where another part states it.
    """

    releases: tuple[Release, ...]
    step_sizes: tuple[float, ...]
    forecast: float
    twice: bool = False
    epochs: Epochs | None = None
    start: Start | None = None
    why: str = ""


@dataclass(frozen=True)
class Course:
    """The part of a stored plan that a solver follows in a run.

    Attributes:
        rounds: the steps, as rounds of several owners.
        releases: of the whole run.
        asked: what a gate is asked for the negative gradient at a basis.
        center: (dim,) to be taken off the rows.
        epochs: the loops of variance-reduced steps.
    """

    rounds: Rounds
    releases: tuple[Release, ...]
    asked: Callable[[Array], object]
    center: Array | None = None
    epochs: Epochs | None = None


class SubspaceSolver(Protocol):
    """A solver of subspaces that is chosen by its name: what it plans, and how it runs that.

    The warnings of its plan follow from the forecast, as those of every subspace do.
    """

    @property
    def starts_itself(self) -> bool:
        """Return whether it plans and makes its own start, or needs none."""
        ...

    @property
    def usual_steps(self) -> int | None:
        """Steps that it takes where none are asked for; None where they follow from the budget."""
        ...

    @property
    def reads(self) -> int:
        """Products that a step takes for each entry of a row."""
        ...

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistics of its descent, by the names that releases use."""
        ...

    def plan(self, budget: PrivacyBudget, choices: Choices, *, left: float, error: float) -> PlannedDescent:
        """Plan releases, steps and forecast, from public facts alone.

        Args:
            budget: of the whole run.
            choices: the analyst's.
            left: share of the budget that the solver may spend.
            error: square of the distance at the start.
        """
        ...

    def run(self, gate: Oracle, start: Array | None, course: Course) -> Array:
        """Find the subspace by the gate's noisy answers.

        Args:
            gate: which owes the planned releases.
            start: (dim, rank) orthonormal columns; None for a solver that starts itself.
            course: what was planned.

        Returns:
            (dim, ·) orthonormal columns, of which the first `rank` span the subspace.
        """
        ...


def noisy_gradients(
    budget: PrivacyBudget,
    statistic: AnyStatistic,
    name: str,
    choices: Choices,
    *,
    batches: bool,
    share: float,
    count: int,
) -> tuple[NoisySum | SubsampledSum, float]:
    """Release the gradients of a descent; return it and the share of the records that each of them reads.

    Args:
        budget: of the whole run.
        statistic: of gradients.
        name: of the statistic in plans.
        choices: of which the rate and the sampling are for batches.
        batches: whether gradients are of random batches.
        share: of the budget.
        count: of gradients.
    """
    if not batches:
        return budget.release(statistic, name, 1.0, share=share, count=count), 1.0
    rate, scheme = budget.rate(choices.rate, choices.sampling), choices.sampling
    return budget.batches(statistic, name, 1.0, scheme=scheme, rate=rate, count=count, share=share), rate
