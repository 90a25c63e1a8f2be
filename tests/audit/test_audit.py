"""Lines of the audit in their quick form, the long ones in `make prove`, and the bounds they rest on.

False alarms: all bounds together are wrong once in a thousand reports at most, by their correction.
"""

import ast
import importlib
import pkgutil
import re
import runpy
import sys
from itertools import chain

import numpy as np
import pytest
from scipy.stats import binom
from typing_extensions import is_protocol

import privest_papers
from audit import mutants, report, samplers, served
from audit.bounds import ATTACKS, epsilon_proven, mu_proven, rates
from audit.canaries import chance
from audit.canaries import epsilon_proven as epsilon_by_coins
from privest import estimators
from privest.privacy.accounting import epsilon_for
from testing import ROOT
from testing.leading_eigenvector import LeadingEigenvector
from testing.neighbours import CASES

LINES = report.lines()
COSTLY = {
    "access",
    "bounds",
    "bounds-distances",
    "clipped",
    "completion",
    "diameter-distance-shares",
    "diameter-hessians",
    "diameter-logistic-gradient",
    "diameter-second-look",
    "diameter-squared-distance-change",
    "diameter-subspace-distance",
    "diameter-viewed",
    "equal-rows",
    "escape",
    "files",
    "fixed-batches",
    "hub-sums",
    "law-laplace-direction",
    "logistic-over-http",
    "newton",
    "next-questions",
    "others-movements",
    "outcomes",
    "refusals",
    "requests",
    "robust-pca-default",
    "score-laplace",
    "site-sums",
    "square-root-stream",
    "transcripts",
}
"""Attacks of over two seconds, but those by which faults are seen: `make test` has others of each kind."""

FAULTS = {line.name for line in mutants.SECTION.lines}
"""Planted faults: what sees one is a test of `make test`, and `make test-rest` plants it to show that."""

KEYED = {line.name for section in (samplers.SECTION, mutants.SECTION) for line in section.lines}


def _marks(name):
    keyed, costly = [pytest.mark.system_noise], [pytest.mark.costly]
    is_costly = name in COSTLY or name in FAULTS
    return (keyed if name in KEYED else []) + (costly if is_costly else [])


def each(*, quick):
    """Lines by name; laws of the generator are tried on itself, and tests in tests have their own noise."""
    return pytest.mark.parametrize(
        "name",
        [pytest.param(name, marks=_marks(name)) for name, line in LINES.items() if line.quick or not quick],
    )


@pytest.fixture(scope="module", autouse=True)
def _servers_end():
    yield
    served.stop()


@each(quick=True)
def test_the_claim_holds_and_the_attack_has_power(name):
    finding = LINES[name].in_short
    assert finding.holds, finding


@pytest.mark.prove
@each(quick=False)
def test_they_do_with_many_runs(name):
    finding = LINES[name].run(True)
    assert finding.holds, finding


def test_the_report_is_whole_and_every_line_holds():
    written = report.PAGE.read_text()
    rows = report._rows(written)
    unlike = ", ".join(sorted(rows.keys() ^ LINES.keys()))
    assert not unlike, f"rows of docs/audit.md, or lines, without the other: {unlike}; see `audit.report`"
    assert [name for name, row in rows.items() if not row.endswith("| ✓ |")] == []
    assert report.page(rows) == written


def test_every_line_has_a_name_of_its_own_and_its_share_of_the_confidence():
    assert len(LINES) == sum(len(section.lines) for section in report.SECTIONS) <= ATTACKS
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in LINES)


def test_every_statistic_has_a_line():
    """Whatever can be summed by a gate, wherever in `estimators` or `privest_papers` it is."""
    found: set[type] = {LeadingEigenvector}
    packages = (
        pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (estimators, privest_papers)
    )
    for module in chain.from_iterable(packages):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and hasattr(kind, "clipped_sum") and not is_protocol(kind):
                found.add(kind)
    missing = found - {type(case.statistic) for case in CASES}
    assert not missing, f"testing/neighbours.py has no case of {', '.join(each.__name__ for each in missing)}"


@pytest.mark.parametrize("p", [0.0, 0.003, 0.5, 0.97, 1.0])
def test_rates_are_outside_their_bounds_as_seldom_as_stated(p):
    runs, alpha = 60, 0.01
    below, above = np.array([rates(hits, runs, alpha) for hits in range(runs + 1)]).T
    weights = binom.pmf(np.arange(runs + 1), runs, p)
    assert weights[below > p].sum() <= alpha
    assert weights[above < p].sum() <= alpha


