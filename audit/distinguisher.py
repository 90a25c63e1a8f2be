"""Two worlds that differ in one record: what runs of both prove of a claim, and of half the noise."""

from collections.abc import Callable
from dataclasses import dataclass

from audit.bounds import epsilon_proven, mu_proven
from audit.lines import Finding, Line
from privest.arrays import Array

Scores = Callable[[float, int], tuple[Array, Array]]
"""Scores of a number of runs in each world, with the noise times a factor.

A score is larger where the second world is likelier.
"""


@dataclass(frozen=True)
class Distinguisher:
    """An attack by likelihood ratios.

    Attributes:
        name: of the line.
        about: what is attacked.
        scores: makes runs.
        runs: in each world, of the quick form and of the long one.
        epsilon: claimed, at δ = 0; or None, where μ is what is claimed.
        mu: claimed, if no ε is.
        slack: probability that does not count.
        fault: factor of the noise that must be seen, in the quick form and in the long one.
        quick: whether there is a quick form.
    """

    name: str
    about: str
    scores: Scores
    runs: tuple[int, int]
    epsilon: float | None = None
    mu: float = 0.0
    slack: float = 0.0
    fault: tuple[float, float] = (0.5, 0.5)
    quick: bool = True

    @property
    def line(self) -> Line:
        """This attack as a line of the report."""
        return Line(self.name, self.about, self._run, self.quick)

    def _run(self, long: bool) -> Finding:
        runs, fault = self.runs[long], self.fault[long]
        honest, broken = (self._proven(self.scores(factor, runs)) for factor in (1.0, fault))
        sign, claim = ("μ", self.mu) if self.epsilon is None else ("ε", self.epsilon)
        but = f", but for {self.slack:.0e}" if self.slack else ""
        return Finding(
            holds=honest <= claim < broken,
            claimed=f"{sign} ≤ {claim:.3f}{but}",
            found=f"{sign} ≥ {honest:.3f} by {runs:,} runs in each world",
            power=f"{fault:g} times the noise: {sign} ≥ {broken:.3f}",
        )

    def _proven(self, scores: tuple[Array, Array]) -> float:
        return mu_proven(scores, self.slack) if self.epsilon is None else epsilon_proven(scores)
