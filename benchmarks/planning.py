"""How long a plan takes, in the core and over HTTP, first and again; and what a second accountant says."""

from math import nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.report import publish, table
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.metadata import PointsMetadata
from privest.privacy import subsampling
from privest.privacy.cost import PrivacyTarget
from testing.server import Caller, Server, npy, spd

N, DIM = 10_704, 11
TARGET = PrivacyTarget(0.5, 1e-6)
REPEATS = 50
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
    subsampling.noise_for.cache_clear()
    subsampling.certify.cache_clear()
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


def workload(owner: Caller, dataset: str) -> tuple[float, float]:
    """Seconds of the first joint price of 50 questions, and of the next ones."""
    asked = [
        {
            "kind": "frechet-mean",
            "body": {"dataset": {"id": dataset}, "privacy": {"epsilon": 0.01 * (1 + each), "delta": 1e-6}},
        }
        for each in range(50)
    ]
    times = list[float]()
    for _ in range(6):
        begun = perf_counter()
        owner.post("/v1/plans", json={"questions": asked}).raise_for_status()
        times.append(perf_counter() - begun)
    return times[0], median(times[1:])


def main() -> None:
    lines: list[list[str]] = []
    with TemporaryDirectory() as directory:
        server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
        try:
            owner = server.owner()
            schema = {"kind": "points", "manifold": {"name": "spd", "dim": DIM}, "radius": 1.0}
            dataset = owner.upload(npy(spd(N, DIM)), schema).json()["id"]
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
            joint_first, joint_again = workload(owner, dataset)
        finally:
            server.stop()
    header = ["plan", "core, first", "core, again", "HTTP, first", "HTTP, again", "ε by autodp"]
    body = f"""
SPD({DIM}), n = {N:,}, ε = {TARGET.epsilon}, δ = {TARGET.delta:g}. First: nothing remembered, the
noise searched by certificates; over HTTP also autodp's opinion, in the worker of uploads. Again: medians,
of {REPEATS} over HTTP. The very first plan of the server took {first:.1f} s, most of them to import autodp.

50 questions that nobody asked before are priced together in {joint_first:.2f} s, and again in
{joint_again:.2f} s (the goal is one second).

{table(header, lines)}
"""
    publish("planning", "Plans", body)


if __name__ == "__main__":
    main()
