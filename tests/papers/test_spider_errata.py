"""What Liu and Talwar 2025 print and we do not build: each formula fails the law that ours keeps."""

from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np
import pytest

from privest.arrays import SymmetricCoordinates
from privest.data.records import Records
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate, Prefixes
from privest.privacy.matrix_mechanism import PrefixSums, nodes, prefix_sums
from privest.privacy.noise import SystemNoise
from privest_papers.nonconvex_losses import Gradients, Hessians, Leaf
from privest_papers.spider import escape
from privest_papers.spider_schedule import Problem, plan
from testing.noise import ScriptedNoise

N, BATCH = 24, 6
SYMMETRIC = SymmetricCoordinates(3)


@dataclass(frozen=True)
class Linear:
    """f(x; z) = ⟨z, x⟩ + ½ xᵀZx, as far from its bounds as the rows are."""

    size: int = 3
    gradient_bound: float = 1.0
    gradient_lipschitz: float = 1.0
    hessian_lipschitz: float = 1.0

    def gradients(self, point, rows):
        return rows[:, :3] + (SYMMETRIC.matrix(rows[:, 3:]) @ point)

    def hessians(self, _, rows):
        return SYMMETRIC.matrix(rows[:, 3:])


def stream(name, size, leaves):
    return prefix_sums("square-root", statistic=name, n=N, size=size, clip=1 / BATCH, leaves=leaves, mu=1.0)


def answers(rows, release, statistic):
    """All prefixes of a segment: the first leaf at 0, the others of changes from 0 to e₁."""
    gate = Gate(Records(rows), {release.statistic: statistic}, [release], ScriptedNoise())
    zero, seen = np.zeros(3), []
    for k in range(release.leaves):
        before = zero if k else None
        gate.extend(release.statistic, Leaf(zero + (k > 0) * np.eye(3)[0], before, BATCH), BATCH)
        seen.append(gate.prefix(release.statistic))
    return seen


def moved_by_one_record(release, statistic, size=1.0):
    """μ² that the answers are worth, of the worst record found, for the noise of the release."""
    worst = 0.0
    rng, k = np.random.default_rng(0), np.arange(release.leaves)
    c = np.array([1, 1 / 2, 3 / 8, 5 / 16])
    root = np.where(k[:, None] >= k, c[np.abs(k[:, None] - k)], 0)
    for place in (0, 7, 23):
        for _ in range(20):
            rows = np.zeros((N, 9))
            rows[place, :3], rows[place, 3:] = np.eye(3)[0] * size, SYMMETRIC.of(np.diag([size, 0, 0]))
            other = rows.copy()
            other[place] *= -1
            rows[:, 3:] += 1e-3 * rng.standard_normal(6)
            other[:, 3:] = np.where(np.arange(N)[:, None] == place, other[:, 3:], rows[:, 3:])
            found = [answers(r, release, statistic) for r in (rows, other)]
            change = np.linalg.solve(root, np.array(found[0]) - found[1])
            worst = max(worst, np.sum(change**2) / release.scale**2)
    return worst


# Laws


def a_stream_costs_what_one_record_moves(release):
    statistic = Hessians(Linear(), 1) if release.statistic == "hessian" else Gradients(Linear())
    assert moved_by_one_record(release, statistic) <= release.cost.mu_squared


def whatever_records_are_the_cost_stays(statistic):
    """The record is four clips long: a longer one alone would be left out by the gate's last defence."""
    assert moved_by_one_record(GRADIENTS, statistic, size=4.0) <= GRADIENTS.cost.mu_squared


def every_prefix_is_noisy(kind):
    kept = kind(GRADIENTS, SystemNoise(0))
    for _ in range(4):
        kept.add(np.zeros(3, dtype=np.int64))
        assert (kept.read() != 0).all()  # but for 2^-30 each


def nodes_cover_the_stream(of):
    for length in range(1, 70):
        for t in range(1, length + 1):
            assert [k for first, last in of(t, length) for k in range(first, last + 1)] == list(
                range(1, t + 1)
            )


def noise_is_known_before_the_run(scale_of):
    """The scale is equal for two datasets, and so for whatever they answer."""
    calm, steep = np.full((9, 3), 0.1), np.full((9, 3), 0.9)
    assert scale_of(calm) == scale_of(steep)


def no_leaf_is_more_sensitive_than_the_first(size_of):
    """G/b and M|Δx|/b_t, over steps of every length, G = M = 1."""
    for length in np.geomspace(1e-4, 1.0, 60):
        assert length / size_of(length) <= 1 / FIRST * (1 + 1e-12)


