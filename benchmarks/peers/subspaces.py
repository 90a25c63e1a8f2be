"""PCA by diffprivlib: reads cases (.npz) from the arguments, prints one JSON object.

A case holds `x` (n, d), rows of length one about their means; `rank`; `epsilon`, with δ = 0; and `runs`. Runs
in its own locked environment, and imports nothing of privest.
"""

import json
import sys
import warnings
from importlib.metadata import version

import numpy as np
from diffprivlib.models import PCA


def bases(x: np.ndarray, rank: int, epsilon: float, runs: int) -> list[list[list[float]]]:
    """Return the (rank, d) components of each run."""
    found = []
    for run in range(runs):
        model = PCA(rank, epsilon=epsilon, data_norm=1.0, centered=True, random_state=run).fit(x)
        found.append(model.components_.tolist())
    return found


def main() -> None:
    """Print the components, (runs, rank, d), of each case."""
    warnings.simplefilter("ignore")
    told = {"version": version("diffprivlib"), "found": []}
    for path in sys.argv[1:]:
        with np.load(path) as case:
            told["found"].append(
                bases(case["x"], int(case["rank"]), float(case["epsilon"]), int(case["runs"]))
            )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
