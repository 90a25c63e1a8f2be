"""Faults for the workers of a server of the audit's own: imported there alone, by `audit.faulty`."""

import os
import time
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray

from audit.faulty import NOISE, TRIPWIRE
from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest.data.records import Repeated
from privest.privacy.mechanisms import Noise
from privest.privacy.noise import SystemNoise
from privest_service.estimates import worker

_drawn, _rows_in = SystemNoise.draw, worker.rows_in
_factor = float(os.environ[NOISE])


def draw(self: SystemNoise, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
    """Noise of a wrong scale."""
    return _drawn(self, noise, _factor * scale, size, spacing)


def rows_in(path: str, shape: DatasetMetadata) -> Array | Repeated:
    """Rows whose first record decides how long it takes to open them."""
    rows = _rows_in(path, shape)
    if isinstance(rows, Repeated):
        return rows
    first = rows[:1].reshape(-1)
    if first[0] == TRIPWIRE:
        time.sleep(first[1])
    return rows


SystemNoise.draw = draw
worker.rows_in = rows_in
worker.padded = nullcontext
