"""Large datasets: time and memory as n grows, formats on their way in, and one worker against two."""

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import psutil
import pyarrow as pa
from distributed import Client
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from benchmarks.report import publish, spread, table
from privest import manifolds
from privest.arrays import Array
from privest.privacy.cost import PrivacyTarget
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.estimates import tasks
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.cluster import attempt
from testing.dask_cluster import Cluster

MEMORY = 1_610_612_736
"""Memory of 1.5 GiB that the runs are held to, in bytes."""

REPEATS = 3
_PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_BLOCK = 50_000
_GIB = 2**30


@dataclass(frozen=True)
class Case:
    """Data of any length, and the question about it."""

    name: str
    kind: str
    options: dict[str, Any]
    declared: dict[str, Any]
    made: Callable[[np.random.Generator, int], Array]
    lengths: tuple[int, ...]

    @property
    def schema(self) -> DatasetSchema:
        return SCHEMA.validate_json(json.dumps(self.declared))

    def write(self, path: Path, n: int) -> None:
        """Rows as the store has them, a block at a time."""
        rows = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float64, shape=(n, *self.schema.shape(n).record)
        )
        rng = np.random.default_rng(0)
        for start in range(0, n, _BLOCK):
            block = rows[start : start + _BLOCK]
            block[:] = self.made(rng, len(block))
        rows.flush()

    def plan(self, n: int) -> str:
        """Make the plan as it would be charged."""
        kind = KINDS[self.kind]
        ask = {"dataset": {"id": "x"}, "privacy": {"epsilon": 1.0}} | self.options
        options = kind.options(kind.request.model_validate(ask))
        planned = kind.plan_for(options, [(self.schema.shape(n), PrivacyTarget(1.0, n**-1.5))])
        return kind.plans.dump_json(planned).decode()

    def steps(self, n: int) -> int:
        """Steps of the default plan, which takes more of them the less noise there is."""
        return KINDS[self.kind].plans.validate_json(self.plan(n)).steps


def _labelled(rng: np.random.Generator, n: int) -> Array:
    x = rng.standard_normal((n, 20))
    labels = rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 20)))
    return np.column_stack([x, labels.astype(float)])


def _matrices(rng: np.random.Generator, n: int) -> Array:
    space = manifolds.get("spd", dim=11)
    return space.exp_coordinates(np.eye(11), 0.1 * rng.standard_normal((n, space.dim)))


FEATURES = [f"x{place}" for place in range(20)]
LOGISTIC = Case(
    "logistic regression, 20 features",
    "logistic-regression",
    {},
    {
        "kind": "labelled",
        "features": FEATURES,
        "label": "y",
        "classes": ["0", "1"],
        "mean": [0.0] * 20,
        "scale": [1.0] * 20,
    },
    _labelled,
    (10_000, 100_000, 1_000_000, 10_000_000),
)
MEANS = Case(
    "Fréchet mean on SPD(11)",
    "frechet-mean",
    {},
    {"kind": "points", "manifold": {"name": "spd", "dim": 11}, "radius": 2.0},
    _matrices,
    (1_000, 10_000, 100_000, 1_000_000),
)


# A run as a worker has it


_RUN = """
import os, sys, time
from privest_service.estimates import worker
from privest_service.estimates.tasks import run
from privest_service.workers.pool import begin
from privest_service.estimates.kinds import run
from privest_service.workers.pool import begin
told = os.dup(1)
begin(int(sys.argv[1]))
begun = time.perf_counter()
run(*sys.argv[2:])
os.write(told, str(time.perf_counter() - begun).encode())
"""

