# ruff: noqa: ARG001, PLC0415 - all peers take the same arguments; diffprivlib is imported where it is used
"""Peers of the private logistic regression: reads cases (.npz) from the arguments, prints one JSON object.

A case holds `x` (n, d), standardised by public facts to lengths about one; `y`, places of the classes;
`train` (splits, n), which records each split fits on; `epsilons` and `delta`. `--time` makes it print the
wall and processor seconds of a fit of diffprivlib instead. Runs in its own locked environment
(pyproject.toml, uv.lock beside it), and imports nothing of privest.

Where a peer has settings of its own, the best of a grid on the first splits is chosen with the test labels in
sight, which is to its advantage and no private procedure.
"""

import json
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from math import exp, log, sqrt
from time import perf_counter, process_time

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, softmax
from scipy.stats import norm

TRIALS = 40
"""Most splits on which settings are compared. Many classes have fewer, as a run takes long."""


@dataclass(frozen=True)
class Case:
    x: np.ndarray
    y: np.ndarray
    train: np.ndarray
    epsilons: np.ndarray
    delta: float

    @property
    def classes(self):
        return int(self.y.max()) + 1

    def first(self, count):
        return Case(self.x, self.y, self.train[:count], self.epsilons, self.delta)

    def accuracies(self, scores):
        """Accuracy on the test records of each split.

        The scores are (splits, n) of the second class, or (splits, n, classes) of each class.
        """
        said = scores > 0 if scores.ndim == 2 else scores.argmax(axis=-1)
        return ((said == self.y) & ~self.train).sum(axis=1) / (~self.train).sum(axis=1)


def shortened(x, clip, constant=0.0):
    """Rows of length at most one: clipped, divided by the clip, and with a constant for the intercept."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), clip)
    return np.hstack([x, np.full((len(x), 1), constant)]) / sqrt(1 + constant**2) if constant else x


def mu_of(epsilon, delta):
    """The μ of Gaussian DP that is (ε, δ): exact for any number of Gaussian steps, so it favours peers."""

    def excess(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 1e-3, 50, xtol=1e-12)


def per_split(train, rows, coefficients):
    """(splits, d) sums over a split's training rows, each row times its coefficient (splits, n)."""
    return (train * coefficients) @ rows


class Squares:
    """Second moments with weights, of many splits at a time."""

    def __init__(self, rows):
        self._d = rows.shape[1]
        self._products = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)

    def moments(self, weights):
        return (weights @ self._products).reshape(-1, self._d, self._d)


# diffprivlib: objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011) with δ = 0.

DIFFPRIVLIB = {"data_norm": (0.25, 0.5, 1.0), "fit_intercept": (True, False), "C": (1.0, 10.0)}


def diffprivlib_run(case, epsilon, rng, **setting):
    from diffprivlib.models import LogisticRegression

    found = []
    for train in case.train:
        model = LogisticRegression(epsilon=float(epsilon), max_iter=1000, **setting)
        model.fit(case.x[train], case.y[train])
        found.append(np.mean(model.predict(case.x[~train]) == case.y[~train]))
    return np.array(found)


# AMP: Iyengar, Near, Song, Thakkar, Thakurta and Wang 2019, Algorithm 1.


AMP = {"clip": (0.25, 0.5, 1.0)}