def test_what_is_proven_is_below_the_truth_and_near_it():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2, 100_000))
    assert 0.95 < mu_proven((noise[0] - 0.5, noise[1] + 0.5), 0.0) < 1.0
    laplace = rng.laplace(size=(2, 100_000))
    assert 1.8 < epsilon_proven((laplace[0] - 1, laplace[1] + 1)) < 2.0


RESPONSES, EPSILON = 200, 1.0
HONEST = 1 / (1 + np.exp(-EPSILON))


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_no_randomised_response_is_right_more_often_than_its_chance(delta):
    """Answers to each coin apart; all are told with probability δ, or each by itself."""
    right = np.arange(RESPONSES + 1)
    most = np.array([chance(RESPONSES, RESPONSES, int(v), EPSILON, delta) for v in right])
    tails = binom.sf(right - 1, RESPONSES, HONEST)
    assert (delta + (1 - delta) * tails <= most + 1e-12).all()
    assert (binom.sf(right - 1, RESPONSES, delta + (1 - delta) * HONEST) <= most + 1e-12).all()
    if not delta:
        np.testing.assert_allclose(tails, most)


@pytest.mark.parametrize(("coins", "guesses", "right"), [(50, 50, 40), (300, 100, 88), (80, 20, 0)])
def test_the_chance_of_right_guesses_is_that_of_the_papers_own_program(coins, guesses, right):
    """Appendix D of Steinke, Nasr and Jagielski (2023), line by line."""
    delta = 1e-4
    alpha = total = 0.0
    for i in range(1, right + 1):
        total += binom.pmf(right - i, guesses, HONEST)
        alpha = max(alpha, total / i)
    p = binom.sf(right - 1, guesses, HONEST) + alpha * delta * 2 * coins
    assert chance(coins, guesses, right, EPSILON, delta) == pytest.approx(min(p, 1.0), rel=1e-9)


def test_what_coins_prove_is_below_the_truth_and_near_it():
    rng = np.random.default_rng(0)
    alpha, runs, mu, delta = 0.05, 400, 1.0, 1e-5
    truth = epsilon_for(mu, delta)
    coins = rng.choice([-1.0, 1.0], (runs, 500))
    seen = coins * mu / 2 + rng.standard_normal(coins.shape)
    surest = np.argsort(-np.abs(seen), axis=1)[:, :50]
    right = np.take_along_axis(np.sign(seen) == coins, surest, axis=1).sum(axis=1)
    proven = {v: epsilon_by_coins(500, 50, int(v), delta, alpha) for v in set(right.tolist())}
    assert np.mean([proven[v] > truth for v in right.tolist()]) <= alpha
    answers = rng.random(20_000) < HONEST
    assert 0.9 * EPSILON < epsilon_by_coins(20_000, 20_000, int(answers.sum()), 0.0, 0.001) < EPSILON


def test_a_line_is_run_alone_by_its_name(capsys):
    assert report.main(["gaussian-sum"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("gaussian-sum: holds")
    assert said.count("claimed:") == 1
    assert report.main(["no-such-line"]) == 2


def test_lines_are_listed_by_the_module_in_a_checkout(monkeypatch, capsys):
    """It is run in this process, which has loaded all of it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["audit", "--list"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("audit", run_name="__main__")
    assert not ended.value.code
    assert set(re.findall(r"^([a-z0-9-]+): ", capsys.readouterr().out, re.MULTILINE)) == set(LINES)


def test_every_test_that_is_to_see_a_fault_exists_and_is_one_of_make_test():
    """Each killer is found by its file and name; its parameters are checked where the fault is tried."""
    assert f"\nUSUAL := {mutants._USUAL}\n" in (ROOT / "Makefile").read_text()
    assert LINES.keys() >= COSTLY
    assert COSTLY.isdisjoint(mutant.killer for mutant in mutants.MUTANTS)
    killers = {mutant.killer for mutant in mutants.MUTANTS if "::" in mutant.killer}
    planted = {f"{planted.file}::{planted.test}" for planted in mutants.PLANTED}
    assert len(killers) > 20
    defined = {}
    for killer in killers | planted:
        file, _, test = killer.partition("::")
        if file not in defined:
            tree = ast.parse((ROOT / file).read_text())
            defined[file] = {
                node.name
                for node in tree.body
                if isinstance(node, ast.FunctionDef)
                and "pytest.mark.costly" not in map(ast.unparse, node.decorator_list)
            }
        assert test.partition("[")[0] in defined[file], killer
