"""Logistic regression by diffprivlib: reads cases (.npz) from the arguments, prints one JSON object.

A case holds `x` (n, d), each column within [−1, 1] by its declared bounds; `y` (n,), 0 or 1; `epsilon`, with
δ = 0; and `runs`. Runs in its own locked environment, and imports nothing of privest.
"""

import json
import sys
import warnings
from importlib.metadata import version
from math import sqrt

import numpy as np
from diffprivlib.models import LogisticRegression


def fits(x: np.ndarray, y: np.ndarray, epsilon: float, runs: int) -> list[list[float]]:
    """Coefficients, and the intercept last, of each run: objective perturbation with the default penalty."""
    found = []
    for run in range(runs):
        model = LogisticRegression(
            epsilon=epsilon, data_norm=sqrt(x.shape[1]), max_iter=1000, random_state=run
        ).fit(x, y)
        found.append([*model.coef_[0].tolist(), float(model.intercept_[0])])
    return found


def main() -> None:
    """Fits, (runs, d + 1), of each case."""
    warnings.simplefilter("ignore")
    told = {"version": version("diffprivlib"), "found": []}
    for path in sys.argv[1:]:
        with np.load(path) as case:
            told["found"].append(fits(case["x"], case["y"], float(case["epsilon"]), int(case["runs"])))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
