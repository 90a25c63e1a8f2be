"""Faults for the workers of a server of the audit's own: imported there alone, by `audit.faulty`."""

import os
import time

from privest.arrays import Array
from privest.privacy.certificates import Noise
from privest.privacy.noise import SystemNoise
from privest.records import Repeated
from privest.shapes import Shape
from privest_service.estimates import worker

NOISE = "AUDIT_NOISE"
"""Variable of the environment: the factor of all noise."""

TRIPWIRE = 7.0625
"""A first record that begins with it is treated as no record may be: see `rows_in`."""

_drawn, _rows_in = SystemNoise.draw, worker.rows_in
_factor = float(os.environ[NOISE])


def draw(self: SystemNoise, noise: Noise, scale: float, size: int) -> Array:
    """Noise of a wrong scale."""
    return _drawn(self, noise, _factor * scale, size)


def rows_in(path: str, shape: Shape) -> Array | Repeated:
    """Rows whose first record says how many seconds it takes to open them, or, below zero, that they fail."""
    rows = _rows_in(path, shape)
    if isinstance(rows, Repeated):
        return rows
    first = rows[:1].reshape(-1)
    if first[0] == TRIPWIRE:
        time.sleep(first[1])
    return rows


SystemNoise.draw = draw
worker.rows_in = rows_in
