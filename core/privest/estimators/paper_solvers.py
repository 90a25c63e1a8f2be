"""Access to the solvers of `privest_papers`: one function each, which imports a solver when it is chosen.

No other module of `privest` imports that package.
"""

from privest.estimators.linear_model.linear_solver import LinearSolver
from privest.estimators.subspace.completion_schedule import DataModel
from privest.estimators.subspace.solvers import SubspaceSolver


def reaper(dim: int, rank: int, name: str) -> SubspaceSolver:
    """Return the solver of this name that relaxes a subspace to a matrix."""
    from privest_papers.reaper import ReaperSolver

    return ReaperSolver(dim, rank, name)


def reaper_start(dim: int, rank: int) -> SubspaceSolver:
    """Return the mirror descent over the relaxation at whose end another descent starts."""
    from privest_papers.reaper import ReaperSolver

    return ReaperSolver(dim, rank, "md-reaper", "relaxed")


def subspace_rsvrg(dim: int, rank: int) -> SubspaceSolver:
    """Return the variance-reduced descent on squared distances from a subspace."""
    from privest_papers.subspace_rsvrg import SubspaceVarianceReduction

    return SubspaceVarianceReduction(dim, rank)


def completion_descent(rows: DataModel) -> SubspaceSolver:
    """Return the descent of matrix completion on such rows."""
    from privest_papers.completion_descent import CompletionDescent

    return CompletionDescent(rows)


def escape() -> type[LinearSolver]:
    """Return descent with one noisy Hessian halfway."""
    from privest_papers.escape import EscapeSolver

    return EscapeSolver


def spider() -> type[LinearSolver]:
    """Return descent that leaves saddle points (Liu and Talwar 2025)."""
    from privest_papers.spider import SpiderSolver

    return SpiderSolver


def accelerated_descent() -> type[LinearSolver]:
    """Return descents with momentum (Kuru et al. 2022)."""
    from privest_papers.accelerated import Descent

    return Descent
