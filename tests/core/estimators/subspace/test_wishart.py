"""Why the Wishart mechanism (Jiang, Xie and Zhang 2016) is not among the starts of robust PCA.

It releases A + W, A = Σxxᵀ/n, W of the Wishart law with D + 1 degrees of freedom and covariance 3/(2nε)·I,
and claims (ε, 0). But what is released less the true A is positive definite, and less a neighbour's need not
be: there the loss is infinite. Others found it likewise; diffprivlib removed it (its issues 23 and 42).
"""

from math import exp, sqrt

import numpy as np
import pytest

DRAWS, DIM, N = 4_000, 5, 1_000


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_releases_that_a_neighbour_could_not_have_made_are_common(epsilon: float) -> None:
    """With y the new record, less W's own part: P(yᵀW⁻¹y > n) = P(χ²₂ < 2ε/3) = 1 − exp(−ε/3).

    Within 5 standard errors: a false alarm once in 10⁶. So δ is no less, whatever is claimed.
    """
    rng = np.random.default_rng(1)
    root = rng.standard_normal((DRAWS, DIM, DIM + 1)) * sqrt(3 / (2 * N * epsilon))
    w = root @ np.swapaxes(root, -1, -2)
    y = np.eye(DIM)[0]
    impossible = np.linalg.eigvalsh(w - np.outer(y, y) / N)[:, 0] < 0
    stated = 1 - exp(-epsilon / 3)
    assert abs(impossible.mean() - stated) < 5 * sqrt(stated * (1 - stated) / DRAWS)

    # With the old record still in it, as replace-one has it, hardly less often.
    x = np.eye(DIM)[1]
    replaced = np.linalg.eigvalsh(w + np.outer(x, x) / N - np.outer(y, y) / N)[:, 0] < 0
    assert replaced.mean() > stated / 3
