"""Whether a caller can tell two worlds apart by how long its questions take."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from audit import served
from audit.bounds import ALPHA
from audit.faulty import TRIPWIRE
from audit.lines import Finding, Line, Section
from audit.questions import Question, every, usual, worlds
from privest.arrays import Array
from testing.server import Server, spd

_WITHIN = 0.37
"""Seconds, well between two moments at which runs end."""


@dataclass(frozen=True)
class Pair:
    """Two worlds, and a question about them.

    Attributes:
        about: what one of them holds, for people.
        kind: of the estimate.
        schema: of the data.
        options: of the question.
        one: rows.
        other: rows.
    """

    about: str
    kind: str
    schema: dict[str, Any]
    options: dict[str, Any]
    one: Array
    other: Array

    def durations(self, server: Server, count: int) -> "Durations":
        """Time the question a number of times in both worlds, in random order."""
        owner = server.owner(epsilon=1e6, delta=0.5)
        datasets = [owner.dataset(rows, self.schema) for rows in (self.one, self.other)]
        options = {"epsilon": 2.0, "delta": 1e-6, "reuse": False} | self.options
        seconds = np.empty((count, 2))
        orders = np.random.default_rng(0).permuted([[0, 1]] * count, axis=1)
        owner.estimate(datasets[0], kind=self.kind, **options)  # libraries are read at the first
        for pair, order in zip(seconds, orders, strict=True):
            for world in order:
                answer = owner.estimate(datasets[world], kind=self.kind, **options)
                if answer.status_code != 200:
                    raise RuntimeError(f"no answer: {answer.text}")
                pair[world] = answer.elapsed.total_seconds()
        return Durations(self.about, seconds)


@dataclass(frozen=True)
class Durations:
    """Durations of answers in two worlds.

    Attributes:
        about: the worlds.
        seconds: (pairs, 2).
    """

    about: str
    seconds: Array

    @property
    def differences(self) -> Array:
        """Seconds by which the second world takes longer."""
        return self.seconds[:, 1] - self.seconds[:, 0]

    @property
    def p(self) -> float:
        """Wilcoxon's, of signed ranks.

        Where durations do not depend on the world, the random order makes either sign of a difference equally
        likely, however busy the machine is.
        """
        return float(wilcoxon(self.differences).pvalue)

    @property
    def spread(self) -> float:
        """Seconds between the quartiles of differences."""
        low, high = np.quantile(self.differences, [0.25, 0.75])
        return float(high - low)

    @property
    def apart(self) -> float:
        """Seconds, the median difference."""
        return float(np.median(self.differences))

    @property
    def whole(self) -> float:
        """Seconds, the median duration."""
        return float(np.median(self.seconds))

    def __str__(self) -> str:
        return f"{self.about}: {1e3 * self.apart:+.2f} of {1e3 * self.whole:.1f} ms, p = {self.p:.1g}"


def _pairs() -> list[Pair]:
    """One question about each schema, and each of the worst records alone."""
    asked = dict[str, Question]()
    for question in every():
        asked.setdefault(str(question.schema), question)
    return [
        Pair(f"{one}, {name}", one.kind.name, one.schema, one.options, usual(one.shape), rows)
        for one in asked.values()
        for name, rows in worlds(one.shape, together=False)
    ]


def _alike(long: bool) -> Finding:
    count = 60 if long else 40
    known = _pairs()
    chosen = known if long else [next(pair for pair in known if pair.about.endswith("denormal"))]
    found = [pair.durations(served.shipped(), count) for pair in chosen]
    furthest = min(found, key=lambda durations: durations.p)
    first = chosen[0]
    slow = first.one.copy()
    slow[0, :2] = TRIPWIRE, 4 * furthest.spread
    slower = Pair(f"{1e3 * slow[0, 1]:.1f} ms more", first.kind, first.schema, first.options, first.one, slow)
    seen = slower.durations(served.faulty(0.05), count)
    alpha = ALPHA / len(found)
    return Finding(
        holds=furthest.p > alpha > seen.p,
        claimed=f"{count} questions in each world do not tell them apart",
        found=f"furthest apart of {len(found)} pairs of worlds, {count} times each: {furthest}",
        power=f"{seen}",
    )


def _eigenvalues(long: bool) -> Finding:
    """Eigenvalues of a diagonal matrix are found sooner, in each step."""
    count, size = (100 if long else 12), 150
    schema = {
        "kind": "points",
        "manifold": {"name": "spd", "dim": size, "metric": "log-euclidean"},
        "radius": 1.0,
    }
    rows = spd(2, dim=size)
    diagonal = np.stack([np.eye(size), rows[1]])

    def pair(steps: int) -> Pair:
        about = f"one of two matrices is diagonal, {steps} steps"
        return Pair(about, "frechet-mean", schema, {"steps": steps}, rows, diagonal)

    few, many = (pair(steps).durations(served.faulty(0.05), 3).whole for steps in (10, 30))
    within = pair(round(20 * _WITHIN / (many - few)))
    found, seen = (within.durations(server, count) for server in (served.shipped(), served.faulty(0.05)))
    return Finding(
        holds=found.p > ALPHA > seen.p,
        claimed=f"{count} questions in each world do not tell them apart, where no such moment lies between",
        found=f"{found}",
        power=f"where runs end when they are done: {seen}",
    )


SECTION = Section(
    "What durations tell",
    """\
Runs end at few moments, which are public: after 1/128, 1/64 … 4, 8, 12 … seconds. A caller asks the same of
two worlds again and again, each time of both in random order, and holds signs and ranks of the differences
against chance (Wilcoxon). The runs of the other server end when they are done.""",
    (
        Line("durations", "one record that is worst for arithmetic", _alike, quick=False),
        Line(
            "durations-of-eigenvalues",
            "one matrix whose eigenvalues are found sooner",
            _eigenvalues,
            quick=False,
        ),
    ),
)
