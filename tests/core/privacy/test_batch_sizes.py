"""Sizes of Poisson batches: by forced bits beside the edges between two sizes, against exact fractions."""

from fractions import Fraction
from itertools import accumulate, chain, repeat
from math import comb, floor

import mpmath
import numpy as np
import pytest

from privest.privacy import batch_sizes as tested
from privest.privacy.batch_sizes import batch_sizes
from privest.privacy.noise import SystemNoise

ONES = 2**64 - 1


def size_of(number, n, rate, *, words=16):
    """The size that a uniform number tells of which so many words are as given; others are zero."""
    bits = floor(number * 2 ** (64 * words - 1))
    drawn = [bits >> 64 * (words - 1) << 1, *(bits >> 64 * k & ONES for k in reversed(range(words - 1)))]
    source = chain(drawn, repeat(0))
    (found,) = batch_sizes(lambda size: np.array([next(source) for _ in range(size)], "u8"), n, rate, 1)
    return int(found)


def edges(n, rate):
    """P(size ≤ k) of every k below n, as fractions."""
    q = Fraction(rate)
    return list(accumulate(comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n)))


def wrong(n, rate):
    """How many numbers beside an edge, at four distances from it, do not tell the size that is theirs."""
    return sum(
        size_of(edge + side * edge * (1 - edge) / 2**deep, n, rate) != k + (side > 0)
        for k, edge in enumerate(edges(n, rate))
        for deep in (40, 64, 100, 160)
        for side in (-1, 1)
    )


@pytest.mark.parametrize(("n", "rate"), [(1, 0.5), (3, 0.3), (7, 1e-9), (12, 0.999), (40, 1 / 3), (50, 0.02)])
def test_every_edge_parts_two_sizes(n, rate):
    """However improbable they are: the last of (50, 0.02) has a probability of 10⁻⁸⁵."""
    assert wrong(n, rate) == 0


@pytest.mark.parametrize("guard", [-20, 0, 20])
def test_few_digits_are_made_up_for_by_more_words(monkeypatch, guard):
    monkeypatch.setattr(tested, "_MORE", guard)
    assert wrong(40, 1 / 3) == 0


def test_weights_believed_to_lack_nothing_put_numbers_into_wrong_sizes(monkeypatch):
    """The planted fault: edges whose bracket leaves out what rounding took from weights."""
    real = tested._edges

    def believed(n, rate, bits):
        least, low, _ = real(n, rate, bits)
        return least, low, low

    monkeypatch.setattr(tested, "_edges", believed)
    monkeypatch.setattr(tested, "_MORE", -20)
    assert wrong(40, 1 / 3) > 0


@pytest.mark.parametrize(("n", "rate", "k"), [(10**6, 256e-6, 250), (10**9, 1e-7, 60)])
def test_edges_among_many_records_are_mpmaths(n, rate, k):
    """P(size ≤ k) by logarithms of the gamma function, each size by itself, and not by those beside it."""
    with mpmath.workdps(60):
        q, orders = mpmath.mpf(rate), mpmath.loggamma(n + 1)
        logs = [
            orders
            - mpmath.loggamma(j + 1)
            - mpmath.loggamma(n - j + 1)
            + j * mpmath.log(q)
            + (n - j) * mpmath.log1p(-q)
            for j in range(k + 1)
        ]
        edge = Fraction(int(mpmath.floor(mpmath.fsum(map(mpmath.exp, logs)) * mpmath.mpf(2) ** 160)), 2**160)
    near = edge * (1 - edge) / 2**90
    assert (size_of(edge - near, n, rate), size_of(edge + near, n, rate)) == (k, k + 1)


def test_tails_do_not_end():
    """numpy's binomial variates end at ten deviations above the mean: at 11 for 200 records at .0005."""
    below = edges(200, 0.0005)
    for bits in (60, 150, 300):
        size = size_of(1 - Fraction(1, 2**bits), 200, 0.0005)
        assert below[size - 1] <= 1 - Fraction(1, 2**bits) < below[size]
    assert size > 30


def test_all_records_are_in_a_batch_of_all():
    assert size_of(Fraction(1, 3), 20, 1.0) == 20 == size_of(1 - Fraction(1, 2**400), 20, 1.0)


def test_no_more_bits_are_drawn_than_are_needed():
    asked = list[int]()
    words = SystemNoise(0)._words
    batch_sizes(lambda size: asked.append(size) or words(size), 10_000, 0.0256, 4096)
    assert asked == [4096]  # one in 10¹³ times there is another
