"""Estimates as callers get them, over HTTP: what many answers prove of what they cost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from audit import served
from audit.distinguisher import Distinguisher
from audit.lines import Section
from privest.arrays import Array
from privest.privacy.cost import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS
from testing.server import Caller, Server, body_of

_N, _EPSILON, _DELTA = 20, 2.5, 1e-6
_AT_A_TIME = 4


@dataclass(frozen=True)
class Case:
    """A question about two datasets, one of whose records is opposite.

    Attributes:
        name: of the line.
        kind: of the estimate.
        schema: of the data.
        record: the first in one world; in the other its first number has the other sign.
        others: each record that both have.
        options: of the question.
        score: of an answer, above 0 where it looks like the second world.
    """

    name: str
    kind: str
    schema: dict[str, Any]
    record: list[float]
    others: list[float]
    options: dict[str, Any]
    score: Callable[[dict[str, Any]], float]

    @cached_property
    def mu(self) -> float:
        """The μ that each answer is charged."""
        kind = KINDS[self.kind]
        asked = kind.request.model_validate(body_of("ds_x", _EPSILON, **self.options))
        shape = SCHEMA.validate_python(self.schema).shape(_N)
        plan = kind.plan_for(kind.options(asked), [(shape, PrivacyTarget(_EPSILON, _DELTA))])
        return sqrt(plan.cost.mu_squared)

    @property
    def _worlds(self) -> tuple[Array, Array]:
        other = np.array([self.record] + [self.others] * (_N - 1))
        one = other.copy()
        one[0, 0] = -one[0, 0]
        return one, other

    def scores(self, factor: float, runs: int) -> tuple[Array, Array]:
        """Scores of a number of answers in each world. Each answer is charged."""
        server = served.shipped() if factor == 1.0 else served.faulty(factor)
        one, other = (self._answers(server, world, runs) for world in self._worlds)
        return one, other

    def _answers(self, server: Server, world: Array, runs: int) -> Array:
        owner = server.owner(epsilon=1e6, delta=0.5)
        dataset = owner.dataset(world, self.schema)
        with ThreadPoolExecutor(_AT_A_TIME) as callers:
            return np.array(list(callers.map(lambda _: self._answer(owner, dataset), range(runs))))

    def _answer(self, owner: Caller, dataset: str) -> float:
        options = {"delta": _DELTA, "reuse": False} | self.options
        job = owner.estimate(dataset, kind=self.kind, epsilon=_EPSILON, **options).json()
        if job["state"] != "committed" or job["privacy"]["mu"] > self.mu:
            raise RuntimeError(f"not the answer that was planned: {job}")
        return self.score(job["estimate"])


def _turned(estimate: dict[str, Any]) -> float:
    """Whether the line leans to the same side in both coordinates."""
    (first,), (second,) = estimate["basis"]
    return first * second


_CASES = (
    Case(
        "mean-over-http",
        "frechet-mean",
        {"kind": "points", "manifold": {"name": "euclidean", "dim": 1}, "radius": 1.0},
        [1e6],
        [0.0],
        {"steps": 1},
        lambda estimate: estimate["point"][0],
    ),
    Case(
        "robust-pca-over-http",
        "robust-pca",
        {"kind": "vectors", "dim": 2},
        [1.0, 1.0],
        [0.0, 0.0],
        {"rank": 1, "start": "analyze-gauss", "consensus": False, "steps": 1},
        _turned,
    ),
    Case(
        "completion-over-http",
        "matrix-completion",
        {"kind": "partial-vectors", "dim": 2, "known": 0.75},
        [1.0, 1.0],
        [0.0, np.nan],
        {"rank": 1, "steps": 1},
        _turned,
    ),
    Case(
        "logistic-over-http",
        "logistic-regression",
        {"kind": "labelled", "features": ["a"], "label": "y", "classes": ["0", "1"], "norm_bound": 1.0},
        [1e6, 1.0],
        [0.0, 0.0],
        {"intercept": False, "solver": "newton"},
        lambda estimate: estimate["coefficients"][0],
    ),
)

SECTION = Section(
    "What answers over HTTP prove",
    """\
A server is started as anybody starts it, and asked the same again and again about two datasets that differ in
one record. The attack sees the answers alone, and scores each by the sign of one fixed number. For the power
the workers of another server are told to add less noise.""",
    tuple(
        Distinguisher(
            case.name,
            f"`{case.kind}`, asked by its owner",
            case.scores,
            (30, 500),
            mu=case.mu,
            fault=(0.05, 0.25),
            quick=case.kind == "logistic-regression",
        ).line
        for case in _CASES
    ),
)
