"""Estimates as callers get them, over HTTP: what many answers prove of what they cost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from audit import served
from privest.arrays import Array
from privest.privacy.accounting import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS
from testing.server import Caller, Server, body_of

_N, _EPSILON, _DELTA = 20, 2.5, 1e-6
_AT_A_TIME = 4


@dataclass(frozen=True)
class Question:
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
