"""Whatever mix the ledger admits under (1, 1e-5): composed exactly by dp-accounting, its ε is at most 1.

Mixes are drawn from fixed seeds; noise and clips come from real plans, and no certificate is looked at.
"""

import functools
from collections import Counter
from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from privest.data.metadata import PointsMetadata, VectorsMetadata
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.mechanisms import Release, SubsampledSum
from privest_service.database import Database
from privest_service.estimates.catalogue import KINDS
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import BudgetExceeded
from testing.books import Books
from testing.laplace_losses import LaplaceLosses

SHAPES = {
    "line": PointsMetadata(4000, {"name": "euclidean", "dim": 1}, None, 1.0),
    "space": PointsMetadata(4000, {"name": "euclidean", "dim": 3}, None, 1.0),
    "vectors": VectorsMetadata(4000, 3, 1.0),
}
BUDGET = (1.0, 1e-5)
CELL = 1e-4
"""Width of a cell in distributions of losses; an ε from them is at most a few cells too high."""

SAMPLED: list[tuple[str, str, float, float, dict[str, Any]]] = [
    ("frechet-mean", "space", 0.3, 1e-6, {"solver": "rsgd", "rate": 0.05, "steps": 40}),
    ("frechet-mean", "space", 0.2, 2e-6, {"solver": "rsvrg"}),
    ("frechet-mean", "line", 0.5, 1e-7, {"solver": "rsgd", "rate": 0.3, "steps": 10}),
    ("robust-pca", "vectors", 0.25, 1e-6, {"rank": 1, "solver": "sggd", "start": "random"}),
]


@functools.cache
def plan(kind: str, shape: str, epsilon: float, delta: float, body: tuple[tuple[str, Any], ...]) -> Any:
    """The plan as the service makes it."""
    found = KINDS[kind]
    request = found.request.model_validate(
        {"dataset": {"id": "ds_x"}, "privacy": {"epsilon": epsilon, "delta": delta}} | dict(body)
    )
    return found.plan_for(found.options(request), [(SHAPES[shape], PrivacyTarget(epsilon, delta))])


def draw(rng: np.random.Generator, share: np.ndarray) -> Any:
    """A plan of full sums with Gaussian noise, of Laplace noise, or of Poisson batches."""
    which = rng.choice(3, p=share)
    if which == 2:
        kind, shape, epsilon, delta, body = SAMPLED[rng.integers(len(SAMPLED))]
        return plan(kind, shape, epsilon, delta, tuple(body.items()))
    shape = ("line", "space")[rng.integers(2)]
    steps = 1 if which == 1 else int(rng.integers(1, 6))
    epsilon = round(float(rng.uniform(0.01, 0.05 if which == 1 else 0.4)), 6)
    delta = 0.0 if which == 1 else float(10 ** rng.uniform(-9, -5.5))
    return plan("frechet-mean", shape, epsilon, delta, (("solver", "rgd"), ("steps", steps)))


# The exact distributions of losses, from noise and sensitivity alone


def exact_epsilon(releases: list[Release], delta: float) -> float:
    """ε of all together at this δ: by what the noise is, not by what it was certified for."""
    whole, mu_squared = pld.identity(CELL), 0.0
    for release, count in Counter(releases).items():
        times = count * release.count
        if isinstance(release, SubsampledSum):
            # Under replacement dp-accounting wants σ/C and not σ/2C: design.md, "The currency".
            whole = whole.compose(_sampled(release.scale / release.clip, release.rate).self_compose(times))
        elif release.noise == "laplace":
            whole = whole.compose(
                _laplace(release.scale / release.diameter, release.size).self_compose(times)
            )
        else:  # Gaussian losses add up to a Gaussian one
            mu_squared += times * (release.diameter / release.scale) ** 2
    if mu_squared:
        gaussian = pld.from_gaussian_mechanism(1 / sqrt(mu_squared), value_discretization_interval=CELL)
        whole = whole.compose(gaussian)
    return whole.get_epsilon_for_delta(delta)


@functools.cache
def _sampled(noise: float, rate: float) -> Any:
    return pld.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=CELL,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )


@functools.cache
def _laplace(scale: float, size: int) -> Any:
    """The Laplace mechanism on a line, and in space by the law of its loss, which is its own mirror image."""
    if size == 1:
        return pld.from_laplace_mechanism(scale, value_discretization_interval=CELL)
    reach = ceil(1 / scale / CELL)
    epsilons = CELL * np.arange(-reach, reach + 1)
    above = LaplaceLosses(1 / scale, size).deltas(epsilons[reach:])
    below = np.exp(epsilons[:reach]) * above[:0:-1] - np.expm1(epsilons[:reach])
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(CELL, -reach, reach, np.append(below, above))
    )


def admitted(database: Database, rng: np.random.Generator, share: np.ndarray) -> list[Release]:
    """What of a random mix is released until five queries were refused."""
    books, releases = Books(database), list[Release]()
    account, refusals = books.open(Limits.of(*BUDGET, "gdp")), 0
    while refusals < 5:
        planned = draw(rng, share)
        try:
            books.reserve({account: Charge.of(planned.target, planned.cost)})
        except BudgetExceeded:
            refusals += 1
        else:
            releases.extend(planned.releases)
    return releases


@pytest.mark.few(6)
@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("seed", range(30))
def test_no_mix_that_is_admitted_exceeds_the_budget(database: Database, seed: int) -> None:
    rng = np.random.default_rng(seed)
    releases = admitted(database, rng, rng.dirichlet((1.0, 0.5, 1.0)))
    epsilon = exact_epsilon(releases, BUDGET[1])
    assert 0.5 * BUDGET[0] < epsilon <= BUDGET[0]  # above half of it, or nothing much was shown


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("only", [0, 1, 2], ids=["gaussian", "laplace", "poisson"])
def test_nor_does_one_mechanism_alone(database: Database, only: int) -> None:
    releases = admitted(database, np.random.default_rng(9), np.eye(3)[only])
    assert 0.5 * BUDGET[0] < exact_epsilon(releases, BUDGET[1]) <= BUDGET[0]


@pytest.mark.parametrize("only", [0, 1, 2], ids=["gaussian", "laplace", "poisson"])
def test_an_admission_of_too_much_would_be_seen(only: int) -> None:
    """The exact ε tells a ledger that admits four times what it should: twice the μ."""
    rng, releases, spent = np.random.default_rng(1), list[Release](), 0
    limit = 4 * Limits.of(*BUDGET, "gdp").mu_squared
    while True:
        planned = draw(rng, np.eye(3)[only])
        spent += Charge.of(planned.target, planned.cost).mu_squared
        if spent > limit:
            break
        releases.extend(planned.releases)
    assert exact_epsilon(releases, BUDGET[1]) > BUDGET[0]
