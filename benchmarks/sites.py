"""Joint runs of three sites over wires with delay, against the same question in one service.

Beside them what other carriers take for a round, and what rounds that are saved cost in accuracy.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.peers import call
from benchmarks.report import publish, table
from privest.arrays import Array
from privest.data.metadata import VectorsMetadata
from privest.data.records import Records
from privest.estimators import federation
from privest.estimators.subspace import robust_pca
from privest.estimators.subspace.robust_pca_spec import RobustPCASpec
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.sites import BUDGET, Sites, sites
from testing.wire import Wire, wired

SITES, ROWS, COLUMNS, RANK, STEPS = 3, 25_000, 50, 3, 100
DELAYS = (0.0, 0.001, 0.02, 0.1)
LOCAL_STEPS = (1, 5, 10)
RUNS = 3
"""Runs of which an angle is the median."""

SCHEMA = {"kind": "vectors", "dim": COLUMNS}
QUESTION: dict[str, Any] = {"rank": RANK, "solver": "ggd", "epsilon": 0.5, "reuse": False, "wait": 600}


def rows(place: int) -> Array:
    """Rows of one site near a subspace that all have."""
    rng = np.random.default_rng(place)
    spread = np.where(np.arange(COLUMNS) < RANK, 1.0, 0.1)
    return rng.standard_normal((ROWS, COLUMNS)) * spread


@contextmanager
def over_wires() -> Iterator[tuple[Sites, list[Wire]]]:
    """A hub, and sites that offer their rows over a wire each."""
    with ExitStack() as stack:
        directory, wires = stack.enter_context(TemporaryDirectory()), list[Wire]()
        names = (f"sqlite:///{directory}/{number}.db" for number in itertools.count())

        def through(url: str) -> str:
            wires.append(stack.enter_context(wired(url)))
            return wires[-1].url

        made = sites(Path(directory), lambda: next(names), SITES, through)
        yield stack.enter_context(made).offering([rows(place) for place in range(SITES)], SCHEMA), wires


def asked(ask: Callable[[], Any]) -> float:
    """Seconds until a question is answered."""
    begun = perf_counter()
    job = ask().json()
    assert job["state"] == "committed", job
    return perf_counter() - begun


def in_one_service(them: Sites) -> list[str]:
    """Upload all rows at the hub, for as many owners; return the datasets."""
    owners = [them.hub.owner(**BUDGET) for _ in range(SITES)]
    datasets = [owner.dataset(rows(place), SCHEMA) for place, owner in enumerate(owners)]
    for owner, dataset in zip(owners, datasets, strict=True):
        assert owner.grant(dataset, them.analyst).status_code == 200
    return datasets


def measured(
    them: Sites, wires: list[Wire], delay: float, question: dict[str, Any]
) -> tuple[int, float, float]:
    """Rounds, KB that one site sends and gets, and seconds, of one run over wires with a delay."""
    for wire in wires:
        wire.delay = delay / 2  # either way
    rounds, sent = len(wires[0].answers()), len(wires[0].all)
    took = asked(lambda: them.ask("robust-pca", **question))
    return len(wires[0].answers()) - rounds, (len(wires[0].all) - sent) / 1e3, took


def angles(local_steps: int, turns: int) -> tuple[int, list[float]]:
    """Rounds, and angles to the leading subspace of all rows, of `RUNS` runs over gates in one process."""
    spec = RobustPCASpec(
        RANK, solver="ggd", loss="squared", steps=STEPS // local_steps, local_steps=local_steps, turns=turns
    )
    data, target = [rows(place) for place in range(SITES)], PrivacyTarget(QUESTION["epsilon"], 1e-6)
    shapes = [VectorsMetadata(ROWS, COLUMNS)] * SITES
    plan = federation.plan(partial(robust_pca.plan, spec), shapes, [target] * SITES)
    moment = sum(np.asarray(own).T @ (own / np.sum(own**2, axis=1, keepdims=True)) for own in data)
    truth, space = np.linalg.eigh(moment)[1][:, -RANK:], Grassmann(COLUMNS, RANK)
    found = list[float]()
    for _ in range(RUNS):
        gates = [
            Gate(Records(own, threads=1), plan.statistics, part.releases)
            for own, part in zip(data, plan.parts, strict=True)
        ]
        answer = federation.run(plan, robust_pca.run, gates)
        found.append(float(space.dist(answer.basis, truth)))
    return len(plan.course.step_sizes), found


def accuracy() -> None:
    """Publish what rounds that are saved, and turns, cost in accuracy."""
    lines = list[list[object]]()
    for local_steps, turns in itertools.product(LOCAL_STEPS, (1, 3)):
        rounds, found = angles(local_steps, turns)
        each = [f"{1e3 * value:.2f}" for value in (np.median(found), max(found))]
        lines.append([local_steps, turns, rounds, *each])
    header = ["local steps", "turns", "rounds", "angle, mrad", "largest"]
    body = f"""