def an_escape_falls(escape_of):
    """A saddle point of −√(ρα), and a direction that is flat, in which the gradient is released as α/10."""
    found = plan(Problem(Linear(), 1, 1.0, 10**8, PrivacyTarget(1.0, 1e-6)))
    alpha, schedule = found.accuracy, found.schedule
    e, h = alpha / 8, sqrt(alpha) / 8
    gradient, hessian = np.array([1e-9, alpha / 10, 0.0]), np.diag([h - 1.01 * sqrt(alpha), 0.0, 1.0])
    way = escape_of(gradient, hessian, schedule)[0]
    r = np.linalg.norm(way)
    assert gradient @ way + e * r + (way @ hessian @ way + h * r**2) / 2 + r**3 / 6 < 0


# What is printed


@dataclass(frozen=True)
class HalfSums(PrefixSums):
    """Proof of Lemma 3.13: G/b and M|Δx|/b_t, and of Hessians M/b."""

    @property
    def sensitivity(self):
        return super().sensitivity / 2


class NoiseInOneBranch(Prefixes):
    """Algorithm 3, line 6: O₁ is used as it is."""

    def read(self):
        noisy = super().read()
        return noisy if len(self._drawn) > 1 else self._total * self.release.spacing


class AsAssumed(Gradients):
    """Algorithm 4: plain means, G and M taken for granted."""

    def clipped_sum(self, point, rows, _):
        change = self.loss.gradients(point.point, rows)
        if point.before is not None:
            change = change - self.loss.gradients(point.before, rows)
        return change.sum(axis=0) / point.records


def printed_nodes(t, length):
    """Algorithm 1: i from 1 to ⌈log Σ⌉, k′ = k + 2^(⌈log Σ⌉ − i)."""
    found, k, levels = [], 0, ceil(log(length, 2) - 1e-12)
    for i in range(1, levels + 1):
        if k < t and k + 2 ** (levels - i) <= t:
            found.append((k + 1, k + 2 ** (levels - i)))
            k = found[-1][1]
    return found


def printed_scale(rows):
    """Lemma 3.13: (G/b + max |∇̃_t|/b_t)·log(1/δ)/ε."""
    gradients = np.cumsum(rows, axis=0) / 9
    return (1 / 9 + np.linalg.norm(gradients, axis=1).max() / 3) * log(1e6)


def printed_escape(gradient, hessian, schedule):
    """Algorithm 2: by the model's gradient until |x − x₀| >= Ξ; here of ⅔√(α/ρ)."""
    way, alpha = np.zeros_like(gradient), (8 * schedule.loud) ** 2
    while np.linalg.norm(way) < 2 / 3 * sqrt(alpha):
        way = way - schedule.step_size * (gradient + hessian @ way)
    return way, True


ALPHA = 0.27
FIRST = ceil(1 / ALPHA + 1 / ALPHA**2 + 1 + 1 / ALPHA)
"""First batch b = G√d/(εα) + G²/α² + M√d/(ρε) + M²/(ρα), with all but α one."""


def printed_size(length):
    """Lemma 3.14, likewise: max{|g|√d/(αε), κ|g|/α², ρκ|g|/(M²α), 1}."""
    return max(length / ALPHA, length / ALPHA**2, 1)


GRADIENTS, HESSIANS = stream("gradient", 3, 4), stream("hessian", 6, 1)
ERRATA = {
    "a factor of two": (a_stream_costs_what_one_record_moves, GRADIENTS, HalfSums(**vars(GRADIENTS))),
    "a factor of two, of Hessians": (
        a_stream_costs_what_one_record_moves,
        HESSIANS,
        HalfSums(**vars(HESSIANS)),
    ),
    "a raw gradient": (every_prefix_is_noisy, Prefixes, NoiseInOneBranch),
    "nothing is clipped": (
        whatever_records_are_the_cost_stays,
        Gradients(Linear()),
        AsAssumed(Linear()),
    ),
    "the last leaf of a tree": (nodes_cover_the_stream, lambda t, _: nodes(t), printed_nodes),
    "noise from the answers": (noise_is_known_before_the_run, lambda _: GRADIENTS.scale, printed_scale),
    "far is not down (Lemma 3.8)": (an_escape_falls, escape, printed_escape),
    "small batches": (
        no_leaf_is_more_sensitive_than_the_first,
        lambda length: max(1, ceil(FIRST * length)),
        printed_size,
    ),
}


@pytest.mark.parametrize(("law", "ours", "printed"), ERRATA.values(), ids=ERRATA)
def test_the_law_fails_where_the_paper_is_followed(law, ours, printed):
    law(ours)
    with pytest.raises(AssertionError):
        law(printed)
