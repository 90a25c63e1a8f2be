"""Medians by OpenDP: reads cases (.npz) from the arguments, prints one JSON object.

A case holds `x` (n, d), `low` and `high` (d,), the bounds of its candidates, and `rho`, the zCDP budget of
all columns together. Runs in its own locked environment, and imports nothing of privest.
"""

import json
import sys
from importlib.metadata import version

import numpy as np
import opendp.prelude as dp

dp.enable_features("contrib")

_CANDIDATES, _RUNS = 1_000, 5


def _median(values: np.ndarray, candidates: np.ndarray, rho: float):
    """A function that draws private medians, for one replaced record."""
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(values))
    space = domain, dp.symmetric_distance()

    def made(scale: float):
        return dp.m.make_private_quantile(
            *space, dp.zero_concentrated_divergence(), candidates.tolist(), alpha=0.5, scale=scale
        )

    # A replaced record is one taken out and one put in.
    found = made(dp.binary_search(lambda scale: made(scale).map(2) <= rho, bounds=(1e-6, 1e9)))
    data = values.tolist()
    return lambda: found(data)


def main() -> None:
    """Medians, (runs, d), of each case."""
    told = {"version": version("opendp"), "found": []}
    for path in sys.argv[1:]:
        case = np.load(path)
        found = []
        for values, low, high in zip(case["x"].T, case["low"], case["high"], strict=True):
            draw = _median(
                values, np.linspace(low, high, _CANDIDATES), float(case["rho"]) / case["x"].shape[1]
            )
            found.append([draw() for _ in range(_RUNS)])
        told["found"].append(np.array(found).T.tolist())
    print(json.dumps(told))


if __name__ == "__main__":
    main()
