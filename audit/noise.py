"""Noise with a fault in it: what attacks must see."""

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.privacy.mechanisms import Noise
from privest.privacy.noise import SystemNoise


class Louder(SystemNoise):
    """The service's noise times a factor, with records handed out in the order that is worst for the first.

    A certificate of streams holds for every order, so it does for this one.

    Args:
        factor: 1 as claimed, ½ for the fault that attacks are tried on.
    """

    def __init__(self, factor: float) -> None:
        super().__init__(2**16)
        self._factor = factor

    def draw(self, noise: Noise, scale: float, size: int) -> Array:
        """One noise vector; see `NoiseSource`."""
        return super().draw(noise, self._factor * scale, size)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """In the order of the file."""
        return np.arange(n)
