"""Sizes of Poisson batches: binomial numbers with their exact law, given ideal random bits.

A size is a function of a uniform number, of which 63 bits are drawn at first. Integers on both sides of each
edge between two sizes say whether more are needed, and then both have more digits, too.
"""

from bisect import bisect_right
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from privest.memo import memoized
from privest.privacy.exact_noise import Words

_MORE = 128
"""Binary digits of weights beyond those of edges. So many hide what is missing for any n below 2⁶⁰."""


def batch_sizes(words: Words, n: int, rate: float, count: int) -> NDArray[np.int64]:
    """`count` independent numbers of records, of n, that are in a batch if each is with probability `rate`.

    Args:
        words: draws as many words of 64 random bits as it is told.
        n: number of records.
        rate: probability in (0, 1] of a record.
        count: how many sizes.
    """
    first = words(count) >> np.uint64(1)
    least, low, high = _edges(n, rate, 63)
    sure = np.searchsorted(np.array(high, dtype=np.uint64), first, "right")
    possible = np.searchsorted(np.array(low, dtype=np.uint64), first, "right")
    sizes = least + sure
    for place in np.flatnonzero(sure != possible).tolist():
        sizes[place] = _settled(words, n, rate, int(first[place]))
    return sizes


def _settled(words: Words, n: int, rate: float, drawn: int) -> int:
    """The size that a uniform number tells whose first 63 bits are drawn, with as many more as that takes."""
    bits = 63
    while True:
        drawn, bits = drawn << 64 | int(words(1)[0]), bits + 64
        least, low, high = _edges(n, rate, bits)
        size = least + bisect_right(high, drawn)
        if size == least + bisect_right(low, drawn):
            return size


@memoized
def _edges(n: int, rate: float, bits: int) -> tuple[int, list[int], list[int]]:
    """Integers at most and at least 2^bits·P(size ≤ k) for each k that counts, and the least such k.

    Weights of sizes follow from one another, outwards from the likeliest, and are rounded down. As they fall,
    each lacks less than one unit for every step, and what is left out at the ends is as small.
    """
    taken, whole = rate.as_integer_ratio()
    left = whole - taken
    mode = min(n, (n + 1) * taken // whole)
    above, below = [1 << bits + _MORE], [1 << bits + _MORE]
    for k in range(mode, n):
        if not (weight := above[-1] * (n - k) * taken // ((k + 1) * left)):
            break
        above.append(weight)
    for k in range(mode, 0, -1):
        if not (weight := below[-1] * k * left // ((n - k + 1) * taken)):
            break
        below.append(weight)
    sums = list(accumulate(below[:0:-1] + above))
    least, missing = mode - len(below) + 1, (n + 1) * (len(sums) + 1)
    low = [(part << bits) // (sums[-1] + missing) for part in sums]
    high = [min(1 << bits, -(-(part + missing << bits) // sums[-1])) for part in sums]
    if mode + len(above) > n:
        low[-1] = high[-1] = 1 << bits
    if least:  # sizes below have a probability that is less than one unit
        least, low, high = least - 1, [0, *low], [-(-(missing << bits) // sums[-1]), *high]
    return least, low, high
