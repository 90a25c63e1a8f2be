"""Noise on the grid, batch sizes, and the generator."""

import copy
import itertools
import pickle
import subprocess
import sys
from fractions import Fraction
from itertools import accumulate, chain, repeat
from math import comb, floor

import mpmath
import numpy as np
import pytest
from flint import ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from privest.privacy import noise
from privest.privacy import noise as tested
from privest.privacy.mechanisms import MOST_LAPLACE, NoisySum, SubsampledSum, noisy_sum
from privest.privacy.noise import (
    Normals,
    Radius,
    SystemNoise,
    Uniforms,
    batch_sizes,
    gaussian_cells,
    laplace_cells,
)

FINE = 2.0**-32
"""The spacing of the finest grid for noise of scale 1: cells of probability 2⁻³³ and less."""

HALF = 0x8000_0000_0000_0000


class Forced:
    """A source of words that were written down, then of one word over and over.

    Attributes:
        given: number of words that it gave.
    """

    def __init__(self, *words, then=HALF):
        self._words, self.given = chain(words, repeat(then)), 0

    def __call__(self, size):
        self.given += size
        return np.array([next(self._words) for _ in range(size)], dtype=np.uint64)


def tail(edge):
    """2Φ(−edge), with as many digits as mpmath works with."""
    return mpmath.erfc(edge / mpmath.sqrt(2))


def ends(interval):
    """Both ends of an interval of Arb, as numbers of mpmath, with as many digits as it works with."""
    with ctx.workprec(mpmath.mp.prec):
        both = interval.lower(), interval.upper()
        return [mpmath.ldexp(*map(int, end.man_exp())) for end in both]


def words_at(number, count, sign=0):
    """The first words of a uniform number: 63 bits and the sign, then 64 bits each; rounded down."""
    bits = int(mpmath.floor(number * mpmath.mpf(2) ** (64 * count - 1)))
    behind = 64 * (count - 1)
    first = (bits >> behind) << 1 | sign
    return [first, *((bits >> 64 * (count - 2 - i)) % 2**64 for i in range(count - 1))]


def cell(*words, spacing=FINE, scale=1.0, then=HALF):
    (found,) = gaussian_cells([1.0], [Normals(Forced(*words, then=then), scale, 1)], spacing).tolist()
    return found


EDGES = [0, 1, 2, 1000, 2**20, 2**31, 2**32, 3 * 2**31 + 12345, 5 * 2**32 + 77, 8 * 2**32 - 1, 11 * 2**32]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("k", EDGES)
def test_every_number_falls_into_its_own_cell(k, count):
    """The edge between cells k and k + 1 is at 2Φ(−(k + ½)g), to the last bit of 127, 191 and 319."""
    with mpmath.workdps(150):
        below = words_at(tail((k + mpmath.mpf(0.5)) * FINE), count)
    assert cell(*below, then=0) == k + 1  # up to the edge, or less than a bit below it
    beyond = (
        int("".join(f"{word:064b}" for word in below)[:63] + "".join(f"{w:064b}" for w in below[1:]), 2) + 1
    )
    further = [
        beyond >> 64 * (count - 1) << 1,
        *(beyond >> 64 * (count - 2 - i) & (2**64 - 1) for i in range(count - 1)),
    ]
    assert cell(*further, then=0) == k
    assert cell(below[0] | 1, *below[1:], then=0) == -k - 1
    assert cell(further[0] | 1, *further[1:], then=0) == -k


@pytest.mark.parametrize("k", EDGES[1:])
def test_a_cell_has_its_probability(k):
    """The numbers at its edges have it between them: 2⁻³³ and less, to 150 bits. No draw could see this."""
    with mpmath.workdps(150):
        ends = [tail((k + half) * FINE) for half in (mpmath.mpf(-0.5), mpmath.mpf(0.5))]
        exact = (ends[0] - ends[1]) / 2
        assert exact < 2.0**-33
        words = [words_at(end, 3) for end in ends]
        first, last = (
            mpmath.mpf(((w[0] >> 1) << 128) + (w[1] << 64) + w[2]) / mpmath.mpf(2) ** 191 for w in words
        )
        assert abs((first - last) / 2 - exact) < mpmath.mpf(2) ** -190
    assert cell(*words[0], then=0) == k
    assert cell(*words[1], then=0) == k + 1


