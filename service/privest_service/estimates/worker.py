"""What only worker processes import: the gate, with its generator, over rows on disk."""

from collections.abc import Sequence

import numpy as np

from privest.privacy.certificates import NoisySum
from privest.privacy.gate import Gate, Statistic
from privest.records import Records


def gate(path: str, statistic: Statistic, releases: Sequence[NoisySum]) -> Gate:
    """A gate over the rows of one file, with a generator of its own."""
    return Gate(Records(np.load(path, mmap_mode="r", allow_pickle=False)), statistic, releases)
