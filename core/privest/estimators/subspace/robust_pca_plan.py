"""The plan, the forecast and the answer of robust PCA."""

from dataclasses import dataclass
from typing import Annotated, Literal

from privest.arrays import Array
from privest.data.metadata import VectorsMetadata
from privest.estimators.subspace.plan import AngleError, NamedRows, SubspacePlan
from privest.estimators.subspace.robust_pca_planning import statistics_of
from privest.estimators.subspace.robust_pca_spec import Loss, Solver
from privest.estimators.subspace.solvers import Start
from privest.optim.variance_reduction import Epochs
from privest.options import Doc
from privest.privacy.clipped_sums import AnyStatistic


@dataclass(frozen=True)
class SubspaceError(AngleError):
    """Length of the vector of principal angles by which the noise turns the answer, in radians."""


@dataclass(frozen=True)
class Subspace(NamedRows):
    """The private subspace."""

    center: Annotated[
        Array | None,
        Doc(
            "of the affine subspace, where one was asked for: a noisy mean in which no row pulls by more "
            "than half the norm bound",
            axes=(1,),
        ),
    ]
    explained: Annotated[
        Array | None,
        Doc(
            "where they were asked for: the mean squares of the rows along the columns, each row less the "
            "centre and divided by its length; noisy, and of all rows, near and far",
            axes=(1,),
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class RobustPCAPlan(SubspacePlan):
    """A plan of a robust PCA.

    Attributes:
        loss: of a row's distance; `adaptive` if released distances choose it.
        scale: c of the loss, where it has one.
        solver: which runs.
        start: from where; None for solvers that start in the middle of all subspaces.
        consensus: whether the start is chosen among candidates.
        center: whether a centre is estimated.
        center_step: of the steps towards it.
        explained: whether shares of variance are estimated.
        epochs: the loops of `rsvrg`, all of whose steps have the one length in `step_sizes`.
        descends_twice: whether the steps are those of two descents, whose distance tells their error.
    """

    shape: VectorsMetadata
    expected_error: SubspaceError
    loss: Loss | Literal["adaptive"]
    scale: float
    solver: Solver
    start: Start | None
    consensus: bool
    center: bool
    center_step: float
    explained: bool
    descends_twice: bool = False
    epochs: Epochs | None = None
    why: Annotated[str, Doc("this start")]

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return statistics_of(self.shape, self.rank, self.solver, self.start, self.scales)
