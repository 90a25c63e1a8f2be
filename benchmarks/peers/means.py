"""Means of single columns by other packages: reads cases (.npz) from the arguments, prints one JSON object.

A case holds `x` (n,), `low` and `high`, its declared bounds, `epsilon`, with δ = 0 and one replaced record,
and `runs`. Runs in its own locked environment, and imports nothing of privest.
"""

import json
import sys
from importlib.metadata import version

import numpy as np
import opendp.prelude as dp
from diffprivlib.tools import mean

dp.enable_features("contrib")


def by_diffprivlib(x: np.ndarray, low: float, high: float, epsilon: float, runs: int) -> list[float]:
    """Its mean with bounds: Laplace noise, whose answers are cut off at the bounds."""
    return [float(mean(x, epsilon=epsilon, bounds=(low, high), random_state=run)) for run in range(runs)]


def by_opendp(x: np.ndarray, low: float, high: float, epsilon: float, runs: int) -> list[float]:
    """Its mean of so many clamped values, with Laplace noise."""
    domain = dp.vector_domain(dp.atom_domain(bounds=(low, high), nan=False), size=len(x))
    exact = dp.t.make_mean(domain, dp.symmetric_distance())
    number = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    # A replaced record is one taken out and one put in.
    apart = exact.map(2)
    scale = dp.binary_search(
        lambda scale: dp.m.make_laplace(*number, scale).map(apart) <= epsilon,
        bounds=(0.0, 1e3 * apart / epsilon),
    )
    noisy, value = dp.m.make_laplace(*number, scale), exact(np.clip(x, low, high).tolist())
    return [float(noisy(value)) for _ in range(runs)]


PEERS = {"diffprivlib": by_diffprivlib, "opendp": by_opendp}


def main() -> None:
    """Means, (runs,), of each case and peer."""
    told = {"versions": {name: version(name) for name in PEERS}, "found": []}
    for path in sys.argv[1:]:
        case = np.load(path)
        low, high, epsilon = (float(case[name]) for name in ("low", "high", "epsilon"))
        asked = case["x"], low, high, epsilon, int(case["runs"])
        told["found"].append({name: peer(*asked) for name, peer in PEERS.items()})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