The same {SITES} owners and ε, with the loss `squared`, whose answer without noise is known: the leading
subspace of all rows on the sphere. Gates in one process; at sites the same noise gives the same bits. What a
round costs there is in the table of sites. All take as many gradients. Rounds of this loss are of length one,
each with the noise of the mean of its gradients: more rounds than the way needs gather more noise, so that
here fewer rounds are both faster and nearer. The angle is the median of {RUNS} runs.

{table(header, lines)}
"""
    publish("sites-accuracy", "Sites: what rounds that are saved cost in accuracy", body)


def carriers() -> None:
    """Publish what other carriers take for a round."""
    found = call("federated/rounds.py")
    names = {"http": "bare HTTP long poll", "grpc": "bare gRPC, unary", "flower": "Flower, 3 SuperNodes"}
    lines = [[names[name], f"{1e3 * seconds:.1f}"] for name, seconds in found.items()]
    body = f"""
Three clients send a 50×3 array, and all get the mean. Nothing of it is private, written down or charged. All
on this machine, whose load was {os.getloadavg()[0]:.0f} at the end.

{table(["carrier", "ms a round"], lines)}
"""
    publish("carriers", "Carriers of federated rounds", body)


def main() -> None:
    accuracy()
    carriers()
    with over_wires() as (them, wires):
        lines = list[list[object]]()
        about = [{"id": dataset} for dataset in in_one_service(them)]
        for local_steps in LOCAL_STEPS:
            question = QUESTION | {"local_steps": local_steps, "steps": STEPS // local_steps}
            asked(lambda question=question: them.ask("robust-pca", about=about, **question))  # warms up
            for delay in DELAYS:
                # once more for each: what else the machine does changes
                alone = asked(lambda question=question: them.ask("robust-pca", about=about, **question))
                rounds, sent, took = measured(them, wires, delay, question)
                beside = 1e3 * (took - 3 * alone) / rounds
                lines.append(
                    [
                        local_steps,
                        f"{1e3 * delay:g}",
                        rounds,
                        f"{sent:.0f}",
                        f"{took:.1f}",
                        f"{alone:.1f}",
                        f"{took / alone:.1f}×",
                        f"{max(0.0, beside):.0f}",
                    ]
                )
    header = [
        "local steps",
        "delay, ms",
        "rounds",
        "KB a site",
        "seconds",
        "in one",
        "ratio",
        "beyond 3×, ms",
    ]
    load = f"{os.getloadavg()[0]:.0f}"
    body = f"""
Robust PCA (rank {RANK}, {COLUMNS} columns,
{STEPS} steps of `ggd` in all) over {SITES} sites of {ROWS:,} rows.
Each is a service of its own with SQLite. All are on this machine, whose load was {load} at the end.
The delay is what a wire between site and hub adds to a round trip. “In one” is the same question where one
service has all rows. The goal is 3× that and 10 ms a round: the last column is what each round takes
beyond the 3×.

{table(header, lines)}
"""
    publish("sites", "Sites: rounds, bytes and seconds", body)


if __name__ == "__main__":
    main()
