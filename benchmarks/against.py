"""Plans and runs of the pinned estimates against another checkout of this project, in turn, in one run.

`python -m benchmarks.against CHECKOUT` writes the ratios; `make bench` cannot, as it has one checkout.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

_ROUNDS, _TURNS, _SECONDS = 5, 40, 0.15
_ROOT = Path(__file__).parents[1]


def measure(checkout: Path) -> dict[str, tuple[float, float]]:
    """Processor time of a plan and of a run, in seconds: of each pinned estimate, the least of several."""
    spec = spec_from_file_location("pinned", checkout / "tests/core/test_pinned_estimates.py")
    assert spec is not None
    assert spec.loader is not None
    pinned: Any = module_from_spec(spec)
    spec.loader.exec_module(pinned)
    found: dict[str, tuple[float, float]] = {}
    for name, (estimator, options, shape, target) in pinned.CASES.items():
        plan = estimator.plan(options, shape, target)
        if hasattr(pinned, "records"):
            records = pinned.records(shape)
        else:  # a checkout of before tables were pinned
            records = pinned.Records(shape.dummy(shape.n, np.random.default_rng(1)))

        def run(estimator: Any = estimator, plan: Any = plan, records: Any = records) -> None:
            estimator.run(plan, pinned.Gate(records, plan.statistics, plan.releases))

        def again(
            estimator: Any = estimator, options: Any = options, shape: Any = shape, target: Any = target
        ) -> None:
            estimator.plan(options, shape, target)

        found[name] = _least(again), _least(run)
    return found


def _least(action: Callable[[], object]) -> float:
    """Processor time of an action, in seconds: the least of as many turns as fit."""
    least, begun, turns = float("inf"), time.process_time(), 0
    while turns < 3 or (turns < _TURNS and time.process_time() - begun < _SECONDS):
        before = time.process_time()
        action()
        least = min(least, time.process_time() - before)
        turns += 1
    return least


def main(checkout: str) -> None:
    """Write how much longer plans and runs take here than there."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    theirs: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        theirs, ours = (_elsewhere(Path(where)) for where in (checkout, _ROOT))
        for name in theirs.keys() & ours.keys():
            pairs = zip(ours[name], theirs[name], strict=True)
            plan, run = (mine / other for mine, other in pairs)
            ratios.setdefault(name, []).append((plan, run))
    lines = [
        (name, f"{theirs[name][0] * 1e3:.2f}", f"{theirs[name][1] * 1e3:.2f}", *_of(ratios[name]))
        for name in theirs
        if name in ratios
    ]
    means = [geometric_mean(median(pair[k] for pair in pairs) for pairs in ratios.values()) for k in (0, 1)]
    git = ["git", "log", "-1", "--format=%h of %as"]
    told = subprocess.run(git, cwd=checkout, capture_output=True, text=True, check=True)  # noqa: S603
    from benchmarks.report import publish, table  # noqa: PLC0415 - of this checkout, and not of the other

    body = f"""
Processor time of the pinned estimates, here over commit {told.stdout.strip()}: medians of {_ROUNDS} rounds,
in which both were measured in turn, with the least and the most. Milliseconds are of the older one.
Geometric means: {means[0]:.2f} for plans, {means[1]:.2f} for runs.

{table(["estimate", "plan, ms", "run, ms", "plan, ratio", "run, ratio"], lines)}
"""
    publish("against", "Plans and runs before and after the house was moved", body)


def _of(pairs: list[tuple[float, float]]) -> list[str]:
    """Median, least and most of both ratios."""
    columns = zip(*pairs, strict=True)
    return [f"{median(each):.2f} ({min(each):.2f}–{max(each):.2f})" for each in columns]


def _elsewhere(checkout: Path) -> dict[str, tuple[float, float]]:
    """Measure a checkout in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{checkout / 'core'}:{checkout}"}
    command = [sys.executable, __file__, "--measure", str(checkout)]
    done = subprocess.run(  # noqa: S603 - this file
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(sys.argv[1])
