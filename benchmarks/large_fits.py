"""Private fits of a million records beside the plain ones of other packages: processor time in one run."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.large_cases import LOGISTIC, RANK, SPHERE, SUBSPACE, Case, matrices
from benchmarks.peers import call
from benchmarks.report import publish, table
from privest.arrays import Array
from privest.data.records import OfChunk, OfPieces, Records
from privest.privacy.gate import Gate
from privest_service.estimates.catalogue import KINDS
from privest_service.workers.memory import keep_freed

RECORDS = 1_000_000


@dataclass(frozen=True)
class Peer:
    """A plain fit of another package, and what it takes."""

    name: str
    seconds: Callable[[Array], float]


def _in_their_environment(kind: str, package: str) -> Callable[[Array], float]:
    def measured(rows: Array) -> float:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.npz"
            np.savez(path, rows=rows, kind=kind)
            return float(call("run.py", path)[str(path)][package]["seconds"])

    return measured


def _pca(rows: Array) -> float:
    from sklearn.decomposition import PCA  # noqa: PLC0415 - for this peer alone

    begun = process_time()
    PCA(RANK, svd_solver="randomized", random_state=0).fit(rows)
    return process_time() - begun


def _logistic(rows: Array) -> float:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - for this peer alone

    begun = process_time()
    LogisticRegression().fit(rows[:, :-1], rows[:, -1])
    return process_time() - begun


PAIRS = (
    (matrices(11), Peer("pyriemann", _in_their_environment("spd", "pyriemann"))),
    (SPHERE, Peer("geomstats", _in_their_environment("sphere", "geomstats"))),
    (SUBSPACE, Peer("scikit-learn, randomised PCA", _pca)),
    (LOGISTIC, Peer("scikit-learn, LogisticRegression", _logistic)),
)


class Counted(Records):
    """Records that count how often they are read, in one thread."""

    passes = 0.0

    def sum(self, of_chunk: OfChunk, part: range | None = None) -> NDArray[np.int64]:
        self.passes += 1
        return super().sum(of_chunk, part)

    def sum_of(self, indices: NDArray[np.int64], of_pieces: OfPieces) -> NDArray[np.int64]:
        self.passes += len(indices) / len(self)
        return super().sum_of(indices, of_pieces)


def ours(case: Case, rows: Array) -> tuple[float, float]:
    """Processor seconds of a private fit, and how often it reads the records."""
    kind, records = KINDS[case.kind], Counted(rows, threads=1)
    plan = kind.plans.validate_json(case.plan(len(rows)))
    begun = process_time()
    kind.estimator.run(plan, Gate(records, plan.statistics, plan.releases))
    return process_time() - begun, records.passes


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    keep_freed()  # as every process of the service that sums rows
    lines: list[list[str]] = []
    for case, peer in PAIRS:
        rows = np.concatenate([case.made(np.random.default_rng(place), 50_000) for place in range(20)])
        (taken, passes), theirs = ours(case, rows), peer.seconds(rows)
        figures = f"{taken:.2f}", f"{passes:.1f}", peer.name, f"{theirs:.2f}", f"{taken / theirs:.2f}"
        lines.append([case.name, *figures])
        print(*lines[-1], sep=" | ", flush=True)
    body = f"""
{RECORDS:,} records in memory, ε = 1, δ = n^−1.5, defaults of both sides, one thread each. Seconds are of the
processor, so that other work on the machine weighs little. geomstats goes to gradient norm 1e-8, pyriemann to
its own tolerance. A pass reads all records once; a sample counts as its share.

{table(["private fit", "s", "passes", "plain peer", "s", "ratio"], lines)}
"""
    publish("large-fits", "Large fits beside plain ones", body)


if __name__ == "__main__":
    main()
