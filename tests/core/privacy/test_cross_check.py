"""autodp's accounting of whole runs: against the closed form, the certificate from both sides, and pure ε."""

from math import sqrt

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution

from privest.privacy.accounting import epsilon_for, mu_for
from privest.privacy.cross_check import second_opinion
from privest.privacy.mechanisms import SubsampledRun, noisy_sum, subsampled_sum
from privest.privacy.subsampling import certify, noise_for

N, SIZE, CLIP = 10_000, 6, 0.7


def full(mu, count=1, n=N):
    return noisy_sum("gaussian", n=n, size=SIZE, clip=CLIP, loss=mu, count=count)


def batches(scheme, rate, steps, noise):
    facts = {"statistic": "gradient", "n": N, "size": SIZE, "clip": CLIP}
    return subsampled_sum(SubsampledRun(scheme, rate, noise, steps), **facts)


def gaussian_by_renyi(mu, delta):
    """min over α of αμ²/2 + log((α−1)/α) − (log δ + log α)/(α − 1) (Balle et al. 2020, Theorem 21)."""
    order = 1 + np.geomspace(1e-5, 1e7, 400_001)
    found = order * mu**2 / 2 + np.log1p(-1 / order) - (np.log(delta) + np.log(order)) / (order - 1)
    return max(0.0, float(found.min()))


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
@pytest.mark.parametrize("mu", [0.001, 0.03, 1.0, 7.0, 100.0])
def test_gaussian_sums_have_the_epsilon_of_the_closed_form(mu, delta):
    """A run is divided in any way: into one sum, equal sums counted, and unequal sums."""
    by_hand = gaussian_by_renyi(mu, delta)
    parts = tuple(full(mu * sqrt(share)) for share in (0.1, 0.2, 0.7))
    for run in [(full(mu / 3, count=9),), parts]:
        told = second_opinion(run, delta)
        assert told.delta == delta
        assert told.epsilon == pytest.approx(by_hand, rel=1e-6)
        assert epsilon_for(mu, delta) * (1 - 1e-9) <= told.epsilon
    assert second_opinion((full(mu),), delta).epsilon >= epsilon_for(mu, delta) * (1 - 1e-6)


RUNS = [(0.01, 1000, 1.0, 1e-5), (0.3, 50, 1.0, 1e-5), (1 / N, 300_000, 0.5, 1e-6), (0.02, 20, 4.0, 1e-4)]


@pytest.mark.few(2)
@pytest.mark.sparse
@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
@pytest.mark.parametrize(("rate", "steps", "epsilon", "delta"), RUNS)
def test_random_batches_are_between_the_certificate_and_noise_that_is_too_little(
    scheme, rate, steps, epsilon, delta
):
    """Never far below what is charged; and noise that is certified for thrice the ε is told from it."""
    slack = delta / 200

    def told(asked):
        mu = mu_for(asked, delta - slack)
        noise = noise_for(scheme, rate, steps, ((mu, slack),)).noise
        return second_opinion((batches(scheme, rate, steps, noise),), delta).epsilon

    # A certificate may be above the exact ε by a tenth or two, and moments are never below that.
    assert told(epsilon) >= 0.8 * epsilon
    assert told(3 * epsilon) > 2 * told(epsilon)
    if scheme == "poisson" and rate * N >= 100 and epsilon <= 1:
        assert told(epsilon) <= 1.25 * epsilon


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 4.0, 1000), (0.001, 1.5, 5000), (0.2, 20.0, 300)]
)
def test_poisson_batches_are_never_below_the_exact_loss(rate, noise, steps):
    """dp-accounting's optimistic loss for a record removed or added is below that for a replaced one."""
    delta = 1e-6
    exact = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=1e-4,
        pessimistic_estimate=False,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    ).self_compose(steps)
    assert second_opinion((batches("poisson", rate, steps, noise),), delta).epsilon > (
        exact.get_epsilon_for_delta(delta)
    )


