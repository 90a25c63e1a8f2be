"""All benchmarks, one after another; those of figures write to docs/reproductions.md."""

from benchmarks import (
    coverage,
    dashboard,
    exact_mean,
    federated,
    figure2,
    figure3,
    figures_acceleration,
    figures_robust_pca,
    frechet_mean,
    ledger_load,
    logistic_regression,
    planning,
    popres,
    private_steps,
    robust_pca,
    saddles,
    scaling,
    tangent_sampling,
)

for benchmark in (
    frechet_mean,
    planning,
    ledger_load,
    dashboard,
    scaling,
    tangent_sampling,
    private_steps,
    exact_mean,
    figure2,
    figure3,
    robust_pca,
    figures_robust_pca,
    popres,
    logistic_regression,
    coverage,
    figures_acceleration,
    federated,
    saddles,
):
    benchmark.main()
