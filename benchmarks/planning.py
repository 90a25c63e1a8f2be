"""How long a plan takes, in the core and over HTTP, first and again; and what a second accountant says."""

import os
from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import psutil

from benchmarks.report import publish, table
from privest.data.metadata import PointsMetadata
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.privacy.accounting import PrivacyTarget
from testing.server import Caller, Server, npy, spd

N, DIM = 10_704, 11
TARGET = PrivacyTarget(0.5, 1e-6)
SCHEMA = {"kind": "points", "manifold": {"name": "spd", "dim": DIM}, "radius": 1.0}
REPEATS = 50
MANY = 50
"""Questions of a workload: as many as one may have."""
_ONE = {"solver": "rsgd", "rate": 1 / N, "steps": 300_000}
CASES: dict[str, dict[str, Any]] = {
    "rgd": {},
    "rsgd, Poisson": {"solver": "rsgd"},
    "rsgd, fixed": {"solver": "rsgd", "sampling": "fixed"},
    "rsgd, Poisson, 1 record, 300,000 steps": _ONE,
    "rsgd, fixed, 1 record, 300,000 steps": _ONE | {"sampling": "fixed"},
    "rsvrg, Poisson": {"solver": "rsvrg"},
    "rsvrg, fixed": {"solver": "rsvrg", "sampling": "fixed"},
}


def core(choices: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a first plan, and of the next ones."""
    shape = PointsMetadata(N, {"name": "spd", "dim": DIM}, radius=1.0)
    times: list[float] = []
    for _ in range(6):
        begun = perf_counter()
        frechet_mean.plan(FrechetMeanSpec(**choices), shape, TARGET)
        times.append(perf_counter() - begun)
    return times[0], median(times[1:])


def over_http(owner: Caller, dataset: str, choices: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds of a first plan and of the next ones, and the other accountant's ε."""
    times, told = list[float](), nan
    for _ in range(REPEATS + 1):
        begun = perf_counter()
        answer = owner.plan(dataset, epsilon=TARGET.epsilon, delta=TARGET.delta, **choices)
        times.append(perf_counter() - begun)
        told = answer.json()["second_opinion"]["epsilon"]
    return times[0], median(times[1:]), told


def joint_price(server: Server, owner: Caller, questions: list[dict[str, Any]]) -> list[str]:
    """The row of one workload: what its first price takes, what the next ones do, and what is gained."""
    taken, used, told = list[float](), list[float](), dict[str, Any]()
    for _ in range(6):
        begun, before = perf_counter(), processor_time(server)
        answer = owner.post("/v1/plans", json={"questions": questions}).raise_for_status()
        taken.append(perf_counter() - begun)
        used.append(processor_time(server) - before)
        (told,) = answer.json()["datasets"]
    gain = told["together"]["mu"] / told["sequence"]["mu"]
    both = [(taken[0], used[0]), (median(taken[1:]), median(used[1:]))]
    return [*(f"{of:.2f} s" for each in both for of in each), f"{gain:.4f}"]


def processor_time(server: Server) -> float:
    """Seconds that the processes of a server have computed so far: of the web process and of its workers."""
    web = psutil.Process(server.process.pid)
    times = [each.cpu_times() for each in (web, *web.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def joint_prices() -> None:
    """Price fifty questions together, and publish what it takes."""
    workloads = {
        "means": [{}] * MANY,
        "means by Poisson batches": [{"solver": "rsgd"}] * MANY,
        "half of each": [{}, {"solver": "rsgd"}] * (MANY // 2),
    }
    rows = list[list[str]]()
    for name, choices in workloads.items():
        with TemporaryDirectory() as directory:  # a server that remembers nothing
            server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
            try:
                owner = server.owner()
                dataset = {"id": owner.upload(npy(spd(N, DIM)), SCHEMA).json()["id"]}
                owner.plan(dataset["id"], epsilon=0.1, solver="rsgd")
                questions = [
                    {
                        "kind": "frechet-mean",
                        "body": {"dataset": dataset, "privacy": {"epsilon": 0.01 * place, "delta": 1e-6}}
                        | more,
                    }
                    for place, more in enumerate(choices, 1)
                ]
                rows.append([name, *joint_price(server, owner, questions)])
                print(*rows[-1], flush=True)
            finally:
                server.stop()
    header = ["questions", "first", "of it computing", "again", "of it computing", "μ over that of the sum"]
    body = f"""
{MANY} questions about SPD({DIM}), n = {N:,}, with ε from 0.01 to {0.01 * MANY:g}, by `POST /v1/plans`.
First: no plan is remembered, so that the noise of every question by batches is searched for. Again: median of
5. Computing is the processor time of the service with its workers, which other work on the machine lengthens
less: its load was {os.getloadavg()[1]:.0f}. The goal is one second, and never more than the sum.

{table(header, rows)}
"""
    publish("joint-prices", "Many questions, one price", body)


def main() -> None:
    lines: list[list[str]] = []
    with TemporaryDirectory() as directory:
        server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
        try:
            owner = server.owner()
            dataset = owner.upload(npy(spd(N, DIM)), SCHEMA).json()["id"]
            begun = perf_counter()
            owner.plan(dataset, epsilon=0.1)
            first = perf_counter() - begun
            for name, choices in CASES.items():
                cold, warm = core(choices)
                cold_http, warm_http, epsilon = over_http(owner, dataset, choices)
                by_core = [f"{cold:.2f} s", f"{1e3 * warm:.0f} ms"]
                by_http = [f"{cold_http:.2f} s", f"{1e3 * warm_http:.0f} ms"]
                lines.append([name, *by_core, *by_http, f"{epsilon:.2f}"])
                print(*lines[-1], flush=True)
        finally:
            server.stop()
    header = ["plan", "core, first", "core, again", "HTTP, first", "HTTP, again", "ε by autodp"]
    body = f"""
SPD({DIM}), n = {N:,}, ε = {TARGET.epsilon}, δ = {TARGET.delta:g}. First: nothing remembered, the
noise searched by certificates; over HTTP also autodp's opinion, in the worker of uploads. Again: medians,
of {REPEATS} over HTTP. The very first plan of the server took {first:.1f} s, most of them to import autodp.

{table(header, lines)}
"""
    publish("planning", "Plans", body)
    joint_prices()


if __name__ == "__main__":
    main()