def test_full_sums_and_batches_add_up():
    part, rest = full(0.3, count=5), batches("poisson", 0.02, 500, 6.0)
    one, other = (second_opinion((r,), 1e-6).epsilon for r in (part, rest))
    both = second_opinion((part, rest), 1e-6).epsilon
    assert max(one, other) < both < one + other
    cost = certify((noise_for("poisson", 0.02, 500, ((0.5, 5e-9),)),), 5e-9)
    run = (full(0.5), batches("poisson", 0.02, 500, noise_for("poisson", 0.02, 500, ((0.5, 5e-9),)).noise))
    ours = epsilon_for(sqrt(0.25 + cost.mu_squared), 1e-6 - 5e-9)
    assert 0.9 * ours <= second_opinion(run, 1e-6).epsilon <= 1.25 * ours


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
def test_batches_of_all_records_are_full_sums(scheme):
    run = batches(scheme, 1.0, 10, 20.0)
    by_hand = gaussian_by_renyi(sqrt(10) * 2 * run.sensitivity / run.scale, 1e-6)
    assert second_opinion((run,), 1e-6).epsilon == pytest.approx(by_hand, rel=1e-6)


def test_pure_epsilon_adds():
    laplace = noisy_sum("laplace", n=N, size=SIZE, clip=CLIP, loss=0.25, count=3)
    told = second_opinion((laplace, laplace), 0.0)
    assert told.epsilon == pytest.approx(1.5, rel=1e-9)
    assert told.accountant.startswith("autodp ")
    assert told.accountant.endswith("pure")
    assert second_opinion((laplace, full(0.1)), 0.0).epsilon is None


def test_laplace_noise_counts_as_no_more_than_its_bound():
    """Rényi bounds of pure privacy (Bun and Steinke 2016): below the sum of ε where a δ is left for it."""
    laplace = noisy_sum("laplace", n=N, size=SIZE, clip=CLIP, loss=0.01, count=400)
    told = second_opinion((laplace,), 1e-6).epsilon
    assert gaussian_by_renyi(sqrt(400) * 0.01, 1e-6) >= told * (1 - 1e-6)
    assert 0.5 < told < 4.0


@pytest.mark.parametrize("share", [0.3, 1 / sqrt(2), 0.95])
def test_records_closer_to_each_other_than_twice_the_clip(share):
    """Replaced, a record moves such a sum by its diameter; there or not, by the clip and never by less."""

    def close(mu):
        return noisy_sum("gaussian", n=N, size=SIZE, clip=CLIP, loss=mu, diameter=2 * share * CLIP)

    alone = close(0.5)
    assert alone.scale == pytest.approx(share * full(0.5).scale, rel=1e-6)
    told = second_opinion((alone,), 1e-6)
    assert told.epsilon == pytest.approx(gaussian_by_renyi(0.5, 1e-6), rel=1e-6)
    # Beside batches of which autodp knows a record that is there or not, with the noise of two clips or more.
    rest = batches("poisson", 0.001, 500, 2.0)
    both = second_opinion((close(0.01), rest), 1e-6).epsilon
    widened = noisy_sum("gaussian", n=N, size=SIZE, clip=CLIP, loss=0.01 / share)
    assert second_opinion((rest,), 1e-6).epsilon < both
    assert both <= second_opinion((widened, rest), 1e-6).epsilon * (1 + 1e-6)


def test_a_record_removed_or_added_counts_as_the_clip_where_that_is_more(monkeypatch):
    """Half the diameter would be less: an opinion that could be below the truth."""
    seen = []
    zoo = __import__("autodp.mechanism_zoo").mechanism_zoo
    honest = zoo.ExactGaussianMechanism
    monkeypatch.setattr(zoo, "ExactGaussianMechanism", lambda ratio: (seen.append(ratio), honest(ratio))[1])
    release = noisy_sum("gaussian", n=N, size=SIZE, clip=CLIP, loss=0.01, diameter=CLIP)
    second_opinion((release, batches("poisson", 0.001, 500, 2.0)), 1e-6)
    ratios = {round(release.scale / (ratio * CLIP), 6) for ratio in seen}
    assert 1.0 in ratios
    assert min(ratios) >= 1.0
