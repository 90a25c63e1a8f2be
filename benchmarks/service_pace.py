"""How soon the service is ready, what it takes when idle, and how fast it plans."""

import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from os import getloadavg
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import psutil

from benchmarks.report import publish, spread, table
from testing.server import Caller, Server

STARTS, PLANS, CALLERS, IDLE = 5, 1000, 4, 10.0

_NAMES = """
import sys
import privest_service.app
import uvicorn
ours = {"privest", "privest_service", "__main__"} | sys.stdlib_module_names
print(*(name for name in sys.modules if name.partition(".")[0] not in ours))
"""

_IMPORTED = """
import sys, time
from contextlib import suppress
from importlib import import_module
for name in sys.argv[1:]:
    with suppress(ImportError):  # some are made by others, and cannot be found by their names
        import_module(name)
print(time.process_time())
"""


def libraries() -> float:
    """Processor time of a process that imports what the web process does of others, and nothing else."""
    names = _said(_NAMES).split()
    return float(_said(_IMPORTED, *names))


def _said(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603


def one_by_one(owner: Caller, dataset: str, epsilons: Iterable[float]) -> float:
    """Median of milliseconds for a plan."""
    took = list[float]()
    for epsilon in epsilons:
        begun = perf_counter()
        assert owner.plan(dataset, epsilon=epsilon).status_code == 200
        took.append(1e3 * (perf_counter() - begun))
    return median(took)


def at_once(owner: Caller, dataset: str) -> float:
    """Plans a second, for several callers."""
    with ThreadPoolExecutor(CALLERS) as pool:
        begun = perf_counter()
        list(pool.map(lambda _: owner.plan(dataset), range(PLANS)))
        return PLANS / (perf_counter() - begun)


def main() -> None:
    measured = list[tuple[float, ...]]()
    for _ in range(STARTS):
        alone = libraries()
        with TemporaryDirectory() as directory:
            begun = perf_counter()
            server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
            try:
                ready, process = perf_counter() - begun, psutil.Process(server.process.pid)
                start, idle = sum(process.cpu_times()[:2]), process.memory_info().rss / 2**20
                sleep(IDLE)
                looks = 1e3 * (sum(process.cpu_times()[:2]) - start) / IDLE
                owner = server.owner()
                dataset = owner.dataset()
                one_by_one(owner, dataset, [0.1] * 50)
                before = sum(process.cpu_times()[:2])
                one, many = one_by_one(owner, dataset, [0.1] * PLANS), at_once(owner, dataset)
                each = 1e3 * (sum(process.cpu_times()[:2]) - before) / (2 * PLANS)
                new = one_by_one(owner, dataset, (0.1 + k / 1e3 for k in range(1, 201)))
                measured.append((ready, start, start / alone, idle, looks, one, new, many, each))
            finally:
                server.stop()
    ready, start, ratio, idle, looks, one, new, many, each = map(list, zip(*measured, strict=True))
    lines = [
        ["from nothing to ready, the database made, s", spread(ready, ".1f"), "3"],
        ["of it, processor time of the web process, s", spread(start, ".1f"), ""],
        ["that over the processor time of importing its libraries alone", spread(ratio, ".1f"), "3"],
        ["web process, idle, MB", spread(idle), "200"],
        ["its looks for what is due, ms of a processor a second", spread(looks, ".1f"), ""],
        ["plan of what was asked before, median of one caller, ms", spread(one, ".1f"), "5"],
        ["plan of what nobody asked before, likewise, ms", spread(new, ".1f"), ""],
        [f"plans a second, {CALLERS} callers", spread(many), "500"],
        ["processor time of the web process for a plan, ms", spread(each, ".1f"), ""],
    ]
    body = f"""
{STARTS} starts on SQLite; in each {PLANS:,} plans of a mean on SPD(3) by one caller, then as many by
{CALLERS} in one process beside it. The load of the machine was {getloadavg()[0]:.0f} at
the end.

{table(["median (least–most)", "measured", "goal"], lines)}
"""
    publish("service-pace", "Pace of the service", body)


if __name__ == "__main__":
    main()