@settings(max_examples=150, derandomize=True)
@given(
    number=st.integers(0, 2**191 - 1) | st.integers(0, 190).map(lambda n: 2**n),
    sign=st.booleans(),
    scale=st.floats(0.5, 1.0, exclude_min=True),
    spacing=st.integers(-32, 0).map(lambda n: 2.0**n),
)
def test_any_bits_give_the_cell_that_mpmath_finds(number, sign, scale, spacing):
    words = [number >> 128 << 1 | sign, number >> 64 & (2**64 - 1), number & (2**64 - 1)]
    with mpmath.workdps(80):
        u = (mpmath.mpf(number) + mpmath.mpf(0.5)) / mpmath.mpf(2) ** 191
        found = abs(cell(*words, scale=scale, spacing=spacing))
        # |z| is within the cell: the tail at its upper edge is less than u, that at its lower edge more.
        assert tail((found + mpmath.mpf(0.5)) * spacing / scale) <= u
        assert found == 0 or tail((found - mpmath.mpf(0.5)) * spacing / scale) >= u


@pytest.mark.parametrize("deviations", [9, 12, 20, 40])
def test_tails_do_not_end(deviations):
    """Bits of zeros as far as Φ(−40): the noise is as large as it says, in the cell that it says."""
    with mpmath.workdps(600):
        k = deviations * 2**32 + 3
        number = tail(k * mpmath.mpf(FINE))
        words = words_at(number, 24)
    assert words[0] == 0 or deviations == 9
    assert cell(*words) == k


def test_bits_are_drawn_as_they_are_needed_and_kept():
    """One word as a rule, a second where few bits are left, more at an edge; a second look draws none."""
    source = Forced(HALF + 12345)
    variates = Normals(source, 1.0, 1)
    first = gaussian_cells([1.0], [variates], FINE)
    assert source.given == 1
    with mpmath.workdps(100):
        edge = Forced(*words_at(tail(mpmath.mpf(3.5) * FINE), 4), then=0)
    variates = Normals(edge, 1.0, 1)
    first = gaussian_cells([1.0], [variates], FINE)
    drawn = edge.given
    assert drawn > 3
    np.testing.assert_array_equal(gaussian_cells([1.0], [variates], FINE), first)
    assert edge.given == drawn
    few = Forced(2**40, 7)
    assert Uniforms(few, 1).values[0] == pytest.approx(2.0**-24, rel=1e-12)
    assert few.given == 2


# The bounds on float64, and that they are needed


def worst(errors):
    return max(float(e) for e in errors)


def numbers():
    rng = np.random.default_rng(0)
    change = np.exp(-2.0)
    return np.concatenate([
        rng.random(1500),
        1 - 2.0 ** -rng.uniform(1, 53, 300),
        2.0 ** -rng.uniform(1, 20, 700),
        2.0 ** -rng.uniform(20, 127, 700),
        2 * change * (1 + np.arange(-200, 200) * 2.0**-52),  # where ndtri changes its formula
        2 * np.exp(-32.0) * (1 + np.arange(-200, 200) * 2.0**-52),
        [2.0**-63, 2.0**-127, 1.0 - 2.0**-53],
    ])  # fmt: skip