_INGEST = """
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


def grown(case: Case, directory: Path) -> list[tuple[int, list[float], int, int]]:
    """For every n: seconds of its runs, and the largest peaks."""
    found: list[tuple[int, list[float], int, int]] = []
    for n in case.lengths:
        path = directory / "rows.npy"
        case.write(path, n)
        plan = case.plan(n)
        runs = [run(case, plan, path) for _ in range(REPEATS if n < case.lengths[-1] else 1)]
        taken, own, mapped = zip(*runs, strict=True)
        found.append((n, list(taken), max(own), max(mapped)))
        print(case.name, n, spread(list(taken), ".2f"), max(own) >> 20, max(mapped) >> 20, flush=True)
        path.unlink()
    return found


def draw(found: dict[str, list[tuple[int, list[float], int, int]]], path: Path) -> None:
    """Seconds over n, with straight lines through the last point."""
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, points in found.items():
        n = np.array([point[0] for point in points])
        middle = np.array([median(point[1]) for point in points])
        least, most = (np.array([pick(point[1]) for point in points]) for pick in (min, max))
        (line,) = axes.loglog(n, middle, "o-", label=name)
        axes.fill_between(n, least, most, color=line.get_color(), alpha=0.2)
        axes.loglog(n, middle[-1] * n / n[-1], ":", color=line.get_color(), label="in proportion to n")
    axes.set_xlabel("records")
    axes.set_ylabel("seconds of a run")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


# One worker and two


@contextmanager
def cluster(directory: Path, workers: int, port: int) -> Iterator[Client]:
    started = Cluster(directory, port)
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


def one_and_two(directory: Path, repeats: int = 5) -> list[list[str]]:
    """The large regression by one Dask worker and by two, in turn."""
    path, n = directory / "rows.npy", LOGISTIC.lengths[-1]
    LOGISTIC.write(path, n)
    plan = LOGISTIC.plan(n)
    with cluster(directory, 1, 8790) as one, cluster(directory, 2, 8791) as two:
        pairs: list[tuple[float, float]] = []
        for round_ in range(repeats + 1):
            pair = tuple(on_cluster(client, LOGISTIC, plan, path) for client in (one, two))
            if round_:  # the first warms both
                pairs.append(cast("tuple[float, float]", pair))
    path.unlink()
    single, double = map(list, zip(*pairs, strict=True))
    ratios = [a / b for a, b in pairs]
    return [[f"{n:,}", spread(single, ".2f"), spread(double, ".2f"), spread(ratios, ".2f")]]


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
    rows = _labelled(np.random.default_rng(0), n)
    found: list[list[str]] = []
    for form, write in _forms(rows).items():
        source, target = directory / "in.upload", directory / "in.npy"
        write(source)
        runs: list[tuple[float, int, int]] = []
        for _ in range(REPEATS):
            target.unlink(missing_ok=True)
            runs.append(alone(_INGEST, str(source), form, json.dumps(LOGISTIC.declared), str(target)))
        taken, own, _ = map(list, zip(*runs, strict=True))
        size = source.stat().st_size
        rate, most = f"{n / median(taken):,.0f}", f"{int(max(own)) >> 20}"
        found.append([form, f"{size / 1e6:,.0f}", spread(taken, ".1f"), rate, most])
        print(*found[-1], sep=" | ", flush=True)
        source.unlink()
    return found


def main() -> None:
    begun = time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix="privest-scaling-"))
    try:
        found = {case.name: grown(case, directory) for case in (LOGISTIC, MEANS)}
        draw(found, _PICTURES / "scaling.png")
        two = one_and_two(directory)
        arriving = read_in(directory)
    finally:
        shutil.rmtree(directory)
    rows = [
        [
            case.name,
            f"{n:,}",
            spread(taken, ".2f"),
            f"{case.steps(n)}",
            f"{1e6 * median(taken) / n / case.steps(n):.2f}",
            f"{own >> 20}",
            f"{mapped >> 20}",
        ]
        for case in (LOGISTIC, MEANS)
        for n, taken, own, mapped in found[case.name]
    ]
    memory = psutil.virtual_memory().total / _GIB
    head = ["run", "records", "seconds", "steps", "µs a record and step", "own memory, MiB", "mapped, MiB"]
    publish(
        "scaling",
        "Large datasets",
        f"""
A run is the work of one worker process once it is started: it maps the rows, asks the gate and answers, here
as soon as it is done; ε = 1, default solvers, two threads over chunks. It is held to {MEMORY / _GIB} GiB of
memory of its own by `RLIMIT_DATA`, as `PRIVEST_WORKER_MEMORY` does. Peaks are of RssAnon and RssFile, looked
at every 10 ms; what is mapped is mostly the file of the rows, which the kernel takes back when it needs the
pages. Medians of
{REPEATS} runs, with the least and the most; the largest were run once. Default plans take more steps the more
records there are, as there is less noise: a step costs the same for each record. The machine has
{memory:.0f} GiB, so that files stay cached. The whole took {time.perf_counter() - begun:.0f} s.

{table(head, rows)}

![Seconds of a run over the number of records](pictures/scaling.png)

One Dask worker against two, one thread each, on the {LOGISTIC.name}; five pairs, in turn,
after one that warms up. Scheduler, workers and the waiting client share two cores.

{table(["records", "one worker, s", "two, s", "ratio"], two)}

On the way in: a million rows of 20 features and a label, read, checked, fingerprinted and stored by a
worker that is held to the same memory.

{table(["format", "MB", "seconds", "rows/s", "own memory, MiB"], arriving)}
""",
    )


if __name__ == "__main__":
    main()
