"""Figure 3b of Utpala et al. 2023: the leading eigenvector by DP-RGD, DP-RSGD and DP-RSVRG, by passes."""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from scipy.io import loadmat

from benchmarks.passes import Curve, Traced, curve, drawn, saved
from benchmarks.report import publish, table
from privest.arrays import Array
from privest.data.metadata import VectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import robust_pca
from privest.estimators.subspace.losses import SubspaceQuery
from privest.estimators.subspace.robust_pca import RobustPCAPlan, RobustPCASpec
from privest.estimators.subspace.spherical import on_sphere
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.server import Server, npy

DATA = Path(__file__).parents[2] / "shared" / "data"
FILES = {"satimage": ("data_satimage.mat", "satimage"), "ijcnn": ("data_ijcnn.mat", "ijcnn_data")}
EPSILONS, DELTA, SEEDS = (0.1, 0.3, 0.5), 1e-6, 5
SOLVERS: dict[str, list[dict[str, Any]]] = {
    "DP-RGD": [{"solver": "ggd", "steps": steps} for steps in (10, 20, 30)],
    "DP-RSGD": [
        {"solver": "sggd", "steps": steps, "step_size": length}
        for steps in (50, 100, 200)
        for length in (0.1, 0.3, 1.0)
    ],
    "DP-RSVRG": [{"solver": "rsvrg"}],
}
"""Options by solver. Where there are several the best by the result is told, as the paper picks its own."""


@dataclass(frozen=True)
class Problem:
    """Rows, and the second moment of what the gate sees of them."""

    rows: Array
    moment: Array

    def risk(self, at: SubspaceQuery | Array) -> float:
        """F(w) − F(w*), F(w) = −mean of (wᵀz)², z a row over its length."""
        w = (at.basis if isinstance(at, SubspaceQuery) else at)[:, 0]
        return float(np.linalg.eigvalsh(self.moment)[-1] - w @ self.moment @ w)

    def plan(self, epsilon: float, **options: Any) -> RobustPCAPlan:
        """A plan of the leading eigenvector from a public random start."""
        n, dim = self.rows.shape
        shape = VectorsMetadata(n, dim, float(np.linalg.norm(self.rows, axis=1).max()))
        spec = RobustPCASpec(1, loss="squared", start="random", **options)
        return robust_pca.plan(spec, shape, PrivacyTarget(epsilon, DELTA))


def problem(name: str) -> Problem:
    file, key = FILES[name]
    rows = np.ascontiguousarray(loadmat(DATA / file)[key], dtype=np.float64)
    z = on_sphere(rows)
    return Problem(rows, z.T @ z / len(z))


def runs(of: Problem, planned: RobustPCAPlan) -> list[Curve]:
    """Curves of risk of several runs."""
    curves = []
    for _ in range(SEEDS):
        gate = Traced(
            Gate(Records(of.rows), planned.statistics, planned.releases), planned.releases, len(of.rows)
        )
        found = robust_pca.run(planned, gate)
        curves.append(curve(gate, found.basis, of.risk))
    return curves


def told(planned: RobustPCAPlan, risks: list[float], passes: float) -> str:
    """A cell of the table."""
    loops = planned.epochs
    steps = f"S = {loops.epochs}, m = {loops.frequency}" if loops else f"{len(planned.step_sizes)} steps"
    spread = f"{mean(risks):.1e} ± {stdev(risks):.0e}"
    return f"{spread} ({steps}, η = {planned.step_sizes[0]:.2g}, {passes:.1f} passes)"


def asked(of: Problem, questions: list[tuple[float, dict[str, Any]]]) -> list[str]:
    """Mean and standard deviation of the risk of as many runs, asked of a server, for each ε and options."""
    body = {"kind": "robust-pca", "rank": 1, "loss": "squared", "start": "random", "delta": DELTA}
    cells = []
    with TemporaryDirectory() as directory:
        server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
        try:
            owner = server.owner(epsilon=1000.0, delta=1e-3)
            schema = {"kind": "vectors", "dim": of.rows.shape[1]}
            dataset = owner.upload(npy(of.rows), schema).raise_for_status().json()["id"]
            for epsilon, options in questions:
                risks = []
                for _ in range(SEEDS):
                    said = owner.estimate(dataset, epsilon=epsilon, reuse=False, **body, **options)
                    basis = said.raise_for_status().json()["estimate"]["basis"]
                    risks.append(of.risk(np.array(basis)))
                cells.append(f"{mean(risks):.1e} ± {stdev(risks):.0e}")
        finally:
            server.stop()
    return cells


def main() -> None:
    """The table, and a picture of risk over passes."""
    missing = [name for name, (file, _) in FILES.items() if not (DATA / file).exists()]
    lines: list[list[str]] = [[name, "rows not at hand", *["–"] * len(EPSILONS)] for name in missing]
    pictures = []
    for name in (name for name in FILES if name not in missing):
        of = problem(name)
        about = f"{name}, {of.rows.shape[0]:,}×{of.rows.shape[1]}"
        canvas, axes = plt.subplots(1, len(EPSILONS), figsize=(13, 3.6), sharey=True, layout="constrained")
        for label, choices in SOLVERS.items():
            cells, best = [about, label], []
            for axis, epsilon in zip(axes, EPSILONS, strict=True):
                tried = []
                for options in choices:
                    planned = of.plan(epsilon, **options)
                    tried.append((planned, runs(of, planned), options))
                planned, curves, options = min(
                    tried, key=lambda each: mean(risks[-1] for _, risks in each[1])
                )
                best.append((epsilon, options))
                cells.append(told(planned, [risks[-1] for _, risks in curves], curves[0][0][-1]))
                print(*cells[:2], epsilon, cells[-1], flush=True)
                drawn(axis, label, curves)
                axis.set(title=f"{name}, ε = {epsilon:g}", xlabel="passes")
            lines += [cells, [about, f"{label}, the same over HTTP", *asked(of, best)]]
            print(*lines[-1], flush=True)
        axes[0].set_ylabel("F(w) − F(w*)")
        axes[0].legend()
        pictures.append(saved(canvas, f"figure-3b-{name}", f"The leading eigenvector of {name}"))
        eigenvalues = np.linalg.eigvalsh(of.moment)[::-1]
        lines.append([about, f"(eigenvalues {eigenvalues[0]:.3f}, {eigenvalues[1]:.3f} …)", *["–"] * 3])
    body = f"""
F(w) − F(w*), F(w) = −mean of (wᵀz)², z a row divided by its length; δ = {DELTA:g}, mean ± standard deviation
of {SEEDS} runs from the same public random start. DP-RSVRG is `solver: rsvrg` with `loss: squared`: its
loops, clip and step are the planner's, from public facts. For DP-RGD 10, 20 and 30 steps of length 1
were run, for DP-RSGD 50, 100 and 200 steps of length .1, .3 and 1 on batches of 256, and **the best by
the result is told**, which spends budget that is not counted: so the paper picks its own. What is told of
it was then asked for over HTTP, of the running service, as often again: the choice no longer flatters there.
One pass is n gradients (the paper's IFO calls over n).

The curvatures of F from which DP-RSVRG plans its step, and the distance from its start to the answer that it
reckons with, are constants of the code that **were set while looking at satimage and ijcnn**. To that extent
its rows, too, tell of what was chosen by the result.

{table(["data", "solver", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], lines)}

{chr(10).join(pictures)}

The pictures have the median risk of these runs over passes.
"""
    publish(
        "figure-3b", "Utpala et al. (2023), Figure 3b: the leading eigenvector", body, page="reproductions.md"
    )


if __name__ == "__main__":
    main()