def test_the_bound_on_the_quantile_holds_with_room_to_spare():
    """16 units of roundoff; found is a third of it."""
    with mpmath.workdps(40):

        def error(u):
            x = mpmath.mpf(-float(ndtri(u / 2)))
            exact = x
            for _ in range(3):
                exact += (tail(exact) - mpmath.mpf(u)) * mpmath.exp(exact**2 / 2) * mpmath.sqrt(mpmath.pi / 2)
            return abs(x - exact) / (exact * noise._RELATIVE / 2)

        found = worst(error(float(u)) for u in numbers())
    assert 0.05 < found < 0.5


def test_the_bound_on_the_logarithm_holds_with_room_to_spare():
    u = numbers()
    with mpmath.workdps(40):
        found = worst(
            abs(mpmath.mpf(float(y)) / mpmath.log(mpmath.mpf(float(x))) - 1) / noise._LOGARITHM
            for x, y in zip(u, np.log(u), strict=True)
        )
    assert found < 0.5


@pytest.mark.parametrize("first", [3, 2**20, 2**53 - 1, 2**53, 2**53 + 1, 2**54 + 1, 2**62 + 513, 2**63 - 1])
def test_the_stated_error_of_a_variate_covers_all_that_its_bits_may_be(first):
    for second in (0, 2**64 - 1, 2**63 + 999):
        variates = Normals(Forced(first << 1, second), 1.0, 1)
        with ctx.workprec(256), mpmath.workprec(256):
            low, high = ends(variates.interval(0, 2))
            value = mpmath.mpf(float(variates.values[0]))
            error = mpmath.mpf(float(variates.errors(slice(None))[0]))
            assert error <= variates.largest_error
            assert value - error <= low <= high <= value + error


@pytest.mark.parametrize(
    "first", [0, 1, 12345, 2**40 + 1, 2**61 + 7, 2**62, 2**62 + 1, 2**63 - 12345, 2**63 - 1]
)
@pytest.mark.parametrize("words", [1, 2, 5])
def test_the_interval_of_a_variate_is_that_of_its_bits_and_little_more(first, words):
    """mpmath's tail at its ends against the bits: what Arb encloses is checked by another library."""
    more = [first * 3**k % 2**64 for k in range(1, words)]
    variates = Normals(Forced(first << 1 | 1, *more), 1.0, 1)
    with ctx.workprec(64 * words + noise._MORE), mpmath.workdps(400):
        interval = variates.interval(0, words)
        m, n = variates._uniform.bits(0, words)
        if m == 0:
            assert not interval.is_finite()
            return
        assert n >= 64 * words - 1
        low, high = ends(interval)  # of a negative variate
        # 2Φ falls: low, which is furthest from 0, has the number's lower end, or less.
        assert tail(-low) <= mpmath.ldexp(m, -n)
        assert tail(-high) >= mpmath.ldexp(m + 1, -n) or high >= 0
        width = mpmath.ldexp(1, -n) * mpmath.exp(low**2 / 2) * mpmath.sqrt(mpmath.pi / 2)
        assert high - low < 16 * width + mpmath.ldexp(1, -64 * words)


