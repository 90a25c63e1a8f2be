"""What autodp's Rényi accounting makes of a run: a second opinion, beside the certificate that is charged.

Rényi bounds are valid but loose: the ε told here may be well above the one that was asked for, above all for
random batches. Far below it, it would mean that one of the two is wrong. autodp is imported by the call,
which belongs in a worker process: it takes seconds and a hundred megabytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from math import exp, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from privest.privacy.matrix_mechanism import Stream
from privest.privacy.mechanisms import NoisySum, Release, SubsampledSum, amplified

_HIGHEST_ORDER = 3000.0
"""Highest order of Rényi divergences for Poisson batches: autodp takes a second for each thousand."""

_LARGEST = 500.0
"""An ε that nobody needs a second opinion on."""


@dataclass(frozen=True)
class Opinion:
    """What another accountant says of a whole run, under replacement of one record; it is never charged.

    Attributes:
        accountant: its name and version, and the kind of its bounds.
        epsilon: its bound on ε for all releases together, at this `delta`; None where it has no finite one.
        delta: as requested.
    """

    accountant: str
    epsilon: float | None
    delta: float


def second_opinion(releases: Sequence[Release], delta: float) -> Opinion:
    """The ε that autodp gives for all releases together: the lesser of two bounds.

    One is on a replaced record. The other, for Poisson batches alone, takes it for a record removed and
    one added, (ε, δ) each, which makes (2ε, (1 + e^ε)·δ); it is much the better where batches are small.

    Args:
        releases: of the whole run.
        delta: δ; at 0 the pure ε of the releases is added up, and Gaussian noise has none.
    """
    with np.errstate(all="ignore"):  # its searches begin where bounds are infinite
        if delta == 0:
            epsilon = float(_run(releases, replaced=True).get_pureDP())
        else:
            epsilon = float(_run(releases, replaced=True).get_eps(delta))
            if any(_scheme(r) == "poisson" for r in releases):
                epsilon = min(epsilon, _removed_and_added(releases, delta))
    kind = "Rényi" if delta else "pure"
    return Opinion(f"autodp {version('autodp')}, {kind}", epsilon if isfinite(epsilon) else None, delta)


def _scheme(release: Release) -> str | None:
    return release.scheme if isinstance(release, SubsampledSum) else None


def _run(releases: Sequence[Release], *, replaced: bool) -> Any:
    """All releases as one mechanism of autodp, with a record replaced or one that is there or not."""
    composition: Any = import_module("autodp.transformer_zoo").Composition()
    sums = [r for r in releases if isinstance(r, NoisySum | SubsampledSum)]
    mechanisms, counts = [_mechanism(r, replaced=replaced) for r in sums], [r.count for r in sums]
    streams = [r for r in releases if not isinstance(r, NoisySum | SubsampledSum)]
    if streams:  # which see different records: the costliest counts
        costliest = max(streams, key=lambda r: r.cost.mu_squared)
        mechanisms.append(_stream(costliest, replaced=replaced))
        counts.append(1)
    return composition(mechanisms, counts)


def _stream(release: Stream, *, replaced: bool) -> Any:
    """What one record can be seen of in a whole stream: one normal vector of the mechanism's right factor."""
    zoo: Any = import_module("autodp.mechanism_zoo")
    return zoo.ExactGaussianMechanism((1.0 if replaced else 2.0) / sqrt(release.cost.mu_squared))


def _mechanism(release: NoisySum | SubsampledSum, *, replaced: bool) -> Any:
    """One release as a mechanism of autodp.

    Sampling never costs, so that the bound without it holds as well. A record that is there or not moves
    the sums by half as much as a replaced one, or by the clip where records are closer to each other.
    """
    # Theorem 9 of Wang, Balle and Kasiviswanathan (2019) is on subsets of a fixed size, and holds for Poisson
    # batches too: given which others are in, the sum is a mixture of one without the record, the same for
    # both neighbours, and one with it; its ternary divergence needs any two of the three within 2C, no more.
    zoo: Any = import_module("autodp.mechanism_zoo")
    transformers: Any = import_module("autodp.transformer_zoo")
    moved = release.sensitivity * (1.0 if isinstance(release, NoisySum) else 2.0)
    if not replaced:
        moved = max(moved / 2, release.clip)
    if release.noise == "laplace":
        # By length, not by coordinates as autodp's own is: of its loss no more is known than its bound.
        laplace: Any = import_module("autodp.autodp_core").Mechanism()
        laplace.name, laplace.params = "Laplace", {}
        epsilon = moved / release.scale
        if not isinstance(release, NoisySum):  # only of a fixed size, of which a record is replaced
            epsilon = amplified(epsilon, release.rate)
        laplace.propagate_updates(epsilon, "pureDP")
        return laplace
    gaussian = zoo.ExactGaussianMechanism(release.scale / moved)
    if isinstance(release, NoisySum) or release.rate == 1:
        return gaussian
    gaussian.neighboring = "replace_one" if replaced else "add_remove"
    sampling = transformers.AmplificationBySampling(PoissonSampling=not replaced)
    sampled = sampling(gaussian, release.rate, improved_bound_flag=not replaced)
    sampled.propagate_updates(gaussian.RenyiDP, "RDP")
    return sampled


def _removed_and_added(releases: Sequence[Release], delta: float) -> float:
    """Twice the ε of a run whose record is there or not, at a δ that keeps (1 + e^ε)·δ within the given."""
    if any(_scheme(r) == "fixed" for r in releases):
        return inf  # such batches are never one record short
    run = _run(releases, replaced=False)
    if sqrt(-2 * log(delta) / float(run.get_RDP(2))) > _HIGHEST_ORDER:
        return inf
    guess = 0.25
    while guess < _LARGEST:
        epsilon = float(run.get_approxDP(delta / (1 + exp(guess))))
        if epsilon <= guess:
            return 2 * epsilon
        guess = 1.25 * epsilon
    return inf
