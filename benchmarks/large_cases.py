"""Large datasets of benchmarks, each with the question about it: rows of any length, a block at a time."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privest import manifolds
from privest.arrays import Array
from privest.privacy.accounting import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.estimates.catalogue import KINDS

RANK, WIDTH = 3, 20
"""Dimension of the subspace, and length of rows that are vectors."""

_BLOCK = 50_000


@dataclass(frozen=True)
class Case:
    """Data of any length, and the question about it."""

    name: str
    kind: str
    options: dict[str, Any]
    declared: dict[str, Any]
    made: Callable[[np.random.Generator, int], Array]

    @property
    def schema(self) -> DatasetSchema:
        return SCHEMA.validate_json(json.dumps(self.declared))

    def write(self, path: Path, n: int) -> None:
        """Rows as the store has them, a block at a time."""
        rows = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float64, shape=(n, *self.schema.shape(n).record)
        )
        rng = np.random.default_rng(0)
        for start in range(0, n, _BLOCK):
            block = rows[start : start + _BLOCK]
            block[:] = self.made(rng, len(block))
        rows.flush()

    def plan(self, n: int) -> str:
        """Make the plan as it would be charged."""
        kind = KINDS[self.kind]
        ask = {"dataset": {"id": "x"}, "privacy": {"epsilon": 1.0}} | self.options
        options = kind.options(kind.request.model_validate(ask))
        planned = kind.plan_for(options, [(self.schema.shape(n), PrivacyTarget(1.0, n**-1.5))])
        return kind.plans.dump_json(planned).decode()


def _labelled(rng: np.random.Generator, n: int) -> Array:
    x = rng.standard_normal((n, WIDTH))
    labels = rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, WIDTH)))
    return np.column_stack([x, labels.astype(float)])


def _around(name: str, dim: int) -> Callable[[np.random.Generator, int], Array]:
    """Records that lie around a space's reference point."""
    space = manifolds.get(name, dim=dim)
    start = space.reference
    return lambda rng, n: space.exp(start, space.sample_tangent_gaussian(rng, start, 0.1, n))


def _vectors(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal((n, WIDTH)) * np.where(np.arange(WIDTH) < RANK, 3.0, 1.0)


def matrices(dim: int) -> Case:
    """A Fréchet mean of covariances."""
    declared = {"kind": "points", "manifold": {"name": "spd", "dim": dim}, "radius": 2.0}
    return Case(f"Fréchet mean on SPD({dim})", "frechet-mean", {}, declared, _around("spd", dim))


SPHERE = Case(
    f"Fréchet mean on the sphere in R^{WIDTH}",
    "frechet-mean",
    {},
    {"kind": "points", "manifold": {"name": "sphere", "dim": WIDTH}, "radius": 1.0},
    _around("sphere", WIDTH),
)
SUBSPACE = Case(
    f"robust PCA, {WIDTH} columns, rank {RANK}",
    "robust-pca",
    {"rank": RANK},
    {"kind": "vectors", "dim": WIDTH},
    _vectors,
)
FEATURES = [f"x{place}" for place in range(WIDTH)]
LOGISTIC = Case(
    f"logistic regression, {WIDTH} features",
    "logistic-regression",
    {},
    {
        "kind": "labelled",
        "features": FEATURES,
        "label": "y",
        "classes": ["0", "1"],
        "mean": [0.0] * WIDTH,
        "scale": [1.0] * WIDTH,
    },
    _labelled,
)
