"""The options of a Fréchet mean."""

from dataclasses import dataclass
from typing import Annotated

from privest.arrays import NestedList
from privest.estimators.frechet_mean.planning import Solver
from privest.optim.federated import LocalSteps, ServerStep
from privest.optim.loops import FullNoise
from privest.options import Option, Options
from privest.privacy.mechanisms import Scheme


@dataclass(frozen=True)
class FrechetMeanSpec(Options):
    """A Fréchet mean to be estimated; of its choices, what is left out follows from public facts."""

    start: Annotated[
        NestedList | None, Option("first iterate, as nested lists; the public centre by default")
    ] = None
    clip: Annotated[
        float | None,
        Option(
            "C₀, the distance by which one record pulls at most; by default `rgd` finds one in the run, and "
            "others take the public radius",
            gt=0,
            le=1e6,
        ),
    ] = None
    step_size: Annotated[float | None, Option("η of every step", gt=0, le=100)] = None
    steps: Annotated[int | None, Option("number of steps; of `rsvrg` in an epoch", ge=1)] = None
    solver: Annotated[
        Solver | None,
        Option(
            "of columns of a table one sum over their declared bounds (`noisy-sum`), by default with closer "
            "bounds where these surely win (`clipped-sum`); of other data full gradients (`rgd`, the "
            "default), random batches (`rsgd`), or both (`rsvrg`)"
        ),
    ] = None
    rate: Annotated[float | None, Option("probability of a record in a batch", gt=0, le=1)] = None
    sampling: Annotated[Scheme, Option("how batches are drawn")] = "poisson"
    epochs: Annotated[int | None, Option("of `rsvrg`: number of epochs, S", ge=1)] = None
    restarts: Annotated[int | None, Option("of `rsvrg`: number of restarts, K", ge=1)] = None
    clip_change: Annotated[
        float | None,
        Option(
            "of `rsvrg`: C₁, bound on a record's change of gradient in an epoch; by default it and the "
            "loops are those of the least expected error, and C₀ with restarts or noise at every step",
            gt=0,
            le=1e6,
        ),
    ] = None
    full_noise: Annotated[
        FullNoise, Option("of `rsvrg`: noise on full gradients once an epoch, or at every step")
    ] = "epoch"
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0
    diagnostics: Annotated[
        bool,
        Option(
            "whether to spend a tenth of the budget or two on how far the answer may be off; without it "
            "nothing is told of what the clip cuts off, and no clip is found",
            omit_default=True,
        ),
    ] = True

    @property
    def is_default(self) -> bool:
        """Whether nothing but the solver was chosen."""
        return self == FrechetMeanSpec(solver=self.solver)

    @property
    def finds_clip(self) -> bool:
        """Whether nothing was asked for that a descent which finds its clip would not keep to."""
        chosen = (self.clip, self.steps, self.step_size)
        return (
            self.diagnostics
            and chosen == (None,) * 3
            and self.local_steps == 1
            and self.solver in (None, "rgd")
        )