@pytest.mark.parametrize("digits", [2, 30, 60, 90, 120])
def test_too_few_digits_ask_for_more_bits_and_change_no_cell(monkeypatch, digits):
    """They are one setting for all threads: whatever another one sets, cells are those of the bits."""
    edges = [1, 2**20, 2**31, 3 * 2**31 + 12345, 5 * 2**32 + 77]
    with mpmath.workdps(150):
        chosen = [words_at(tail((k + mpmath.mpf(0.5)) * FINE), 3) for k in edges]
    expected = [cell(*words, then=0) for words in chosen]
    workprec = ctx.workprec
    monkeypatch.setattr(noise, "ctx", _Interrupted(lambda asked: workprec(min(asked, digits * asked // 128))))
    assert [cell(*words, then=0) for words in chosen] == expected == [k + 1 for k in edges]


class _Interrupted:
    """Stands in for Arb's context, whose digits another thread has set."""

    def __init__(self, workprec):
        self.workprec = workprec


@pytest.mark.parametrize("size", [1, 2, 3, 10, 55, 1000])
def test_the_stated_error_of_a_radius_covers_it(size):
    rng = np.random.default_rng(size)
    for _ in range(20):
        radius = Radius(lambda n: rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True), size)
        with ctx.workprec(256), mpmath.workprec(256):
            low, high = ends(radius.interval(2))
            assert radius.value - radius.error <= low <= high <= radius.value + radius.error
            assert high - low < 1e-30 * high
    assert radius.error < 1e-13 * radius.value


@pytest.mark.parametrize("size", [1, 2, 3, 8, 55, 1000])
def test_bits_without_end_of_ones_are_no_trouble(size):
    """Numbers next to 1, whose logarithms add up to the least radius: between 0 and a known length."""
    source = Forced(then=2**64 - 1)
    radius = Radius(source, size)
    for words in (1, 2, 3, 5):
        with ctx.workprec(64 * words + 96), mpmath.workprec(500):
            near, far = ends(radius.interval(words))
            # Each logarithm is 2⁻ⁿ but for its square; of an even size, the last one's cosine is none.
            known = mpmath.sqrt((size + 1) // 2 * mpmath.mpf(2) ** (2 - 64 * words))
            assert near <= 0
            assert abs(far / known - 1) < 1e-6
    assert not laplace_cells(Normals(Forced(), 1.0, size), radius, FINE).any()


# Faults that these tests would see


def test_a_bracket_that_is_too_narrow_puts_numbers_into_wrong_cells(monkeypatch):
    """Next to forty edges, and next to none of them with the bracket as it is."""
    edges = np.random.default_rng(0).integers(2**30, 2**34, 40).tolist()

    def wrong():
        with mpmath.workdps(150):
            for k in edges:
                edge = tail((k + mpmath.mpf(0.5)) * FINE)
                for j in range(-40, 40):
                    words = words_at(edge * (1 + j * mpmath.mpf(2) ** -54), 3)
                    yield cell(*words, then=0) != k + (j <= 0)

    assert not any(wrong())
    for name in ("_RELATIVE", "_ABSOLUTE"):
        monkeypatch.setattr(noise, name, 0.0)
    assert any(wrong())


def test_a_tie_that_is_always_taken_upwards_is_seen(monkeypatch):
    settled = noise._refine_until_rounded
    monkeypatch.setattr(
        noise,
        "_refine_until_rounded",
        lambda interval: int(interval(1).upper().ceil().unique_fmpz()) or settled,
    )
    with mpmath.workdps(150):
        below = words_at(tail(mpmath.mpf(2**31 + 0.5) * FINE), 3)
    assert cell(below[0], below[1], below[2] + 1, then=0) != 2**31


def test_bits_that_are_used_again_are_seen(monkeypatch):
    bits = Uniforms.bits

    def again(self, place, words):
        first = int(self._first[place])
        m, n = bits(self, place, 1)
        for _ in range(words - 1):
            m, n = (m << 64) + (first << 1), n + 64
        return m, n

    monkeypatch.setattr(Uniforms, "bits", again)
    with mpmath.workdps(150):
        words = words_at(tail(mpmath.mpf(2**31 + 0.5) * FINE), 3)
        beyond = words_at(tail(mpmath.mpf(2**31 + 0.5) * FINE) + mpmath.mpf(2) ** -66, 3)
    assert words[0] == beyond[0]
    assert cell(*words, then=0) == cell(*beyond, then=0)


# Weighted sums, and noise for δ = 0


@pytest.mark.parametrize("weights", [[1.0, 0.5], [1.0, 0.5, 0.375], [1.0] * 5])
def test_a_weighted_sum_is_rounded_as_a_whole(weights):
    """Its last variate is chosen so that the sum lies a 2⁻¹⁰⁰th of a cell from an edge, on either side."""
    rng = np.random.default_rng(len(weights))
    *others, last = weights
    drawn = [rng.integers(0, 2**64 - 1, 4, dtype=np.uint64).tolist() for _ in others]
    with ctx.workprec(400), mpmath.workprec(400):
        kept = [Normals(Forced(*words), 1.0, 1) for words in drawn]
        rest = mpmath.fsum(weight * ends(z.interval(0, 4))[0] for weight, z in zip(others, kept, strict=True))
        edge = mpmath.floor(rest / FINE) + 2**31 + mpmath.mpf(0.5)
        for side in (-1, 1):
            wanted = (edge + side * mpmath.mpf(2) ** -100) * FINE - rest
            chosen = words_at(tail(wanted / last), 4)
            variates = [*kept, Normals(Forced(*chosen), 1.0, 1)]
            (found,) = gaussian_cells(weights, variates, FINE).tolist()
            assert found == int(mpmath.floor(edge)) + (side > 0)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_pure_noise_is_rounded_by_all_its_bits(size):
    """One normal variate is chosen so that the product is a 2⁻⁶⁰th of a cell from an edge, on either side."""
    rng = np.random.default_rng(size)
    words = rng.integers(0, 2**64 - 1, 2 * size + 8, dtype=np.uint64)
    with ctx.workprec(400), mpmath.workprec(400):
        radius = Radius(Forced(*words), size)
        near, far = ends(radius.interval(4))
        assert far - near < mpmath.mpf(2) ** -180
        edge = mpmath.mpf(2**32 + 0.5)
        for side in (-1, 1):
            number = tail((edge + side * mpmath.mpf(2) ** -60) * FINE / near)
            normals = Normals(Forced(*words_at(number, 4)), 1.0, 1)
            (found,) = laplace_cells(normals, radius, FINE).tolist()
            assert found == 2**32 + (side > 0)


def test_on_a_line_pure_noise_is_laplaces_own():
    """√(−2·log u)·|N| is the length: exponential. By quadrature over u, at ten lengths."""
    with mpmath.workdps(20):
        for length in (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 40):
            beyond = mpmath.quad(
                lambda e, length=length: mpmath.exp(-e) * tail(length / mpmath.sqrt(2 * e)),
                [0, length / 4, length / 2, length, 2 * length + 5, 4 * length + 60],
            )
            assert beyond == pytest.approx(float(mpmath.exp(-length)), rel=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_the_radius_has_its_law(size):
    """χ² with size + 1 degrees of freedom, by Kolmogorov and Smirnov; a false alarm in 10⁹, fixed seeds."""
    rng = np.random.default_rng(size)

    def words(n):
        return rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True)

    squares = [Radius(words, size).value ** 2 for _ in range(4000)]
    assert stats.kstest(squares, stats.chi2(size + 1).cdf).pvalue > 1e-9
    assert stats.kstest(squares, stats.chi2(size).cdf).pvalue < 1e-9


@pytest.mark.parametrize("size", [1, 2, 5])
def test_bits_without_end_of_zeros_are_no_trouble(size):
    """Numbers below 2⁻⁶³: float64 knows nothing of them, and more bits do."""
    for lost in range(size + 3):
        words = [HALF + 1] * (size + 3)
        words[lost] = 0
        source = Forced(*words[:size], *([0] if lost < size else []), *words[size:], then=HALF)
        normals, radius = Normals(source, 1.0, size), Radius(source, size)
        cells = laplace_cells(normals, radius, FINE)
        assert cells.dtype == np.int64
        assert np.abs(cells).max() > 0


def test_what_leaves_an_integer_is_taken_modulo_2_to_the_64():
    number = words_at(tail(mpmath.mpf(3)), 3)
    with mpmath.workdps(60):
        u = mpmath.mpf(((number[0] >> 1) << 128) + (number[1] << 64) + number[2]) / mpmath.mpf(2) ** 191
        exact = mpmath.sqrt(2) * mpmath.erfinv(1 - u) * mpmath.mpf(2) ** 62
        whole = int(mpmath.floor(exact + mpmath.mpf(0.5)))
    found = cell(*number, spacing=2.0**-62)
    assert (found - whole) % 2**64 in (0, 1, 2**64 - 1)
    assert whole > 2**63 > abs(found)


def test_pure_noise_in_too_many_dimensions_is_refused_before_the_charge():
    noisy_sum("laplace", n=10, size=MOST_LAPLACE, clip=1.0, loss=1.0)
    with pytest.raises(ValueError, match="at most 100000 numbers"):
        noisy_sum("laplace", n=10, size=MOST_LAPLACE + 1, clip=1.0, loss=1.0)
    with pytest.raises(ValueError, match="at most 100000 numbers"):
        SubsampledSum("gradient", 10, 10**7, 1.0, 1.0, 1e-9, "poisson", 0.5, 1, "laplace")
    assert NoisySum("gaussian", 10, 10**7, 1.0, 2.0, 1.0, 1e-9).size == 10**7


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


def test_tails_of_batch_sizes_do_not_end():
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


pytestmark = pytest.mark.system_noise

ALARM = 1e-9
DRAWS = 20_000


def drawn(source, law, scale, size):
    """Noise on a fine grid, in units of its scale."""
    return source.draw(law, scale, size, scale * FINE) * FINE


@pytest.fixture
def keyed(monkeypatch):
    """The operating system's key is fixed, the generator is the real one."""
    monkeypatch.setattr(noise.secrets, "randbits", lambda bits: 2**bits // 3)


@pytest.mark.parametrize("size", [1, 3, 66])
def test_gaussian_noise_is_gaussian(keyed, size):
    source = SystemNoise(DRAWS)
    z = np.concatenate([drawn(source, "gaussian", 2.5, size) for _ in range(DRAWS // size)])
    assert stats.kstest(z, "norm").pvalue > ALARM
    assert stats.anderson(z, "norm", method="interpolate").statistic < 5.0
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(z))
    assert low < np.sum(z**2) < high
    pairs = z[: len(z) // 2 * 2].reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 6.2 / np.sqrt(len(pairs))


def test_gaussian_tails_are_there(keyed):
    """Two million draws: 5.4e-5·N of them beyond 4σ (a Poisson count), none beyond 8σ (but for 2e-9)."""
    z = np.abs(drawn(SystemNoise(2_000_000), "gaussian", 1.0, 2_000_000))
    expected = 2_000_000 * 2 * stats.norm.sf(4)
    assert stats.poisson.ppf(ALARM / 2, expected) <= np.sum(z > 4) <= stats.poisson.isf(ALARM / 2, expected)
    assert z.max() < 8


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [1, 2, 5, 66])
def test_laplace_noise_has_a_gamma_length_and_a_uniform_direction(keyed, size):
    source = SystemNoise(1000)
    z = np.stack([drawn(source, "laplace", 0.4, size) for _ in range(DRAWS // 2)])
    length = np.linalg.norm(z, axis=1)
    assert stats.kstest(length, stats.gamma(size).cdf).pvalue > ALARM
    direction = z / length[:, None]
    axis = np.linspace(1, 2, size)
    along = direction @ (axis / np.linalg.norm(axis))
    if size == 1:
        assert abs(np.sum(along)) < 6.2 * np.sqrt(len(along))
    else:
        half = (size - 1) / 2
        assert stats.kstest((along + 1) / 2, stats.beta(half, half).cdf).pvalue > ALARM
        assert stats.spearmanr(np.abs(along), length).pvalue > ALARM
    variance = NoisySum("laplace", 1, size, 1.0, 2.0, 1.0, 0.0).variance
    assert np.mean(z**2) == pytest.approx(variance, rel=0.2)


def test_two_sources_share_nothing():
    a, b = (SystemNoise(100).draw("gaussian", 1.0, 100, FINE) for _ in range(2))
    assert not np.intersect1d(a, b).size


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_source_cannot_be_copied(copied):
    with pytest.raises(TypeError, match="cannot be copied"):
        copied(SystemNoise(100))


def test_a_process_that_was_copied_draws_no_noise_of_the_one_that_it_was_copied_from():
    """Nothing that a source may be asked for is answered there, what was drawn ahead included."""
    program = """
import os
from privest.privacy.noise import SystemNoise
source = SystemNoise(100)
asked = [
    lambda: source.draw("gaussian", 1.0, 2, 2.0**-32),
    lambda: source.draw("laplace", 1.0, 2, 2.0**-32),
    lambda: source.normals(1.0, 2),
    lambda: source.batch(1000, 0.01, "poisson"),
    lambda: source.indices(1000, 2),
    lambda: source.permutation(10),
]
for ask in asked:
    ask()
if not os.fork():
    for ask in asked:
        try:
            ask()
        except AttributeError:
            continue
        os._exit(1)
    SystemNoise(1).draw("gaussian", 1.0, 1, 2.0**-32)
    os._exit(0)
for ask in asked:
    ask()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize("expected", [0, 1, 7, 50, 10_000])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_no_variate_is_used_twice(keyed, expected, size):
    source = SystemNoise(expected)
    z = np.concatenate([source.draw("gaussian", 1.0, size, FINE) for _ in range(200)])
    # Two of 12,800 variates share one of some 2³³ cells with a probability of 2 %, which the key decides.
    assert len(np.unique(z)) == len(z) == 200 * size


@pytest.mark.parametrize("laws", [2, 40])
def test_laws_that_take_turns_share_no_variate(keyed, laws):
    source, z = SystemNoise(10_000), []
    for turn in range(200):
        scale = 1.0 + (turn % laws)
        z.append(source.draw("gaussian", scale, 3, scale * FINE))  # the same cell for the same variate
        assert len(source._ready) <= noise._LAWS
    assert len(np.unique(z)) == 600


def test_draws_do_not_change_later(keyed):
    source = SystemNoise(30)
    first = source.draw("gaussian", 1.0, 3, FINE)
    kept = first.copy()
    for _ in range(50):
        source.draw("laplace", 1.0, 3, FINE)
    np.testing.assert_array_equal(first, kept)


class Counting:
    """Stands in for numpy's generator; keeps what was asked of it."""

    def __init__(self):
        self.asked = []

    def integers(self, low, high, size, **how):  # noqa: ARG002 - numpy's
        self.asked.append(size)
        return np.full(size, 2**62 + 12345, dtype=how["dtype"])


def test_blocks_are_bounded(monkeypatch):
    counting = Counting()
    monkeypatch.setattr(noise, "_generator", lambda: counting)
    source = SystemNoise(10**12)
    for _ in range(3):
        source.draw("gaussian", 1.0, 1000, FINE)
    assert [size for size in counting.asked if size] == [noise._BLOCK]
    few = SystemNoise(6)
    for _ in range(3):
        few.draw("gaussian", 1.0, 2, FINE)
    assert [size for size in counting.asked if size][1:] == [6]
    counting.asked.clear()
    assert len(source.draw("gaussian", 1.0, 2 * noise._BLOCK + 5, FINE)) == 2 * noise._BLOCK + 5
    assert max(counting.asked) == noise._BLOCK


def test_the_generator_is_keyed_by_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(noise.secrets, "randbits", lambda bits: asked.append(bits) or len(asked))
    a, b = SystemNoise(1), SystemNoise(1)
    assert all(bits >= 128 for bits in asked)
    assert len(asked) >= 2
    assert a.draw("gaussian", 1.0, 1, FINE) != b.draw("gaussian", 1.0, 1, FINE)


@pytest.mark.parametrize("cipher", ["AESCounter", "ChaCha"])
def test_all_bits_of_the_key_matter(cipher):
    width = 128 if cipher == "AESCounter" else 256
    make = getattr(noise, cipher)
    words = {int(make(key=key).random_raw()) for key in (1, 1 + 2 ** (width - 1), 1 + 2 ** (width // 2), 2)}
    assert len(words) == 4


SCHEMES = [(500, 0.02), (500, 0.07), (500, 0.6), (20, 1.0), (100_000, 0.0005)]
"""Pairs of n and rate. Sparse batches are drawn until no record repeats, dense ones without repeats."""


@pytest.mark.parametrize(("n", "rate"), SCHEMES)
def test_poisson_batches_have_binomial_sizes(keyed, n, rate):
    source = SystemNoise(0)
    sizes = np.array([len(source.batch(n, rate, "poisson")) for _ in range(4000)])
    if rate == 1.0:
        assert (sizes == n).all()
        return
    law = stats.binom(n, rate)
    cuts = np.unique(law.ppf(np.linspace(0, 1, 15)[1:-1]))
    expected = np.diff(np.concatenate([[0.0], law.cdf(cuts), [1.0]])) * len(sizes)
    observed = np.bincount(np.searchsorted(cuts, sizes), minlength=len(expected))
    assert stats.chisquare(observed, expected).pvalue > ALARM


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize(("n", "rate"), SCHEMES)
def test_batches_hold_no_record_twice_and_none_that_is_not_there(keyed, scheme, n, rate):
    source = SystemNoise(0)
    for _ in range(500):
        drawn = source.batch(n, rate, scheme)
        assert len(np.unique(drawn)) == len(drawn)
        assert drawn.dtype == np.int64
        assert not len(drawn) or 0 <= drawn.min() <= drawn.max() < n
        assert scheme == "poisson" or len(drawn) == round(rate * n)


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize(("n", "rate"), SCHEMES[:3])
def test_all_records_come_equally_often(keyed, scheme, n, rate):
    """Σ(count − expected)²/variance is χ² with n degrees of freedom, or n − 1 where sizes are fixed."""
    source, rounds = SystemNoise(0), 4000
    counts = np.bincount(np.concatenate([source.batch(n, rate, scheme) for _ in range(rounds)]), minlength=n)
    spread = np.sum((counts - rounds * rate) ** 2) / (rounds * rate * (1 - rate))
    law = stats.chi2(n) if scheme == "poisson" else stats.chi2(n - 1, scale=n / (n - 1))
    assert law.ppf(ALARM / 2) < spread < law.isf(ALARM / 2)


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize("batch", [2, 3])
def test_all_sets_of_records_are_equally_likely(keyed, scheme, batch):
    """Batches of two and of three records out of five, by both sampling schemes."""
    source = SystemNoise(0)
    drawn = [frozenset(source.batch(5, batch / 5, scheme).tolist()) for _ in range(20_000)]
    sets = [frozenset(s) for s in itertools.combinations(range(5), batch)]
    observed = [drawn.count(s) for s in sets]
    assert stats.chisquare(observed).pvalue > ALARM
    assert scheme == "poisson" or sum(observed) == len(drawn)


def test_batches_do_not_repeat_and_do_not_depend_on_one_another(keyed):
    source = SystemNoise(0)
    member = np.array([3 in source.batch(40, 0.3, "poisson") for _ in range(20_000)])
    assert abs(np.corrcoef(member[1:], member[:-1])[0, 1]) < 6.2 / np.sqrt(len(member))
    numbers = np.concatenate([source.indices(2**62, 100) for _ in range(200)])
    assert len(np.unique(numbers)) == len(numbers)


def test_indices_are_uniform_whatever_was_asked_before(keyed):
    source = SystemNoise(0)
    found = np.concatenate(
        [
            part
            for _ in range(3000)
            for part in (source.indices(9, 2), source.indices(7, 3)[:0], source.indices(9, 5))
        ]
    )
    assert stats.chisquare(np.bincount(found, minlength=9)).pvalue > ALARM
