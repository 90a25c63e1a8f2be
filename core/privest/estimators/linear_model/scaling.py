"""Private scaling: noisy sums that tell where features are, how far they spread, and how long rows get."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.tables import Truths, listed
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.losses.spread import FeatureSpread, LengthCounts
from privest.estimators.range_finding.column_scales import ColumnScales
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

_OPEN_SHARE, _SPREAD_SHARE, _LENGTHS_SHARE = 0.2, 0.1, 0.05
"""Shares of ε or of μ² for histograms of columns without bounds, for the spread, and for the lengths."""

_CLOSER, _MOST_SUMS = 3.0, 3
"""Half width of the next sum of a feature, over the spread that noise hides, and most sums."""

_CLEAR = 0.13
"""Spread that noise hides, over half the width of the bounds, up to which there are several sums. With more
noise there are many features for the records, and mostly-zero ones in small units make rows too long."""

_SEEN = 0.75
"""Noise on mean and spread of a feature, over half the width of its bounds, below which they are learned."""

_WIDE = 4.0
"""Half width of the interval of a column without bounds, over the typical distance from its centre."""

_LOST, _SURE = 2.0, 2.0
"""Share of the records that may be longer than the bound, over the noise 1/(n·μ) on one share, or in
deviations of the noise on the count of them."""

_FURTHEST = 64.0
"""Longest length of features that lack public bounds, over the usual one."""

_LOUD = 0.05
"""Noise on the share of records of one length from which on lengths are not looked at."""

_USUAL_BOUND = 1.5
"""Bound on the length of features, over the usual one, where the noise hides lengths: few are longer."""


_HIDDEN = (
    "the coefficients of {names} are unknown, and they and the intercept may be far outside their intervals: "
    "the noise hides how far these values spread within their bounds; declare closer low and high, or ask "
    "with more records or a larger epsilon"
)


class Scaled(NamedTuple):
    """What the noisy sums told of features.

    Attributes:
        feature_map: features in units of their spread, with the length beyond which hardly a record is.
        usual: median length of features in these units.
        hidden: (d,) whether the noise hides how far a feature spreads; its unit may be much too large.
        warnings: what the sums could not tell.
    """

    feature_map: FeatureMap
    usual: float
    hidden: Truths
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PrivateScaling:
    """The noisy sums by which a run finds units of features and a bound on their length.

    Attributes:
        shape: public facts of the data.
        budget: of the whole run.
        spread: whether units are looked for, and not the length alone.
    """

    shape: LabelledMetadata
    budget: PrivacyBudget
    spread: bool

    @property
    def open_columns(self) -> ColumnScales | None:
        """Histograms of a table's columns without bounds, if there are any."""
        return ColumnScales.of(self.shape.recipe)

    @property
    def share(self) -> float:
        """Share of ε or of μ² that all of them take."""
        is_open = self.open_columns is not None
        lengths = _LENGTHS_SHARE * (self._counted is not None)
        return _OPEN_SHARE * is_open + _SPREAD_SHARE * self.spread + lengths

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate sums, by name."""
        own: dict[str, AnyStatistic] = {"spread": FeatureSpread(self.shape.dim), "lengths": LengthCounts()}
        return own | (self.open_columns.statistics if self.open_columns else {})

    def releases(self) -> tuple[NoisySum, ...]:
        """Return the releases, in order.

        Raises:
            ValueError: the noise hides where columns without bounds are.
        """
        found = self.open_columns.releases(self.budget, _OPEN_SHARE) if self.open_columns else ()
        if self.spread:
            found = (*found, self._spread)
        return (*found, self._counted) if self._counted else found

    @property
    def _counted(self) -> NoisySum | None:
        """The release of lengths, unless the noise would hide them."""
        counted = self.budget.release(LengthCounts(), "lengths", 1.0, share=_LENGTHS_SHARE)
        return counted if counted.deviation < _LOUD else None

    @property
    def _spread(self) -> NoisySum:
        """The release of mean and spread: one to three sums, whichever number hides the least spread."""
        spread = FeatureSpread(self.shape.dim)
        asked = [
            self.budget.release(spread, "spread", spread.longest, share=_SPREAD_SHARE, count=count)
            for count in range(1, _MOST_SUMS + 1)
        ]
        if spread.least(asked[0].deviation) > _CLEAR:
            return asked[0]
        return min(asked, key=lambda each: spread.least(each.deviation, each.count, _CLOSER))

    @property
    def is_worth_it(self) -> bool:
        """Whether the noise leaves something to see of means and spreads within public bounds."""
        return self._spread.deviation < _SEEN

    def find(self, gate: Oracle, releases: Sequence[Release], feature_map: FeatureMap) -> Scaled:
        """Return units of features and the bound on their length.

        Args:
            gate: makes the releases.
            releases: as planned.
            feature_map: by public facts.
        """
        counted = self._counted
        looks = releases[:-1] if counted else releases
        warnings, hidden = list[str](), np.zeros(self.shape.dim, dtype=np.bool_)
        if (columns := self.open_columns) is not None:
            histograms = looks[:-1] if self.spread else looks
            found = columns.find(gate, histograms)
            warnings += found.hidden(columns.names)
            typical = found.typical()
            feature_map = replace(
                feature_map,
                mean=columns.among_all(typical.center, feature_map.mean),
                scale=columns.among_all(_WIDE * typical.scale, feature_map.scale),
            )
        if self.spread:
            feature_map, hidden = self._standardised(gate, looks[-1], feature_map)
            if hidden.any():
                warnings.append(_HIDDEN.format(names=listed(self._names(hidden))))
        if counted is None:
            usual = self.shape.usual_length
            return Scaled(replace(feature_map, bound=_USUAL_BOUND * usual), usual, hidden, tuple(warnings))
        longest = self._longest(feature_map)
        seen = gate.mean(replace(feature_map, bound=longest), "lengths")
        bound, usual = self._lengths(seen, counted.deviation)
        return Scaled(replace(feature_map, bound=bound * longest), usual * longest, hidden, tuple(warnings))

    def _standardised(
        self, gate: Oracle, release: Release, feature_map: FeatureMap
    ) -> tuple[FeatureMap, Truths]:
        """Return features in units of their spread, and whether the noise hides how far each spreads.

        Each sum clips the features whose spread the noise has hidden so far. It clips them at a few times the
        largest spread that the noise may have hidden, so that the same noise hides less of them.
        """
        spread = FeatureSpread(self.shape.dim)
        found = asked = replace(feature_map, bound=1.0)
        hidden = np.ones(self.shape.dim, dtype=np.bool_)
        for _ in range(release.count):
            center, scale, unseen = spread.parts(gate.mean(asked, "spread"), release.deviation)
            found = found.with_some(hidden, asked.shifted(center, scale))
            hidden = hidden & unseen
            closer = replace(found, scale=np.minimum(_CLOSER * found.scale, asked.scale))
            asked = asked.with_some(hidden, closer)
        return replace(found, bound=feature_map.bound), hidden

    def _names(self, chosen: Truths) -> list[str]:
        """Return the names of features."""
        return [name for name, one in zip(self.shape.features, chosen.tolist(), strict=True) if one]

    def _longest(self, feature_map: FeatureMap) -> float:
        """Return a length that features within their bounds do not exceed; of others a very large one."""
        recipe = self.shape.recipe
        if recipe is None or not recipe.is_bounded:
            return _FURTHEST * self.shape.usual_length
        low, high = (np.abs(end - feature_map.mean) / feature_map.scale for end in recipe.range)
        return float(np.linalg.norm(np.maximum(low, high)))

    def _lengths(self, shares: Array, deviation: float) -> tuple[float, float]:
        """Return the bound and the median length, over the longest, by noisy shares of each length.

        The bound is the least beyond which next to no records are, by what the noise lets see: those that
        are further out cost less than the noise that a larger bound would add.
        """
        ratios = LengthCounts.ratios()
        beyond = np.cumsum(shares) - shares
        hidden = _SURE * deviation * np.sqrt(np.arange(len(shares)))
        few = beyond <= np.maximum(_LOST / (self.budget.n * self.budget.whole), hidden)
        last = int(np.flatnonzero(few)[-1])  # the first count has none beyond it
        median = int(np.argmax(np.cumsum(shares) > 0.5))
        return float(ratios[last]), float(ratios[max(median, last)])
