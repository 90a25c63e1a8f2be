"""The generator itself: right laws, never the same twice, never more memory than it may.

False-alarm rate 1e-9 for each statistical test, on a fixed key.
"""

import copy
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from privest.privacy import noise
from privest.privacy.mechanisms import NoisySum
from privest.privacy.noise import SystemNoise

pytestmark = pytest.mark.system_noise

ALARM = 1e-9
DRAWS = 20_000
FINE = 2.0**-32


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