def amp_binary(case, rows, squares, positive, epsilon, delta, rng):
    """(splits, d) weights; the budget is divided as the authors' hyperparameter-free variant does it."""
    splits, d = len(case.train), rows.shape[1]
    n = case.train.sum(axis=1, keepdims=True)
    out = 0.01
    epsilon_2, delta_2 = out * epsilon, out * delta
    epsilon_1, delta_1 = epsilon - epsilon_2, delta - delta_2
    share = max(min(0.88671 + 0.0186607 / epsilon**0.372906, 0.99), 1 - 1 / epsilon + 0.001)
    epsilon_3 = share * epsilon_1
    # Rows are at most one long: gradients too, and Hessians at most 1/4, of rank one (replacing a record: 2).
    penalty = 2 * 0.25 / (epsilon_1 - epsilon_3)
    tolerance = 1 / n**2
    tilt = (2 / n) * (1 + sqrt(2 * log(1 / delta_1))) / epsilon_3 * rng.standard_normal((splits, d))
    w = np.zeros((splits, d))
    for _ in range(200):
        chance = expit(w @ rows.T)
        slope = per_split(case.train, rows, chance - positive) / n + penalty / n * w + tilt
        if (np.linalg.norm(slope, axis=1, keepdims=True) <= tolerance).all():
            break
        hessian = squares.moments(case.train * chance * (1 - chance)) / n[:, None]
        step = np.linalg.solve(hessian + (penalty / n)[:, None] * np.eye(d), slope[..., None])[..., 0]
        length = np.linalg.norm(step, axis=1, keepdims=True) + 1e-300
        w -= np.log1p(length) / length * step  # the damping that never overshoots, for rows up to one long
    else:
        raise RuntimeError("AMP found no approximate minimum")
    noise = n * tolerance / penalty * (1 + sqrt(2 * log(1 / delta_2))) / epsilon_2
    return w + noise * rng.standard_normal((splits, d))


def amp_run(case, epsilon, rng, *, clip):
    rows = shortened(case.x, clip)
    squares = Squares(rows)
    if case.classes == 2:
        w = amp_binary(case, rows, squares, case.y == 1, epsilon, case.delta, rng)
        return case.accuracies(w @ rows.T)
    share = 1 / case.classes
    weights = [
        amp_binary(case, rows, squares, case.y == k, share * epsilon, share * case.delta, rng)
        for k in range(case.classes)
    ]
    return case.accuracies(np.stack([w @ rows.T for w in weights], axis=-1))


# DP-Newton: Ganesh, Haghifam, Steinke and Thakurta 2023, Algorithm 3, with λ₀ added to the Hessian.

NEWTON = {
    "steps": (2, 4, 8, 16),
    "curvature": ("hessian", "upper bound"),
    "gradient_share": (0.5, 0.75),
    "trace_factor": (0.1, 1.0),
    "clip": (0.5, 1.0),
    "constant": (0.0, 0.25),
}


def newton_run(case, epsilon, rng, *, steps, curvature, gradient_share, trace_factor, clip, constant):
    rows = shortened(case.x, clip, constant)
    squares, d = Squares(rows), rows.shape[1]
    splits, n = len(case.train), case.train.sum(axis=1, keepdims=True)
    rho = mu_of(epsilon, case.delta) ** 2 / 2 / steps
    for_trace = 0.1
    rho_gradient, rho_hessian = gradient_share * rho, (1 - gradient_share) * rho
    w = np.zeros((splits, d))
    for _ in range(steps):
        score = w @ rows.T
        chance = expit(score)
        slope = per_split(case.train, rows, chance - case.y) / n
        slope += sqrt(0.5 / rho_gradient) / n * rng.standard_normal((splits, d))
        if curvature == "hessian":
            weight = chance * (1 - chance)
        else:
            near = np.abs(score) < 1e-9
            weight = np.where(near, 0.25, 0.5 * np.tanh(score / 2) / np.where(near, 1.0, score))
        hessian = squares.moments(case.train * weight) / n[:, None]
        trace = np.trace(hessian, axis1=1, axis2=2)[:, None]
        trace = trace + 0.25 / n * sqrt(0.5 / (for_trace * rho_hessian)) * rng.standard_normal((splits, 1))
        rest = (1 - for_trace) * rho_hessian
        least = np.maximum((trace_factor * np.maximum(trace, 0) / (n**2 * rest)) ** (1 / 3), 1 / n)
        sensitivity = np.linalg.norm(slope, axis=1, keepdims=True) * 0.25 / (n * least**2 + 0.25 * least)
        step = np.linalg.solve(hessian + least[:, None] * np.eye(d), slope[..., None])[..., 0]
        w = w - step + sensitivity * sqrt(0.5 / rest) * rng.standard_normal((splits, d))
    return case.accuracies(w @ rows.T)


# DP-SGD with all records in each batch: the update of Opacus, its noise by the exact accountant of this case.

DESCENT = {
    "steps": (3, 10, 30, 100),
    "clip": (0.1, 0.25, 0.5, 1.0),
    "reach": (1.0, 4.0, 16.0, 64.0),
    "bias": (False, True),
}


