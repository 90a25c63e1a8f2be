"""The options of a logistic regression."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from privest.options import Option, Options

DescentSolver = Literal["gd", "gd-opt", "hb", "hb-opt", "nag", "nag-opt", "masg", "masg-opt"]

DESCENTS: tuple[str, ...] = get_args(DescentSolver)

Solver = Literal["newton", "clipped", "escape", "spider"] | DescentSolver

NonconvexLoss = Literal["sigmoid", "savage", "logistic-nonconvex"]

Loss = Literal["logistic"] | NonconvexLoss

Standardisation = Literal["public", "private"]


@dataclass(frozen=True)
class LogisticSpec(Options):
    """A linear classifier to be estimated; of the choices, what is left out follows from public facts."""

    solver: Annotated[
        Solver | None,
        Option(
            "`newton` (noisy gradients and Hessians, which also tell how far off coefficients are), "
            "`clipped` (descent on clipped gradients, for much noise), or a descent: `gd`, `hb` (heavy "
            "ball), `nag` (Nesterov), `masg` (in stages of shrinking steps), of which `gd-opt`, `hb-opt`, "
            "`nag-opt` and `masg-opt` divide the noise and count the steps by the bound on their error, "
            "and `hb-opt` chooses its momentum by it; by default `newton` for "
            "two classes of records enough, else `clipped`. With another loss than `logistic` it is "
            "`escape`, or `spider` if it is asked for, which sees each record once and has its guarantee "
            "where there are very many"
        ),
    ] = None
    penalty: Annotated[
        float | None,
        Option(
            "λ of λ|w|², for features in units of the norm bound: by default 0.01 for descents, and for "
            "`newton` what scikit-learn's default comes to on standardised features, next to none with many "
            "records, and none on the intercept; with `logistic-nonconvex` of λ Σ w²/(1 + w²), by default "
            "0.001; not of `clipped` nor of the bounded losses",
            ge=0,
            le=1e6,
        ),
    ] = None
    steps: Annotated[int | None, Option("of a descent; with `-opt` the most of them", ge=1)] = None
    step_scale: Annotated[float | None, Option("c of step lengths c/L", gt=0, le=1)] = None
    batch_size: Annotated[
        int | None,
        Option("of a descent's random batches, expected or exact; by default all records", ge=1),
    ] = None
    intercept: Annotated[bool, Option("whether there is one")] = True
    standardisation: Annotated[
        Standardisation | None,
        Option(
            "of features, by the schema's `mean` and `scale`; `private` takes these for the middle and half "
            "the width of bounds, and 15 % of the budget to find how far features spread within them, or "
            "35 % where columns of a table lack `low` or `high`; by default `private` on a table where the "
            "noise allows it, else `public`"
        ),
    ] = None
    sampling_errors: Annotated[
        bool,
        Option(
            "learn what the sampling of rows adds to the errors: with `newton` that is known in any case, of "
            "other solvers it takes a fifth of the budget"
        ),
    ] = False
    loss: Annotated[
        Loss,
        Option(
            "`sigmoid` and `savage` are bounded, so that a wrong label cannot pull for ever; "
            "`logistic-nonconvex` has a bounded penalty; these three are for two classes",
            omit_default=True,
        ),
    ] = "logistic"
    momentum: Annotated[
        float | None,
        Option(
            "β of `hb` and `hb-opt`: by default the best without noise, and of `hb-opt` the best with it",
            ge=0,
            le=0.999,
            omit_default=True,
        ),
    ] = None
