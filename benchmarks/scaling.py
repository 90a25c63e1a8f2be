"""Large datasets: time and memory as n grows, formats on their way in, and one worker against several."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
import psutil
import pyarrow as pa
from distributed import Client
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from benchmarks.large_cases import FEATURES, LOGISTIC, SPHERE, SUBSPACE, Case, matrices
from benchmarks.report import publish, spread, table
from benchmarks.slower_sums import SECONDS_A_CHUNK
from privest.arrays import Array
from privest_service.estimates import tasks
from privest_service.estimates.cluster import attempt
from testing.dask_cluster import Cluster

MEMORY = 1_610_612_736
"""Memory of 1.5 GiB that the runs are held to, in bytes."""

REPEATS = 3
GROWING: tuple[tuple[Case, tuple[int, ...]], ...] = (
    (LOGISTIC, (10_000, 100_000, 1_000_000, 10_000_000)),
    (SUBSPACE, (100_000, 1_000_000, 10_000_000)),
    (SPHERE, (100_000, 1_000_000, 10_000_000)),
    (matrices(5), (100_000, 1_000_000, 10_000_000)),
    (matrices(11), (10_000, 100_000, 1_000_000)),
    (matrices(30), (10_000, 100_000)),
)
"""Cases, and how many records of each are asked about; the most are of one run."""

SHARED: tuple[tuple[Case, int], ...] = (
    (matrices(11), 300_000),
    (SUBSPACE, 10_000_000),
    (LOGISTIC, 10_000_000),
)
"""Cases that one, two and four workers of a cluster have in turn."""

COLD: tuple[tuple[Case, int], ...] = ((SUBSPACE, 10_000_000), (SPHERE, 10_000_000), (LOGISTIC, 10_000_000))
"""Cases that are run with their file cached, and with none of it."""

_PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_GIB = 2**30


# A run as a worker has it


_RUN = """
import os, sys, time
from privest_service.estimates import worker
from privest_service.estimates.tasks import run
from privest_service.workers.pool import begin
told = os.dup(1)
begin(int(sys.argv[1]))
begun = time.perf_counter()
run(*sys.argv[2:])
os.write(told, str(time.perf_counter() - begun).encode())
"""

INGEST = """
import os, sys, time
from privest_service.datasets.ingest import ingest
from privest_service.datasets.schemas import SCHEMA
from privest_service.workers.pool import begin
told = os.dup(1)
begin(int(sys.argv[1]))
begun = time.perf_counter()
intake = SCHEMA.validate_json(sys.argv[4]).intake()
ingest(sys.argv[2], sys.argv[3], intake, sys.argv[5], 2**40)
os.write(told, str(time.perf_counter() - begun).encode())
"""


class Peak:
    """The most memory of its own that a process had, and the most of files; looked at each 10 ms."""

    def __init__(self, pid: int) -> None:
        self.own = self.mapped = 0
        self._status = Path(f"/proc/{pid}/status")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            try:
                lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
            except OSError:
                return
            found = {
                name: int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile") if name in lines
            }
            self.own = max(self.own, found.get("RssAnon", 0))
            self.mapped = max(self.mapped, found.get("RssFile", 0))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def alone(script: str, *args: str) -> tuple[float, int, int]:
    """Seconds of a task in a fresh process, which is held to its memory; and its peaks."""
    command = [sys.executable, "-c", script, str(MEMORY), *args]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: S603
        peak = Peak(process.pid)
        told, _ = process.communicate()
        peak.stop()
    assert process.returncode == 0
    return float(told), peak.own, peak.mapped


def run(case: Case, plan: str, path: Path) -> tuple[float, int, int]:
    """Time one run of a worker."""
    run_token = path.with_suffix(".run_token")
    run_token.touch()
    return alone(_RUN, case.kind, plan, str(run_token), str(path))


Grown = list[tuple[int, list[float], int, int]]
"""For every n: seconds of its runs, and the largest peaks of own and of mapped memory."""


def grown(case: Case, lengths: tuple[int, ...], directory: Path) -> Grown:
    found: Grown = []
    for n in lengths:
        path = directory / "rows.npy"
        case.write(path, n)
        plan = case.plan(n)
        runs = [run(case, plan, path) for _ in range(REPEATS if n < lengths[-1] else 1)]
        taken, own, mapped = zip(*runs, strict=True)
        found.append((n, list(taken), max(own), max(mapped)))
        print(case.name, n, spread(list(taken), ".2f"), max(own) >> 20, max(mapped) >> 20, flush=True)
        path.unlink()
    return found


def draw(found: dict[str, Grown], path: Path) -> None:
    """Seconds over n, each beside a straight line through its last point."""
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    for name, points in found.items():
        n = np.array([point[0] for point in points])
        middle = np.array([median(point[1]) for point in points])
        (line,) = axes.loglog(n, middle, "o-", label=name)
        axes.loglog(n, middle[-1] * n / n[-1], ":", color=line.get_color())
    axes.set_xlabel("records")
    axes.set_ylabel("seconds of a run (dotted: in proportion to n)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def forget(path: Path) -> None:
    """Have the kernel drop a file from its cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def read_of(path: Path) -> float:
    """Seconds in which a file that is not cached is only read."""
    forget(path)
    begun = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(2**23):
            pass
    return time.perf_counter() - begun


