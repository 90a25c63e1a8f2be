"""Other ways to draw a tangent Gaussian (Utpala et al. 2023, Section 6.1), none of which the package uses.

Each takes standard normal numbers, one for each dimension, and gives a tangent vector at `base` with
standard deviation 1 in every orthonormal direction.
"""

from math import log, sqrt

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from privest.arrays import Array
from privest.manifolds import Manifold

_ACCEPTED = 0.234
"""Share of proposals that the best random walk accepts; its step is 2.38/√d (Roberts, Gelman, Gilks 1997)."""


def reference_basis(space: Manifold) -> Array:
    """An orthonormal basis of the tangent space at the reference: (dim, *shape)."""
    axes = space.from_coordinates(space.reference, np.eye(space.coordinate_size))
    if space.coordinate_size == space.dim:
        return axes
    # The axes of the space around it, projected, span the tangent space: what is left is their range.
    flat = axes.reshape(len(axes), -1)
    vectors = np.linalg.eigh(flat)[1][:, -space.dim :]
    return np.ascontiguousarray(vectors.T).reshape(space.dim, *space.shape)


def explicit(space: Manifold, basis: Array, base: Array, normal: Array) -> Array:
    """The reference's basis, carried over whole and then combined."""
    if space.coordinate_size == space.dim:
        here = space.from_coordinates(base, np.eye(space.dim))
    else:
        here = space.transport_from_reference(base, basis)
    return (normal @ here.reshape(space.dim, -1)).reshape(space.shape)


def ambient_basis(space: Manifold, base: Array) -> Array:
    """A basis of the tangent space that is orthonormal in the space around it, or nearly: (dim, *shape)."""
    if space.name == "spd":
        return reference_basis(space)
    return space.project_tangent(base, np.eye(space.dim + 1)[1:])


def gram_schmidt(space: Manifold, basis: Array, base: Array, normal: Array) -> Array:
    """A basis made orthonormal under the metric: Gram–Schmidt as the Cholesky factor of its Gram matrix."""
    coordinates = space.coordinates(base, basis)
    factor = np.linalg.cholesky(coordinates @ coordinates.T)
    weights = solve_triangular(factor, normal, lower=True, trans="T", check_finite=False)
    return (weights @ basis.reshape(space.dim, -1)).reshape(space.shape)


def explicit_sparse(space: Manifold, base: Array, normal: Array) -> Array:
    """The basis at `base` as a sparse matrix, a column for each element, and then combined."""
    if space.name == "poincare-ball":
        gap = 1 - base @ base
        return np.asarray((sparse.identity(space.dim, format="csr") * (gap / 2)) @ normal)
    m, r = space.shape
    complement = np.linalg.qr(base, mode="complete")[0][:, r:]
    parts = [sparse.kron(sparse.identity(r), complement, format="csr")]
    if space.name == "stiefel":
        i, j = np.triu_indices(r, 1)
        turns = np.arange(len(i))
        skew = sparse.csr_matrix(
            (np.repeat([1.0, -1.0], len(i)) / sqrt(2), (np.r_[j * r + i, i * r + j], np.r_[turns, turns])),
            shape=(r * r, len(i)),
        )
        parts.append(sparse.kron(sparse.identity(r), base, format="csr") @ skew)
    columns = sparse.hstack(parts, format="csr")
    return (columns @ normal).reshape(r, m).T


class Metropolis:
    """Random-walk Metropolis on the tangent density at one SPD base point (Han et al. 2022, Section 3).

    Proposals are isotropic in the symmetric matrices, of the best length for the metric at `base`. In a
    solver the base changes each step, so that every sample is a chain of its own from zero.

    Attributes:
        steps: until the variance of the slowest direction is within `bias` of its limit.
    """

    def __init__(self, space: Manifold, base: Array, bias: float = 0.05) -> None:
        self._size = space.shape[0]
        self._inverse = np.linalg.inv(np.linalg.cholesky(base))
        # Its rows are the coordinates, orthonormal under the metric, of an orthonormal ambient basis.
        self.axes = space.coordinates(base, reference_basis(space))
        stiffness = np.linalg.eigvalsh(self.axes.T @ self.axes)
        self.length = 2.38 / sqrt(stiffness.sum())
        # The walk becomes an Ornstein–Uhlenbeck process, whose variance nears its limit at this rate.
        self.steps = int(log(1 / bias) / (self.length**2 * _ACCEPTED * stiffness[0])) + 1

    def sample(self, rng: np.random.Generator, steps: int | None = None) -> Array:
        """The last of `steps` states, one at a time as a solver needs them: (m, m)."""
        m = self._size
        steps = self.steps if steps is None else steps
        state, energy = np.zeros((m, m)), 0.0
        chances = -2 * np.log(rng.uniform(size=steps))
        for chance in chances:
            move = rng.standard_normal((m, m)) * (self.length / 2)
            # Symmetric, with standard deviation `length` in every orthonormal direction.
            proposal = state + move + move.T
            white = self._inverse @ proposal @ self._inverse.T
            raised = float(np.vdot(white, white))
            if raised - energy < chance:
                state, energy = proposal, raised
        return state

    def many(self, rng: np.random.Generator, count: int) -> Array:
        """Draw `count` chains side by side, in coordinates: (count, dim)."""
        dim = len(self.axes)
        state, energy = np.zeros((count, dim)), np.zeros(count)
        for _ in range(self.steps):
            proposal = state + self.length * rng.standard_normal((count, dim)) @ self.axes
            raised = np.vecdot(proposal, proposal)
            taken = raised - energy < -2 * np.log(rng.uniform(size=count))
            state[taken], energy[taken] = proposal[taken], raised[taken]
        return state
