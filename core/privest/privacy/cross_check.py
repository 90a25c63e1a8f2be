"""A second opinion on the privacy of a run, by autodp's Rényi accounting. It is shown, never charged.

Rényi bounds are valid but loose. So the ε computed here may be well above the requested one, especially with
random batches. An ε far below it would show that one of the two accountants is wrong. Importing autodp takes
seconds and a hundred megabytes, so the call imports it, and belongs in a worker process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from math import exp, fsum, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from privest.privacy.matrix_mechanism import PrefixSums
from privest.privacy.mechanisms import AlternativeSum, NoisySum, Release, SubsampledSum, amplified, parted

_HIGHEST_ORDER = 3000.0
"""Highest order of Rényi divergence tried for Poisson batches. autodp takes a second per thousand orders."""

_LARGEST = 500.0
"""Largest ε that the search for a bound on Poisson batches tries."""


@dataclass(frozen=True)
class Opinion:
    """Another accountant's bound on the privacy of a whole run, under replacement of one record.

    Attributes:
        accountant: name and version of the accountant, and the kind of its bounds.
        epsilon: bound on ε for all releases together at this `delta`; None if there is no finite one.
    """

    accountant: str
    epsilon: float | None
    delta: float


def second_opinion(releases: Sequence[Release], delta: float) -> Opinion:
    """The smaller of two bounds on ε that autodp gives for all releases together.

    The first bound is on one replaced record. The second is for Poisson batches only: it treats a replacement
    as a removal and an addition. If each is (ε, δ)-private, both are (2ε, (1 + e^ε)·δ)-private. This
    bound is much better for small batches.

    Args:
        releases: all releases of the run.
        delta: δ. If it is 0, the pure ε of the releases is added up; it is infinite for Gaussian noise.
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
    """All releases as one mechanism of autodp, for one record replaced, or for one added or removed."""
    composition: Any = import_module("autodp.transformer_zoo").Composition()
    shared, alternatives = parted(releases)
    releases = [*shared, *max(alternatives, key=_dearness, default=())]
    sums = [r for r in releases if isinstance(r, NoisySum | SubsampledSum)]
    mechanisms, counts = [_mechanism(r, replaced=replaced) for r in sums], [r.count for r in sums]
    streams = [r for r in releases if not isinstance(r, NoisySum | SubsampledSum)]
    if streams:  # streams see different records, so only the costliest counts
        costliest = max(streams, key=lambda r: r.cost.mu_squared)
        mechanisms.append(_stream(costliest, replaced=replaced))
        counts.append(1)
    return composition(mechanisms, counts)


def _dearness(releases: Sequence[AlternativeSum]) -> float:
    """What tells the costliest of alternatives: all have the same kind of noise."""
    return fsum(release.cost.mu_squared for release in releases)


def _stream(release: PrefixSums, *, replaced: bool) -> Any:
    """A whole stream as one mechanism of autodp: for one record it is a single Gaussian release."""
    zoo: Any = import_module("autodp.mechanism_zoo")
    return zoo.ExactGaussianMechanism((1.0 if replaced else 2.0) / sqrt(release.cost.mu_squared))


def _mechanism(release: NoisySum | SubsampledSum, *, replaced: bool) -> Any:
    """One release as a mechanism of autodp.

    An added or removed record moves a sum by half as much as a replaced one, or by `clip` if that is more.
    """
    # Theorem 9 of Wang et al. (2019) is about subsets of a fixed size, and holds for Poisson batches too.
    # Given which other records are in the batch, the sum is a mixture of the sum without the record, which
    # both neighbours share, and the sum with it. The theorem's ternary divergence only needs any two of
    # these three sums to be within reach of each other, which the two with the record are least.
    zoo: Any = import_module("autodp.mechanism_zoo")
    transformers: Any = import_module("autodp.transformer_zoo")
    moved = release.sensitivity * (1.0 if isinstance(release, NoisySum) else release.apart)
    if not replaced:
        moved = max(moved / 2, release.clip)
    if release.noise != "gaussian":
        # Noise may be by length, which autodp does not know, so only its pure ε is stated.
        laplace: Any = import_module("autodp.autodp_core").Mechanism()
        laplace.name, laplace.params = "Laplace", {}
        epsilon = moved / release.scale
        if not isinstance(release, NoisySum):
            epsilon = amplified(epsilon, release.rate, release.scheme)
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
    """2ε for an ε such that the run is (ε, δ/(1 + e^ε))-private for one added or removed record."""
    if any(_scheme(r) == "fixed" for r in releases):
        return inf  # adding or removing a record would change the size of a batch
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
