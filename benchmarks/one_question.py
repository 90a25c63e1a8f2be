"""A classifier chosen among eight in one question, beside its first candidate asked alone at the same ε."""

from concurrent.futures import ProcessPoolExecutor
from itertools import product
from statistics import fmean, median

import numpy as np

from benchmarks.report import publish, table
from benchmarks.several_fits import CANDIDATES, DELTA, EPSILONS, MOST_ROWS, fitted, right, split
from benchmarks.tables import tables
from privest.data.records import Records
from privest.estimators.linear_model import classifier_selection
from privest.estimators.linear_model.candidate import Candidate
from privest.estimators.linear_model.classifier_selection import SelectionSpec
from privest.estimators.linear_model.losses.scores import LinearScores
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

RUNS = 10

FIRST = ("defaults", "newton, λ = 0.1", "gd, λ = 0.1, 20 steps")
"""What a person may ask for who asks for one alone: what the planner would, and two that are worse."""


def one_run(asked: tuple[str, float, int]) -> list[tuple[float, float, bool] | None]:
    """Right answers among other rows, chosen and of the first alone, and whether the first was kept.

    By the first candidate; None where there is no choice, so that both are one.
    """
    name, epsilon, seed = asked
    shape, rows, others, specs = split(name, np.random.default_rng(seed))
    target = PrivacyTarget(epsilon, DELTA)
    candidates = {name: Candidate(**vars(spec)) for name, spec in specs.items()}
    found = list[tuple[float, float, bool] | None]()
    for first in FIRST:
        order = sorted(candidates, key=lambda each: each != first)
        spec = SelectionSpec(tuple(candidates[each] for each in order))
        planned = classifier_selection.plan(spec, shape, target)
        if not planned.chooses:
            found.append(None)
            continue
        gate = Gate(Records(rows), planned.statistics, planned.releases)
        chosen = classifier_selection.run(planned, gate)
        answered = right(LinearScores(chosen.coefficients, chosen.intercept), others)
        alone = right(fitted(CANDIDATES[first], shape, target, rows), others)
        found.append((answered, alone, chosen.winner == 0))
    return found


def main() -> None:
    """Publish the section."""
    names = [of.name for of in tables("FINAL", labelled=True)]
    cells = list(product(names, EPSILONS))
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(one_run, [(*cell, seed) for cell in cells for seed in range(RUNS)]))
    lines, gains = list[list[str]](), dict[str, list[float]]({first: [] for first in FIRST})
    for at, (name, epsilon) in enumerate(cells):
        of_cell = runs[RUNS * at : RUNS * (at + 1)]
        line = [name, f"{epsilon:g}"]
        for place, first in enumerate(FIRST):
            told = [run[place] for run in of_cell]
            chosen = [each for each in told if each is not None]
            if len(chosen) < RUNS:
                line.append("no choice")
                gains[first].append(0.0)
                continue
            gain = fmean(answered - alone for answered, alone, _ in chosen)
            kept = sum(same for *_, same in chosen)
            line.append(f"{fmean(alone for _, alone, _ in chosen):.3f} {gain:+.4f}, first kept {kept}")
            gains[first].append(gain)
        lines.append(line)
    told = [
        [first, *(f"{each:+.4f}" for each in (fmean(gain), median(gain), min(gain), max(gain)))]
        for first, gain in gains.items()
    ]
    body = f"""
Share of right answers among a fifth of the rows, of at most {MOST_ROWS:,}, by classifiers of the others: of
the first candidate asked alone, and what one question that chooses among the eight of
[the section above](#one-of-several-fits) gains over it at the same ε; means of {RUNS} splits, δ = {DELTA:g}.
Columns are by the first candidate, which the others have to beat. *First kept*: of {RUNS} runs. Where there
is no choice the first has the whole budget, and nothing is gained or lost. Margin and threshold were chosen
on other tables.

{table(("table", "ε", *FIRST), lines)}

Over tables and ε:

{table(("first candidate", "mean gain", "median", "least", "largest"), told)}
"""
    publish("one-question", "One of several fits, in one question", body)


if __name__ == "__main__":
    main()
