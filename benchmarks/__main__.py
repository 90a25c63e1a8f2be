"""Run benchmarks: all, or those that are named. Results go to benchmarks/results and to pages in docs/."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from benchmarks import report

NAMES = (
    "ordinary",
    "ordinary_points",
    "ordinary_classifiers",
    "ordinary_scores",
    "ordinary_subspaces",
    "frechet_mean",
    "planning",
    "plan_pace",
    "json_documents",
    "service_pace",
    "limits",
    "long_plans",
    "ledger_load",
    "dashboard",
    "scaling",
    "large_fits",
    "tangent_sampling",
    "private_steps",
    "noise",
    "slack",
    "exact_mean",
    "figure2",
    "figure3",
    "figure3b",
    "schedules",
    "robust_pca",
    "figures_robust_pca",
    "robust_pca_options",
    "popres",
    "logistic_regression",
    "column_means",
    "bounds",
    "accuracy_targets",
    "ranges",
    "column_scales",
    "without_bounds",
    "coverage",
    "coverage_classifiers",
    "coverage_subspaces",
    "coverage_means",
    "figures_heavy_ball",
    "figures_acceleration",
    "descents",
    "federated",
    "federated_figures",
    "federated_private",
    "robust_labels",
    "spider_sizes",
    "saddles",
    "choosing",
    "several_fits",
    "sites",
    "one_question",
)
"""The benchmarks, in the order in which all of them are run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure timings and accuracy. Without names all benchmarks are run, which takes hours.",
        epilog=f"The benchmarks are: {', '.join(NAMES)}.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help="run this one; several are run in turn")
    parser.add_argument(
        "--pages", action="store_true", help="only write the pages anew, from benchmarks/results"
    )
    given = parser.parse_args(arguments)
    chosen = given.names
    if unknown := sorted(set(chosen) - set(NAMES)):
        parser.error(f"there is no benchmark {', '.join(unknown)}; they are: {', '.join(NAMES)}")
    if given.pages:
        report.write_pages()
        return 0
    for name in chosen or NAMES:
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