def cold(directory: Path, case: Case, n: int) -> list[str]:
    """A run on a file that is cached, on one that is not, and how long it takes only to read that."""
    path = directory / "rows.npy"
    case.write(path, n)
    plan = case.plan(n)
    cached, fresh, only = list[float](), list[float](), list[float]()
    for _ in range(REPEATS):
        only.append(read_of(path))
        cached.append(run(case, plan, path)[0])
        forget(path)
        fresh.append(run(case, plan, path)[0])
    size = f"{path.stat().st_size / 1e9:.1f}"
    path.unlink()
    ratios = [b / a for a, b in zip(cached, fresh, strict=True)]
    line = [case.name, f"{n:,}", size, *(spread(each, ".1f") for each in (cached, fresh, only))]
    print(*line, spread(ratios, ".2f"), sep=" | ", flush=True)
    return [*line, spread(ratios, ".2f")]


# One worker and several


@contextmanager
def cluster(directory: Path, workers: int, preloaded: str = "") -> Iterator[Client]:
    port = 8790 + workers
    started = Cluster(directory, port, preloaded=preloaded)
    started.start(workers)
    try:
        with Client(f"tcp://127.0.0.1:{port}", timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
            yield client
    finally:
        started.stop()


def on_cluster(client: Client, case: Case, plan: str, path: Path) -> float:
    run_token = path.with_suffix(".run_token")
    run_token.touch()
    begun = time.perf_counter()
    args = (tasks.run, case.kind, plan, str(run_token), str(path))
    answer: Any = client.submit(attempt, 600.0, *args, pure=False).result()
    taken = time.perf_counter() - begun
    assert answer is not None
    return taken


def by_workers(directory: Path, case: Case, n: int, repeats: int, preloaded: str = "") -> list[str]:
    """A large run by one Dask worker, by two and by four, in turn."""
    path = directory / "rows.npy"
    case.write(path, n)
    plan = case.plan(n)
    with ExitStack() as stack:
        clients = [stack.enter_context(cluster(directory, each, preloaded)) for each in (1, 2, 4)]
        for client in clients:  # the first run warms them
            on_cluster(client, case, plan, path)
        rounds = [[on_cluster(client, case, plan, path) for client in clients] for _ in range(repeats)]
    path.unlink()
    one, two, four = map(list, zip(*rounds, strict=True))
    ratios = [[a / b for a, b in zip(one, each, strict=True)] for each in (two, four)]
    seconds = [spread(each, ".1f") for each in (one, two, four)]
    line = [case.name, f"{n:,}", *seconds, *(spread(each, ".2f") for each in ratios)]
    print(*line, sep=" | ", flush=True)
    return line


# On the way in


def _forms(rows: Array) -> dict[str, Callable[[Path], None]]:
    named = pa.table({name: rows[:, place] for place, name in enumerate([*FEATURES, "y"])})

    def as_arrow(path: Path) -> None:
        with pa.ipc.new_file(str(path), named.schema) as writer:
            writer.write_table(named, max_chunksize=2**16)

    def as_npz(path: Path) -> None:
        file = io.BytesIO()
        np.savez_compressed(file, rows)
        path.write_bytes(file.getvalue())

    return {
        "npy": lambda path: np.save(path.open("wb"), rows),
        "npz": as_npz,
        "csv": lambda path: arrow_csv.write_csv(named, str(path)),
        "parquet": lambda path: parquet.write_table(named, str(path)),
        "arrow": as_arrow,
    }


def read_in(directory: Path, n: int = 1_000_000) -> list[list[str]]:
    """A million labelled rows by every format, in a process that is held to its memory."""
    rows = LOGISTIC.made(np.random.default_rng(0), n)
    found: list[list[str]] = []
    for form, write in _forms(rows).items():
        source, target = directory / "in.upload", directory / "in.npy"
        write(source)
        runs: list[tuple[float, int, int]] = []
        for _ in range(REPEATS):
            target.unlink(missing_ok=True)
            runs.append(alone(INGEST, str(source), form, json.dumps(LOGISTIC.declared), str(target)))
        taken, own, _ = map(list, zip(*runs, strict=True))
        size = source.stat().st_size
        rate, most = f"{n / median(taken):,.0f}", f"{int(max(own)) >> 20}"
        found.append([form, f"{size / 1e6:,.0f}", spread(taken, ".1f"), rate, most])
        print(*found[-1], sep=" | ", flush=True)
        source.unlink()
    return found


def together(directory: Path, n: int = 1_000_000) -> list[str]:
    """Two csv files of a million rows by one worker process, one after the other, and by two at once."""
    rows = LOGISTIC.made(np.random.default_rng(0), n)
    sources = [directory / f"{place}.upload" for place in range(2)]
    for source in sources:
        _forms(rows)["csv"](source)

    def one(source: Path) -> None:
        target = source.with_suffix(".npy")
        target.unlink(missing_ok=True)
        alone(INGEST, str(source), "csv", json.dumps(LOGISTIC.declared), str(target))

    def taken(workers: int) -> float:
        begun = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, sources))
        return time.perf_counter() - begun

    pairs = [(taken(1), taken(2)) for _ in range(REPEATS)]
    alone_, both = map(list, zip(*pairs, strict=True))
    for source in sources:
        source.unlink()
    return [spread(alone_, ".1f"), spread(both, ".1f"), spread([a / b for a, b in pairs], ".2f")]


