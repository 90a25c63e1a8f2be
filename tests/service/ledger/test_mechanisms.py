"""Stored mechanisms: from the noise alone comes the very charge, for every estimate, solver and noise."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from benchmarks.saddles import Quartic
from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.privacy.accounting import PrivacyTarget
from privest_papers import spider_schedule
from privest_papers.spider_schedule import Problem
from privest_service.database import Database
from privest_service.database.tables import new_id
from privest_service.estimates.catalogue import KINDS
from privest_service.exports.export import lines
from privest_service.exports.lines import MechanismLine
from privest_service.exports.verify import verify
from privest_service.jobs.models import IdempotencyKey
from privest_service.ledger import charges
from privest_service.ledger.mechanisms import cost_again, mechanism
from privest_service.ledger.models import Mechanism
from privest_service.ledger.units import Charge, Limits
from privest_service.reports.formatting import noise
from testing.books import Books, held
from testing.server import SIGNER

POINTS = PointsMetadata(3000, {"name": "spd", "dim": 2}, None, 1.0)
VECTORS = VectorsMetadata(5000, 4, 1.0)
PARTIAL = PartialVectorsMetadata(5000, 8)
LABELLED = LabelledMetadata(20_000, ("a", "b"), "y", ("0", "1"), 1.0, (0.0, 0.0), (1.0, 1.0))
CLASSIFIER = {"coefficients": [1.0, -1.0], "intercept": 0.0}
GAUSSIAN, LAPLACE = PrivacyTarget(0.7, 1e-6), PrivacyTarget(0.7, 0.0)

ASKED: list[tuple[str, DatasetMetadata, PrivacyTarget, dict[str, Any]]] = [
    *[("frechet-mean", POINTS, target, {"solver": "rgd"}) for target in (GAUSSIAN, LAPLACE)],
    *[
        ("frechet-mean", POINTS, GAUSSIAN, {"solver": solver, "sampling": scheme})
        for solver in ("rsgd", "rsvrg")
        for scheme in ("poisson", "fixed")
    ],
    ("frechet-mean", POINTS, GAUSSIAN, {"solver": "rsvrg", "full_noise": "step"}),
    *[
        ("robust-pca", VECTORS, target, {"rank": 2, "solver": solver} | more)
        for solver in ("ggd", "sggd", "gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper")
        for target in (GAUSSIAN, LAPLACE)
        for more in ({}, {"sampling": "fixed"})
    ],
    ("robust-pca", VECTORS, GAUSSIAN, {"rank": 1, "solver": "rsvrg", "loss": "squared"}),
    *[
        ("robust-pca", VECTORS, target, {"rank": 1, "explained": True, "center": True, "start": start})
        for start in ("random", "analyze-gauss", "sketch", "reaper")
        for target in (GAUSSIAN, LAPLACE)
    ],
    *[("matrix-completion", PARTIAL, GAUSSIAN, {"rank": 2} | more) for more in ({}, {"steps": 5})],
    *[
        ("logistic-regression", LABELLED, target, {"solver": solver} | more)
        for solver in ("newton", "clipped", "gd", "hb", "hb-opt", "nag", "nag-opt", "masg", "masg-opt")
        for target in (GAUSSIAN, LAPLACE)
        for more in ({}, {"batch_size": 500}, {"standardisation": "private", "sampling_errors": True})
    ],
    *[
        ("logistic-regression", LABELLED, target, {"loss": loss})
        for loss in ("sigmoid", "savage", "logistic-nonconvex")
        for target in (GAUSSIAN, LAPLACE)
    ],
    *[
        ("classifier-score", LABELLED, target, {"metric": metric} | CLASSIFIER)
        for metric in ("accuracy", "auc")
        for target in (GAUSSIAN, LAPLACE)
    ],
    *[
        (
            "classifier-selection",
            LABELLED,
            target,
            {"candidates": [{}, {"penalty": 0.1}, {"features": ["a"]}]},
        )
        for target in (GAUSSIAN, LAPLACE)
    ],
    *[("bounds", POINTS, target, {}) for target in (GAUSSIAN, LAPLACE)],
]


def _plans() -> Iterator[tuple[str, Any]]:
    """Plans for all combinations that have one; not everything goes with everything."""
    for name, shape, target, body in ASKED:
        kind = KINDS[name]
        privacy = {"epsilon": target.epsilon, "delta": target.delta}
        request = kind.request.model_validate({"dataset": {"id": "ds_x"}, "privacy": privacy} | body)
        try:
            yield name, kind.plan_for(kind.options(request), [(shape, target)])
        except ValueError:
            continue


@pytest.fixture(scope="module")
def plans() -> list[tuple[str, Any]]:
    return list(_plans())


def test_every_cost_is_found_again_from_the_noise(plans: list[tuple[str, Any]]) -> None:
    met = set[tuple[str, str, str]]()
    for name, plan in plans:
        kept = mechanism(name, "ds_x", plan.target, plan.releases)
        assert cost_again(kept.content) == Charge.of(plan.target, plan.cost), (name, plan.mechanism)
        met |= {(name, release.noise, getattr(release, "scheme", "full")) for release in plan.releases}
    assert {name for name, _, _ in met} == set(KINDS)
    for name in ("frechet-mean", "robust-pca", "logistic-regression"):
        assert {(name, "gaussian", how) for how in ("full", "poisson")} <= met, name
        # Batches of a classifier are Poisson's, and have Laplace noise, too; robust PCA has none.
        batches = ("laplace", "poisson") if name == "logistic-regression" else ("gaussian", "fixed")
        assert (name, *batches) in met, name
        assert ((name, "laplace", "full") in met) == (name != "robust-pca")


def test_the_cost_of_streams_is_found_again() -> None:
    """The cost is that of the costlier stream, because the streams hold different records."""
    loss = Quartic(4)
    plan = spider_schedule.plan(Problem(loss, 4, loss.excess, 50_000, GAUSSIAN))
    kept = mechanism("second-order", "data", GAUSSIAN, plan.releases)
    charged = max((release.cost for release in plan.releases), key=lambda cost: cost.mu_squared)
    assert cost_again(kept.content) == Charge.of(GAUSSIAN, charged)
    hessians, gradients, check = map(noise, json.loads(kept.content)["releases"])
    assert "running sums" in hessians
    assert f"each is seen once, by {plan.schedule.leaves} answers at most" in gradients
    assert "running sums" in check
    noisier = json.loads(kept.content)
    noisier["releases"][0]["scale"] *= 2
    noisier["releases"][1]["scale"] /= 2
    with pytest.raises(ValueError, match="certified"):
        cost_again(json.dumps(noisier))


def test_less_noise_is_a_higher_cost_or_none(plans: list[tuple[str, Any]]) -> None:
    """A thousandth less: the run no longer keeps what it promises, or costs more than was charged."""
    seen = 0
    for name, plan in plans[::5]:
        for i, release in enumerate(plan.releases[:2]):
            less = [*plan.releases]
            less[i] = replace(release, scale=release.scale * 0.999)
            kept = mechanism(name, "ds_x", plan.target, tuple(less))
            try:
                again = cost_again(kept.content)
            except ValueError:
                seen += 1
                continue
            charged = Charge.of(plan.target, plan.cost)
            assert again.mu_squared > charged.mu_squared, (name, release)
            seen += 1
    assert seen > 5


def _books(database: Database, plan: Any, kept: Mechanism) -> Books:
    """Books with one charge for a plan, kept under this mechanism."""
    books = Books(database)
    account = books.open(Limits.of(2.0, 1e-4, "gdp"))
    with database.write() as session:
        job = books.job()
        key = IdempotencyKey(principal_id="x", key=new_id("key"), body_digest="", job_id=job.id)
        charge = Charge.of(plan.target, plan.cost)
        debits = charges.Debits(job, held(session, [account]), [charge], kept)
        charges.write(session, job, [debits], key)
    return books


def _faults(books: Books, forge: Any = None) -> list[str]:
    with books.database.read(snapshot=True) as session:
        told = [forge(line) if forge and isinstance(line, MechanismLine) else line for line in lines(session)]
    return verify(told, [SIGNER.public_key]).faults


@pytest.mark.parametrize("chosen", ["frechet-mean", "logistic-regression"])
def test_the_verifier_sees_a_scale_that_was_changed(
    database: Database, plans: list[tuple[str, Any]], chosen: str
) -> None:
    name, plan = next((name, plan) for name, plan in plans if name == chosen)
    books = _books(database, plan, mechanism(name, "ds_x", plan.target, plan.releases))
    with database.read() as session:
        stored = session.scalars(select(Mechanism)).one()
    assert cost_again(stored.content) == Charge.of(plan.target, plan.cost)
    assert _faults(books) == []

    def change(factor: float) -> Any:
        def forge(line: MechanismLine) -> MechanismLine:
            told = json.loads(line.content)
            told["releases"][0]["scale"] *= factor
            return line.model_copy(update={"content": json.dumps(told)})

        return forge

    for factor in (0.5, 2.0):  # also more noise is not what was charged for
        assert any("was changed" in fault for fault in _faults(books, change(factor)))


def test_the_verifier_sees_less_noise_than_was_charged_for(
    database: Database, plans: list[tuple[str, Any]]
) -> None:
    """A service that draws less noise and says so under a true digest."""
    name, plan = plans[0]
    less = tuple(replace(release, scale=release.scale / 2) for release in plan.releases)
    books = _books(database, plan, mechanism(name, "ds_x", plan.target, less))
    faults = _faults(books)
    assert faults
    assert all("mechanism" in fault for fault in faults), faults
