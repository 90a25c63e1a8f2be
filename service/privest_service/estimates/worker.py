"""What only worker processes import: the gate, with its generator, over rows on disk."""

from collections.abc import Mapping, Sequence

import numpy as np

from privest.privacy.certificates import Release
from privest.privacy.gate import Gate
from privest.privacy.statistic import Statistic
from privest.records import Records


def gate(path: str, statistics: Mapping[str, Statistic], releases: Sequence[Release]) -> Gate:
    """A gate over the rows of one file, with a generator of its own."""
    return Gate(Records(np.load(path, mmap_mode="r", allow_pickle=False)), statistics, releases)