def main() -> None:
    begun = time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix="privest-scaling-"))
    try:
        found = {case.name: grown(case, lengths, directory) for case, lengths in GROWING}
        draw(found, _PICTURES / "scaling.png")
        shared = [by_workers(directory, case, n, REPEATS) for case, n in SHARED]
        slower = by_workers(directory, LOGISTIC, 10_000_000, 1, "benchmarks.slower_sums")
        arriving, both = read_in(directory), together(directory)
        uncached = [cold(directory, case, n) for case, n in COLD]
    finally:
        shutil.rmtree(directory)
    rows = [
        [
            name,
            f"{n:,}",
            spread(taken, ".2f"),
            f"{1e6 * median(taken) / n:.2f}",
            *(f"{each >> 20}" for each in peaks),
        ]
        for name, points in found.items()
        for n, taken, *peaks in points
    ]
    memory = psutil.virtual_memory().total / _GIB
    head = ["run", "records", "seconds", "µs a record", "own memory, MiB", "mapped, MiB"]
    workers = ["run", "records", "one worker, s", "two, s", "four, s", "one over two", "one over four"]
    files = ["run", "records", "GB", "cached, s", "not cached, s", "reading alone, s", "ratio"]
    publish(
        "scaling",
        "Large datasets",
        f"""
A run is the work of one worker process once it is started: it maps the rows, asks the gate and answers, here
as soon as it is done; ε = 1, default solvers, two threads over chunks. It is held to {MEMORY / _GIB} GiB of
memory of its own by `RLIMIT_DATA`, as `PRIVEST_WORKER_MEMORY` does. Peaks are of RssAnon and RssFile, looked
at every 10 ms; what is mapped is mostly the file of the rows, which the kernel takes back when it needs the
pages. Medians of {REPEATS} runs, with the least and the most; the largest were run once. Plans take other
steps where there is less noise, and samples of many records. The machine has {memory:.0f} GiB, so that files
stay cached. The whole took {time.perf_counter() - begun:.0f} s.

{table(head, rows)}

![Seconds of a run over the number of records](pictures/scaling.png)

The same runs where none of the file is cached (`POSIX_FADV_DONTNEED`), in turn with runs where all of it is:

{table(files, uncached)}

One Dask worker against two and four, one thread each; {REPEATS} rounds, in turn, after one that warms up.
Scheduler, all workers and the waiting client share two cores, so that four have nothing to be faster by.

{table(workers, shared)}

The same with sums that take longer: each worker sleeps {SECONDS_A_CHUNK:g} s for a chunk of its
partition, which leaves the cores to others. So this shows how the work is shared out, and what scheduler and
sends add, where there is a core for each worker. One round.

{table(workers, [slower])}

On the way in: a million rows of 20 features and a label, read, checked, fingerprinted and stored by a
worker that is held to the same memory.

{table(["format", "MB", "seconds", "rows/s", "own memory, MiB"], arriving)}

Two such csv files: each is read by a worker process of its own, so that two are read at once.

{table(["one after the other, s", "both at once, s", "ratio"], [both])}
""",
    )


if __name__ == "__main__":
    main()