def descent_run(case, epsilon, rng, *, steps, clip, reach, bias, changes=1):
    """Per-record gradients clipped, summed, Gaussian noise added, divided by n: softmax for many classes.

    A step is reach / clip long. One record is added or removed, or, with two changes, replaced.
    """
    rows = np.hstack([case.x, np.ones((len(case.x), 1))]) if bias else case.x
    lengths = np.linalg.norm(rows, axis=1)
    noise = changes * clip * sqrt(steps) / mu_of(epsilon, case.delta)
    splits, n = len(case.train), case.train.sum(axis=1)
    outputs = 1 if case.classes == 2 else case.classes
    label = (case.y[:, None] == np.arange(outputs)) if outputs > 1 else case.y[:, None]
    w = np.zeros((outputs, splits, rows.shape[1]))
    for _ in range(steps):
        scores = np.stack([each @ rows.T for each in w], axis=-1)
        off = (softmax(scores, axis=-1) if outputs > 1 else expit(scores)) - label
        long = np.sqrt((off**2).sum(axis=-1)) * lengths
        off *= (case.train * np.minimum(1, clip / np.maximum(long, 1e-300)))[..., None]
        slopes = np.stack([off[..., k] @ rows for k in range(outputs)])
        w -= (
            reach
            / clip
            / n[None, :, None]
            * (slopes + noise * rng.standard_normal((outputs, splits, rows.shape[1])))
        )
    scores = np.stack([each @ rows.T for each in w], axis=-1)
    return case.accuracies(scores if outputs > 1 else scores[..., 0])


def best_of(run, grid):
    """The peer whose setting is the best one of a grid, in hindsight."""

    def peer(case, epsilon, rng):
        many = case.classes > 2
        trial = case.first(TRIALS // 4 if many else TRIALS)
        settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        if many:
            settings = [each for each in settings if not each.get("bias") and each.get("steps") != 3]
        means = [run(trial, epsilon, rng, **setting).mean() for setting in settings]
        chosen = settings[int(np.argmax(means))]
        return run(case, epsilon, rng, **chosen), chosen

    return peer


PEERS = {
    "diffprivlib": best_of(diffprivlib_run, DIFFPRIVLIB),
    "AMP": best_of(amp_run, AMP),
    "DP-Newton": best_of(newton_run, NEWTON),
    "DP-SGD": best_of(descent_run, DESCENT),
    "DP-SGD, replace-one": best_of(partial(descent_run, changes=2), DESCENT),
}


def measure(case):
    found = {}
    for name, peer in PEERS.items():
        if name == "DP-Newton" and case.classes > 2:
            continue
        found[name] = {}
        for epsilon in case.epsilons:
            begun = perf_counter()
            accuracies, setting = peer(case, epsilon, np.random.default_rng(0))
            found[name][f"{epsilon:g}"] = {
                "accuracy": float(accuracies.mean()),
                "error": float(accuracies.std(ddof=1) / sqrt(len(accuracies))),
                "splits": len(accuracies),
                "setting": setting,
            }
            taken = perf_counter() - begun
            print(name, epsilon, f"{accuracies.mean():.4f}", setting, f"{taken:.0f} s", file=sys.stderr)
    return found


def seconds(x, y):
    """Median wall and processor seconds of five fits of diffprivlib at ε = 1, after one on few rows."""
    from diffprivlib.models import LogisticRegression

    LogisticRegression(epsilon=1.0, data_norm=1.0).fit(x[:1000], y[:1000])
    taken = []
    for _ in range(5):
        wall, cpu = perf_counter(), process_time()
        LogisticRegression(epsilon=1.0, data_norm=1.0).fit(x, y)
        taken.append((perf_counter() - wall, process_time() - cpu))
    wall, cpu = np.median(taken, axis=0)
    return {"wall": wall, "cpu": cpu}


def main():
    warnings.simplefilter("ignore")
    results = {
        "versions": {name: version(name) for name in ("diffprivlib", "scikit-learn", "numpy", "scipy")}
    }
    timed = "--time" in sys.argv
    for path in sys.argv[1 + timed :]:
        with np.load(path) as held:
            if timed:
                results[path] = seconds(held["x"], held["y"])
            else:
                results[path] = measure(Case(**{name: held[name] for name in held.files}))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
