"""The options of a robust PCA."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from privest.estimators.subspace.solvers import Start
from privest.optim.federated import LocalSteps, ServerStep, Turns
from privest.options import Option, Options
from privest.privacy.mechanisms import Scheme

Loss = Literal["absolute", "squared", "bounded", "redescending"]
Solver = Literal["ggd", "sggd", "rsvrg", "gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper"]


@dataclass(frozen=True)
class RobustPCASpec(Options):
    """A subspace to be estimated; rows are put on the unit sphere, so that none counts more than another.

    Of the choices, what is left out follows from public facts.
    """

    rank: Annotated[int, Option("dimension of the subspace", ge=1, usual=2)]
    loss: Annotated[
        Loss,
        Option(
            "of a row's distance d: `absolute` d, `squared` d² (PCA), `bounded` d²/(c²+d²), "
            "`redescending` like d up to c and flat beyond"
        ),
    ] = "redescending"
    solver: Annotated[
        Solver,
        Option(
            "full gradients (`ggd`), random batches (`sggd`), both (`rsvrg`, with the loss `squared`), or "
            "descents over a convex relaxation of the subspace to a matrix, above 300 columns to one within "
            "the span of a noisy sketch"
        ),
    ] = "ggd"
    start: Annotated[
        Start | None,
        Option(
            "a public random subspace, the leading one of a noisy second moment or sketch, or where `reaper` "
            "arrives, which is `md-reaper`"
        ),
    ] = None
    consensus: Annotated[
        bool | None,
        Option("choose the start, by a bounded loss, among subspaces of one with a dimension more"),
    ] = None
    center: Annotated[
        bool | None,
        Option(
            "estimate a centre and take it off the rows. Where all columns of a table have bounds it is the "
            "columns' means, for 4.5 % of the budget; elsewhere a point within `norm_bound` that no far row "
            "moves much, for 15 %. By default of tables alone, whose first direction else leads from the "
            "bounds' middles to the means"
        ),
    ] = None
    steps: Annotated[int | None, Option("of the descent; of `rsvrg` in an epoch", ge=1)] = None
    step_size: Annotated[float | None, Option("of its first step", gt=0, le=1000)] = None
    scale: Annotated[
        float | None,
        Option("c of the losses `bounded` and `redescending`, as a share of a row's length", gt=0, le=1000),
    ] = None
    rate: Annotated[float | None, Option("probability of a record in a batch", gt=0, le=1)] = None
    sampling: Annotated[Scheme, Option("how batches are drawn")] = "poisson"
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0
    turns: Turns = 1
    halvings: Annotated[
        int | None,
        Option(
            "how often the descent may halve its step, by default 6 times: rows that lie on the subspace "
            "exactly pull as hard from near as from far, and each halving halves the error that they leave",
            ge=1,
            le=60,
            omit_default=True,
        ),
    ] = None
    epochs: Annotated[int | None, Option("of `rsvrg`: number of epochs, S", ge=1, omit_default=True)] = None
    explained: Annotated[
        bool | None,
        Option(
            "tell also the share of variance along each direction, which is the default: at no cost where a "
            "second moment is released (`start` is `analyze-gauss`), else for 5 % of the budget"
        ),
    ] = None
    adaptive: Annotated[
        bool,
        Option(
            "look at noisy distances first, for a tenth of the budget at most, and take plain PCA "
            "(`squared`) unless some rows stand out as near a subspace. Only with the loss `redescending`, "
            "up to 1,000 columns, and where no solver, start or anything of the descent is chosen. A table "
            "with columns of yes or no or of categories has plain PCA at once",
            omit_default=True,
        ),
    ] = True


_FREE = frozenset({"rank", "center", "explained", "adaptive"})
"""Options that leave the loss open where they are chosen."""


def leaves_open(spec: RobustPCASpec) -> bool:
    """Whether nothing of the descent was chosen, so that released numbers may choose its loss."""
    return all(field.name in _FREE or getattr(spec, field.name) == field.default for field in fields(spec))
