# ruff: noqa: PLC0415, ARG001 - one package is imported where it is timed; all take the same arguments
"""Fréchet means of other packages: reads cases (.npz) from the arguments, prints one JSON object.

For each case: seconds and final gradient norm of each package that has that geometry. Runs in its own
locked environment (pyproject.toml, uv.lock beside it), and imports nothing of privest.
"""

import json
import os
import sys
from time import process_time

os.environ.setdefault("GEOMSTATS_BACKEND", "numpy")

import numpy as np

TOLERANCE = 1e-8


def pyriemann_mean(rows, kind):
    from pyriemann.geometry.mean import mean_riemann

    return mean_riemann(rows, tol=TOLERANCE, maxiter=100)


def geomstats_mean(rows, kind):
    from geomstats.learning.frechet_mean import FrechetMean, GradientDescent

    if kind == "sphere":
        from geomstats.geometry.hypersphere import Hypersphere

        space = Hypersphere(dim=rows.shape[1] - 1)
    elif kind == "hyperbolic":
        from geomstats.geometry.hyperboloid import Hyperboloid

        space = Hyperboloid(dim=rows.shape[1] - 1)
    else:
        from geomstats.geometry.spd_matrices import SPDAffineMetric, SPDMatrices

        space = SPDMatrices(rows.shape[1], equip=False)
        space.equip_with_metric(SPDAffineMetric)
    estimator = FrechetMean(space)
    # It stops when the squared length of the step is at most epsilon times the dimension.
    estimator.optimizer = GradientDescent(max_iter=100, epsilon=TOLERANCE**2 / space.dim, init_step_size=1.0)
    return estimator.fit(rows).estimate_


def pymanopt_mean(rows, kind):
    import pymanopt
    from pymanopt.manifolds import Sphere
    from pymanopt.optimizers import ConjugateGradient

    manifold = Sphere(rows.shape[1])

    def angles(point):
        cosine = np.clip(rows @ point, -1, 1)
        return cosine, np.arccos(cosine)

    @pymanopt.function.numpy(manifold)
    def cost(point):
        return 0.5 * float(np.mean(angles(point)[1] ** 2))

    @pymanopt.function.numpy(manifold)
    def gradient(point):
        cosine, angle = angles(point)
        weight = angle / np.sqrt(np.maximum(1 - cosine**2, 1e-300))
        return -(weight @ rows - (weight @ cosine) * point) / len(rows)

    problem = pymanopt.Problem(manifold, cost, riemannian_gradient=gradient)
    start = rows.mean(axis=0)
    optimizer = ConjugateGradient(verbosity=0, min_gradient_norm=TOLERANCE)
    return optimizer.run(problem, initial_point=start / np.linalg.norm(start)).point


PEERS = {
    "spd": {"pyriemann": pyriemann_mean},
    "sphere": {"geomstats": geomstats_mean, "pymanopt": pymanopt_mean},
    "hyperbolic": {"geomstats": geomstats_mean},
}


def main():
    results = {}
    for path in sys.argv[1:]:
        with np.load(path) as case:
            rows, kind = case["rows"], str(case["kind"])
        found = {}
        for name, mean in PEERS[kind].items():
            mean(rows[:50], kind)
            times = []
            while not times or (len(times) < 3 and sum(times) < 1):
                begun = process_time()
                point = mean(rows, kind)
                times.append(process_time() - begun)
            found[name] = {"seconds": sorted(times)[len(times) // 2], "point": np.asarray(point).tolist()}
        results[path] = found
    print(json.dumps(results))


if __name__ == "__main__":
    main()
