"""Planted faults: each breaks a promise on purpose, and the test or line that is named must see it."""

import io
import itertools
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from math import nextafter, sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from distributed import Client
from sqlalchemy import Connection

from audit import books, estimates, floats, mechanisms, retold, samplers, sensitivity, served
from audit.faulty import IGNORED, IN_TURN, JOINED, NAMED, OPEN
from audit.lines import Finding, Line, Section
from privest import memo
from privest.arrays import Array, lengths
from privest.data.metadata import DatasetMetadata
from privest.estimators import federation
from privest.estimators.frechet_mean import column_means, frechet_mean
from privest.estimators.frechet_mean import losses as mean_losses
from privest.estimators.frechet_mean.column_means import ColumnSum
from privest.estimators.frechet_mean.losses import SquaredDistance, SquaredDistanceChange
from privest.estimators.frechet_mean.radius_search import DistanceCounts
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.losses import logistic
from privest.estimators.linear_model.losses.curved import CurvedGradient
from privest.estimators.linear_model.losses.logistic import LogisticGradient
from privest.estimators.linear_model.losses.scores import RightAnswersOfEach
from privest.estimators.linear_model.losses.spread import LengthCounts
from privest.estimators.linear_model.newton import NewtonSolver
from privest.estimators.range_finding import column_ranges
from privest.estimators.range_finding.column_ranges import ColumnCounts
from privest.estimators.range_finding.column_scales import Standardised
from privest.estimators.subspace import (
    column_center,
    completion_means,
    robust_pca,
    second_moment,
)
from privest.estimators.subspace import losses as subspace_losses
from privest.estimators.subspace.distances import DistanceHistogram
from privest.estimators.subspace.second_moment import SecondMoment
from privest.privacy import (
    accounting,
    budget,
    clipped_sums,
    gate,
    laplace_accounting,
    matrix_mechanism,
    noise,
    subsampling,
)
from privest.privacy import mechanisms as core_mechanisms
from privest.privacy.accounting import Cost
from privest.privacy.clipped_sums import Grid
from privest.privacy.gate import ChunkSum, Gate, Prefixes
from privest.privacy.matrix_mechanism import PrefixSums
from privest.privacy.mechanisms import NoisySum, SampledSum, SubsampledRun, SubsampledSum
from privest.privacy.noise import SystemNoise
from privest_papers import nonconvex_losses, reaper, spider_schedule, subspace_rsvrg
from privest_service.database import views
from privest_service.estimates import worker
from privest_service.estimates.cluster import attempt
from privest_service.estimates.runners.dask import DaskRunners, RunLostError
from privest_service.exports.keys import Trusted
from privest_service.leavers import service as leavers
from privest_service.ledger import chain, entries, units
from privest_service.notices import sending
from privest_service.security import tokens
from privest_service.sites import hub, link
from privest_service.workers.turns import Turns

_ROOT = Path(__file__).parent.parent

_WITHOUT = [
    f"-pno:{plugin}" for plugin in ("faulthandler", "unraisableexception", "threadexception", "warnings")
]
"""Options of pytest that leave out work which is done elsewhere."""

_USUAL = "not (prove or costly)"
"""The tests that `make test` runs, by their marks. A change could bring in a fault that only others see."""

_LINES = {
    line.name: line
    for module in (mechanisms, estimates, retold, books, sensitivity, floats, samplers)
    for line in module.SECTION.lines
}

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutant:
    """A fault that is put into the code.

    Attributes:
        name: of the line.
        fault: in words.
        killer: a line by its name, or a test by its node.
        plant: puts the fault in, and takes it out again.
        quick: whether the killer is.
    """

    name: str
    fault: str
    killer: str
    plant: Plant
    quick: bool = True

    @property
    def line(self) -> Line:
        """This fault as a line of the report."""
        return Line(f"fault-{self.name}", self.fault, self._run, quick=self.quick)

    def _run(self, long: bool) -> Finding:  # noqa: ARG002 - a fault is seen or not
        line = _LINES.get(self.killer)
        without = line.in_short.holds if line else _passes_without(self.killer)
        begun = time.perf_counter()
        with self.plant():
            planted = _passes(self.killer)
        took = time.perf_counter() - begun
        return Finding(
            holds=without and not planted,
            claimed=f"seen by `{self.killer}`",
            found=f"which fails with it in {took:.1f} s" if not planted else "which does NOT see it",
            power="and passes without" if without else "and fails WITHOUT it",
        )


def _passes(killer: str) -> bool:
    """Whether a line holds, or a test passes; an error is a failure.

    Raises:
        ValueError: there is no such test.
    """
    if killer in _LINES:
        try:
            return _LINES[killer].run(False).holds
        except Exception:
            return False
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
        chosen = ["-m", _USUAL, f"{_ROOT}/{killer}"]
        code = pytest.main(["-qq", "-s", f"--rootdir={_ROOT}", *_WITHOUT, *chosen])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise ValueError(f"no such test in `make test`: {killer}: {said.getvalue()}")
    return code == pytest.ExitCode.OK


_passes_without = cache(_passes)


def _put(where: object, what: str, by: object, *, create: bool = False) -> Plant:
    return lambda: patch.object(where, what, by, create=create)


def _computed(kind: type, what: str) -> Callable[[Any], Any]:
    """How a property is made."""
    return vars(kind)[what].fget


def _half_as_wide(kind: Any) -> Plant:
    """A statistic that claims half of its diameter."""
    own = kind.diameter
    return _put(kind, "diameter", lambda self, clip: own(self, clip) / 2)


def _all(*plants: Plant) -> Plant:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            yield

    return together


# Noise


def _drawn(factor: float, law: str | None = None) -> Plant:
    draw = SystemNoise.draw

    def less(self: SystemNoise, kind: Any, scale: float, *how: Any) -> Any:
        return draw(self, kind, scale * (factor if law in (None, kind) else 1.0), *how)

    return _put(SystemNoise, "draw", less)


def _first_again() -> Plant:
    draw = SystemNoise.draw

    def again(self: SystemNoise, *how: Any) -> Any:
        self._used = 0
        return draw(self, *how)

    return _put(SystemNoise, "draw", again)


@dataclass(frozen=True)
class _OfMean:
    """A source of noise for means."""

    source: Any
    n: int

    def draw(self, law: Any, scale: float, *how: Any) -> Any:
        """See `NoiseSource`."""
        return self.source.draw(law, scale / self.n, *how)


def _mean_noise() -> Plant:
    mean = Gate.mean

    def answer(self: Gate, point: Any, statistic: str = "gradient") -> Array:
        kept = self._noise
        self._noise = _OfMean(kept, len(self._records))  # pyright: ignore[reportAttributeAccessIssue]
        try:
            return mean(self, point, statistic)
        finally:
            self._noise = kept

    return _put(Gate, "mean", answer)


def _floats(self: Grid, values: Array) -> Array:
    return values / self.spacing


def _of_noise() -> Iterator[Mutant]:
    yield Mutant("half-noise", "half of the noise", "gaussian-sum", _drawn(0.5))
    yield Mutant(
        "no-noise",
        "noise left out, as sampling is private (Maunu et al. 2022)",
        "poisson-batches",
        _drawn(1e-3),
        quick=False,
    )
    yield Mutant(
        "laplace-deviation",
        "a standard deviation read as Laplace's scale (Kuru et al. 2022)",
        "law-laplace-length",
        _drawn(1 / sqrt(2), "laplace"),
    )
    yield Mutant(
        "one-key",
        "two gates with one key",
        "tests/core/privacy/test_noise.py::test_two_sources_share_nothing",
        _put(noise.secrets, "randbits", lambda bits: 2**bits // 3),
    )
    yield Mutant(
        "noise-again",
        "noise drawn once, for all answers",
        "tests/core/privacy/test_gate.py::test_a_sum_asked_for_again_at_the_same_point_gets_fresh_noise_only",
        _first_again(),
    )
    yield Mutant(
        "mean-noise",
        "the noise of a mean, on a sum",
        "gaussian-sum",
        _mean_noise(),
    )
    yield Mutant("no-grid", "noise added to floats", "float-grid", _put(Grid, "quantise", _floats))


# What a record adds


def _unclipped(vectors: Array, clip: float) -> Array:  # noqa: ARG001
    return np.atleast_2d(vectors).sum(axis=0)


def _printed(vectors: Array, clip: float) -> Array:
    vectors = np.atleast_2d(vectors)
    return np.minimum(lengths(vectors) / clip, 1.0) @ vectors


def _by_coordinate(vectors: Array, clip: float) -> Array:
    return np.clip(np.nan_to_num(np.atleast_2d(vectors)), -clip, clip).sum(axis=0)


def _not_total(vectors: Array, clip: float) -> Array:
    vectors = np.atleast_2d(vectors)
    return clip / np.maximum(lengths(vectors), clip) @ vectors


def _apart(self: SquaredDistanceChange, point: tuple[Array, Array], rows: Array, clip: float) -> Array:
    """Both gradients clipped, then subtracted."""
    at, anchor = (SquaredDistance(self.manifold).clipped_sum(p, rows, clip) for p in point)
    return at - anchor


def _apart_on_subspaces(
    self: subspace_rsvrg.SubspaceDistanceChange, point: tuple[Any, Any], rows: Array, clip: float
) -> Array:
    """Both gradients clipped, then subtracted."""
    each = subspace_losses.SubspaceDistance(self.dim, self.rank)
    at, anchor = (each.clipped_sum(p, rows, clip) for p in point)
    return at - anchor


def _by_their_mean(features: Callable[..., Array]) -> Callable[..., Array]:
    def standardised(self: FeatureMap, rows: Array) -> Array:
        return features(self, np.column_stack([rows[:, :-1] - rows[:, :-1].mean(axis=0), rows[:, -1]]))

    return standardised


def _all_classes(clipped_sum: Callable[..., Array]) -> Callable[..., Array]:
    def summed(self: Any, point: Any, rows: Array, clip: float) -> Array:
        if len(np.unique(rows[:, -1])) < self.classes:
            raise ValueError("a class without records")
        return clipped_sum(self, point, rows, clip)

    return summed


def _uphill() -> Plant:
    down = subspace_losses.SubspaceDistance.clipped_sum
    return _put(subspace_losses.SubspaceDistance, "clipped_sum", lambda *given: -down(*given))


def _as_stored(rows: Array, center: Array | None = None) -> Array:  # noqa: ARG001
    return rows


def _trusted(rows: Array, classes: int) -> Any:  # noqa: ARG001
    return rows[:, -1].astype(np.int64)


def _undefended(self: ChunkSum, rows: Array) -> Array:
    return self.statistic.clipped_sum(self.point, rows, self.clip)


def _between_equal_nodes(nodes: Array, values: Array) -> Array:
    """Counts as they once were: 0/0 where two nodes are equal."""
    known = values[~np.isnan(values)]
    at = np.clip(known, nodes[0], nodes[-1])
    above = np.clip(np.searchsorted(nodes, at, side="right"), 1, len(nodes) - 1)
    part = np.minimum((at - nodes[above - 1]) / (nodes[above] - nodes[above - 1]), 1.0)
    counts = (
        np.zeros(len(nodes) + 1)
        + np.bincount(above, part, len(nodes) + 1)
        + np.bincount(above - 1, 1.0 - part, len(nodes) + 1)
    )
    return counts + np.append(np.zeros(len(nodes)), len(values) - len(known))


def _all_rows(self: ChunkSum, piece: Array) -> Array:
    return self._clipped(piece.reshape(-1, *piece.shape[2:])) if self.grouped else self._clipped(piece)


def _of_records() -> Iterator[Mutant]:
    clip = partial(_put, mean_losses, "clipped_sum")
    moved = "diameter-squared-distance"
    yield Mutant("no-clip", "no clip", moved, clip(_unclipped))
    yield Mutant(
        "clip-inverted", "min(|v|/C, 1)·v for a clip (Utpala et al. 2023)", moved, clip(_printed), quick=False
    )
    yield Mutant("clip-by-coordinate", "coordinates clipped, not vectors", moved, clip(_by_coordinate))
    yield Mutant("nan-stops", "a row that is no number is not left out", "float-tampered", clip(_not_total))
    yield Mutant(
        "half-diameter",
        "C for 2C: add or remove a record, not replace one",
        moved,
        _put(SquaredDistance, "diameter", lambda _, clip: clip),
    )
    yield Mutant(
        "clipped-apart",
        "two gradients clipped, not their difference (Utpala et al. 2023)",
        "tests/core/estimators/frechet_mean/test_frechet_mean_accounting.py::test_a_change_of_gradients_is_clipped_as_one[sphere]",
        _put(SquaredDistanceChange, "clipped_sum", _apart),
    )
    yield Mutant(
        "subspace-clipped-apart",
        "two gradients of a subspace clipped, not their difference (Utpala et al. 2023)",
        "diameter-subspace-distance-change",
        _put(subspace_rsvrg.SubspaceDistanceChange, "clipped_sum", _apart_on_subspaces),
    )
    yield Mutant(
        "moment-diameter",
        "C for √2·C, of second moments",
        "diameter-second-moment",
        _put(SecondMoment, "diameter", lambda _, clip: clip),
    )
    yield Mutant(
        "off-the-sphere",
        "rows of any length in a second moment",
        "float-cancellation",
        _put(second_moment, "on_sphere", _as_stored),
    )
    yield Mutant(
        "bounds-assumed",
        "G and M of a loss taken for granted (Liu and Talwar 2025)",
        "diameter-gradients",
        _put(
            nonconvex_losses, "_clipped_mean", lambda vectors, point, *_: vectors.sum(axis=0) / point.records
        ),
        quick=False,
    )
    yield Mutant(
        "uphill",
        "a gradient without its sign (Maunu et al. 2022)",
        "tests/core/estimators/subspace/test_subspace_losses.py::"
        "test_the_sum_is_minus_the_gradient_of_the_loss_along_geodesics[False-Absolute()--3-1]",
        _uphill(),
    )
    yield Mutant(
        "curvature-one-sided",
        "√2·b for a + b, of Hessians",
        "diameter-clipped-hessian",
        _put(
            nonconvex_losses.ClippedHessian, "diameter", lambda self, clip: sqrt(2.0) * min(self.most, clip)
        ),
        quick=False,
    )
    yield Mutant(
        "own-mean",
        "features less the mean of the rows that they are summed with",
        "float-cancellation",
        _put(FeatureMap, "features", _by_their_mean(FeatureMap.features)),
    )
    yield Mutant(
        "absent-class",
        "a class without records is refused",
        "tests/core/estimators/linear_model/test_logistic_sensitivity.py::test_no_pair_moves_the_gradient_by_more_than_its_diameter[0.0-2-plain]",
        _put(LogisticGradient, "clipped_sum", _all_classes(logistic.LogisticGradient.clipped_sum)),
    )
    yield Mutant(
        "bias-left-out",
        "a region that leaves out what rows beyond the bound lack",
        "tests/core/estimators/linear_model/test_coefficient_uncertainty.py::"
        "test_the_region_holds_the_fit_that_the_answer_names[30.0-heavy tails]",
        _put(NewtonSolver, "_bias", lambda *_: 0.0),
    )
    yield Mutant(
        "labels-trusted",
        "labels in the store are taken for what the upload let in",
        "float-tampered",
        _put(FeatureMap, "labels", staticmethod(_trusted)),
    )
    yield Mutant(
        "seen-together",
        "a row's rounding depends on the rows beside it",
        "tests/core/estimators/subspace/test_subspace_sensitivity.py::test_a_record_s_vector_has_the_same_bits_wherever_in_a_batch_it_is",
        _put(subspace_losses, "seen_by", lambda rows, directions: rows @ directions.T),
        quick=False,
    )
    yield Mutant(
        "groups-by-size",
        "a unit counts as often as it has rows",
        "tests/core/privacy/test_gate.py::test_a_group_counts_as_the_mean_of_its_rows_each_clipped[50]",
        _put(ChunkSum, "_of_piece", _all_rows),
    )
    yield Mutant(
        "close-bounds",
        "plans between bounds that float64 cannot tell apart",
        "tests/core/estimators/linear_model/test_close_bounds.py::test_a_plan_between_such_bounds_is_refused",
        _put(DatasetMetadata, "require_resolvable", lambda _: None),
    )
    yield Mutant(
        "equal-nodes",
        "NaN between equal nodes of a histogram",
        "tests/core/estimators/range_finding/test_column_ranges.py::test_between_nodes_that_do_not_rise_a_record_counts_once_all_the_same",
        _put(column_ranges, "_counted", _between_equal_nodes),
    )
    yield Mutant(
        "no-last-defence",
        "the gate takes a statistic's sum whatever it is",
        "tests/core/privacy/test_gate.py::test_a_row_at_which_a_statistic_slips_counts_as_zero[NaN]",
        _put(ChunkSum, "_of_block", _undefended),
    )


# What tells how far an answer may be off

_LOOKS = ("range", "orders", "columns", "spreads")


def _is_look(statistic: str) -> bool:
    """Whether a statistic of this name shows where records are; several are called "... distances"."""
    return statistic in _LOOKS or statistic.endswith("distances")


def _twice(kind: type) -> Plant:
    once = kind.clipped_sum
    return _put(kind, "clipped_sum", lambda *given: 2 * once(*given))


def _raw_looks() -> Plant:
    mean = Gate.mean

    def answer(self: Gate, point: Any, statistic: str = "gradient") -> Array:
        kept = self._noise
        if _is_look(statistic):
            self._noise = _OfMean(kept, 10**9)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            return mean(self, point, statistic)
        finally:
            self._noise = kept

    return _put(Gate, "mean", answer)


def _looks_free(planner: Any) -> Plant:
    """Plans that look at distances, and are charged for all else."""
    honest = planner.certified

    def certified(releases: Any, *given: Any) -> Any:
        return honest([each for each in releases if not _is_look(each.statistic)], *given)

    return _put(planner, "certified", certified)


def _raw_error() -> Plant:
    """A sampling error worked out from the rows."""
    honest = frechet_mean._estimate

    def estimate(plan: Any, gate: Any) -> Any:
        point, told = honest(plan, gate)
        return point, told and replace(told, sampling=gate._records._rows.std())

    return _put(frechet_mean, "_estimate", estimate)


def _cheapest(releases: Iterable[Any]) -> tuple[list[Any], list[list[Any]]]:
    shared, alternatives = core_mechanisms.parted(releases)
    return shared, [min(alternatives, key=lambda each: sum(r.cost.mu_squared for r in each))]


_residuals = reaper._residuals


def _in_a_long_frame(point: reaper.Relaxation, rows: Array) -> tuple[Array, Array, Array]:
    """What REAPER sees of rows, with a frame that is not orthonormal."""
    wider = copy(point)
    if point.frame is not None:  # past the check that columns are orthonormal
        object.__setattr__(wider, "frame", 1.1 * point.frame)
    return _residuals(wider, rows)


def _of_errors() -> Iterator[Mutant]:
    paid = "test_the_noise_drawn_pays_for_looks_at_distances_too[1e-06-options1-sphere]"
    of_mean = f"tests/core/estimators/frechet_mean/test_frechet_mean_accounting.py::{paid}"
    of_subspace = (
        "tests/core/estimators/subspace/test_robust_pca_accounting.py::"
        "test_the_noise_drawn_pays_for_the_plan[1.0-1e-06-defaults]"
    )
    yield Mutant(
        "scores-diameter",
        "1 for √k, of the right answers of k candidates",
        "diameter-right-answers-of-each",
        _put(RightAnswersOfEach, "diameter", lambda _, clip: min(clip, 1.0)),
    )
    yield Mutant(
        "both-alternatives",
        "a gate that makes every large fit, where one is paid for",
        "tests/core/privacy/test_gate.py::test_of_alternatives_one_run_is_made",
        _put(gate, "AlternativeSum", bool),
    )
    yield Mutant(
        "sampled-twice",
        "samples in which a record may be several times, charged as if once",
        "tests/core/privacy/test_gate.py::"
        "test_a_sample_is_drawn_by_the_gate_without_repetition_and_costs_as_all_records",
        _put(SystemNoise, "batch", lambda self, n, rate, _: self.indices(n, round(rate * n))),
    )
    yield Mutant(
        "sample-cheaper",
        "sums over samples charged as if no more than their share could be seen",
        "tests/core/privacy/test_gate.py::"
        "test_a_sample_is_drawn_by_the_gate_without_repetition_and_costs_as_all_records",
        _put(
            SampledSum, "sensitivity", property(lambda self: NoisySum.sensitivity.__get__(self) * self.rate)
        ),
    )
    yield Mutant(
        "cheapest-alternative",
        "the cheapest alternative charged, and not the costliest",
        "tests/core/privacy/test_budget.py::test_alternatives_cost_what_the_costliest_run_does",
        _put(budget, "parted", _cheapest),
    )
    for of, kind, line in (
        ("mean", DistanceCounts, "diameter-distance-counts"),
        ("subspace", DistanceHistogram, "diameter-distance-histogram"),
        ("table", ColumnCounts, "diameter-column-counts"),
    ):
        yield Mutant(f"counted-twice-{of}", f"a record twice in a {of}'s histogram", line, _twice(kind))
        yield Mutant(
            f"counts-diameter-{of}",
            f"C for √2·C, of a {of}'s histogram",
            line,
            _put(kind, "diameter", lambda _, clip: clip),
        )
    yield Mutant(
        "center-squares",
        "squares beside a table's means with twice the weight that their diameter allows",
        "diameter-center-sum",
        _put(column_center, "_SQUARES", 3.0),
    )
    for kind, line in (
        (completion_means.KnownSums, "diameter-known-sums"),
        (completion_means.HeldOut, "diameter-held-out"),
    ):
        name = line.removeprefix("diameter-")
        yield Mutant(
            f"{name}-diameter", f"half the diameter, of {kind.description}", line, _half_as_wide(kind)
        )
    yield Mutant(
        "relaxation-diameter",
        "1.3·C for √2·C, of REAPER's gradients",
        "diameter-reaper",
        _put(reaper.Reaper, "diameter", lambda _, clip: 1.3 * clip),
    )
    yield Mutant(
        "relaxation-frame",
        "REAPER within a frame whose columns are a tenth too long",
        "diameter-reaper",
        _put(reaper, "_residuals", _in_a_long_frame),
    )
    units = Standardised.clipped_sum
    yield Mutant(
        "units-after-clip",
        "a sum in units of columns that is brought to them after the clip",
        "diameter-standardised",
        _put(Standardised, "clipped_sum", lambda *given: units(*given) / given[1][0].scale.min()),
    )
    curvature = CurvedGradient._hessian
    yield Mutant(
        "curvature-beside",
        "a Hessian that is longer than the sum's bound counts it",
        "diameter-curved-gradient",
        _put(CurvedGradient, "_hessian", lambda *given: 2 * curvature(*given)),
    )
    counted = LengthCounts.clipped_sum
    yield Mutant(
        "lengths-twice",
        "a row that counts at two lengths",
        "diameter-length-counts",
        _put(LengthCounts, "clipped_sum", lambda *given: counted(*given) + np.roll(counted(*given), 1)),
    )
    free = "a look at distances that is not charged"
    yield Mutant("look-free-mean", f"{free}, of a mean", of_mean, _looks_free(frechet_mean))
    yield Mutant("look-free-subspace", f"{free}, of a subspace", of_subspace, _looks_free(robust_pca))
    yield Mutant("raw-look-mean", "a mean's distances without noise", of_mean, _raw_looks())
    yield Mutant("raw-look-subspace", "a subspace's distances without noise", of_subspace, _raw_looks())
    yield Mutant("raw-error", "a stated error worked out from the rows", "answers-alone", _raw_error())


# Batches


def _batches_over_n() -> Plant:
    """Treat the mean over a batch as if it moved by 2C/n, in the noise and in the certificate."""
    honest, whole = _computed(SubsampledSum, "sensitivity"), budget.subsampled_sum

    def planned(run: SubsampledRun, **rest: Any) -> SubsampledSum:
        return whole(replace(run, noise=run.noise * run.rate), **rest)

    return _all(
        _put(budget, "subsampled_sum", planned),
        _put(SubsampledSum, "sensitivity", property(lambda self: honest(self) * self.rate)),
    )


def _slack_on_top() -> Plant:
    def promised(target: Any) -> budget.Budgets:
        return ((accounting.mu_for(target.epsilon, target.delta), target.delta / 200),)

    return _put(budget, "gaussian_budgets", promised)


def _slack_uncounted() -> Plant:
    covers = budget.covers

    def covered(spent: Cost, target: Any) -> bool:
        return covers(Cost(spent.mu_squared), target)

    return _put(budget, "covers", covered)


def _one_fewer() -> Plant:
    whole = laplace_accounting._composed  # pyright: ignore[reportPrivateUsage]
    return _put(
        laplace_accounting, "_composed", lambda law, cell, cells, n: whole(law, cell, cells, max(1, n - 1))
    )


def _half_far() -> Plant:
    tails = laplace_accounting.OnALine.tails
    return _put(
        laplace_accounting.OnALine,
        "tails",
        lambda self, losses: tails(replace(self, far=self.far / 2), losses),
    )


def _removed() -> Plant:
    """The pair of a Poisson step if a record is removed: N(0) against (1 − q)N(0) + qN(C)."""
    step = subsampling._step

    def of(run: Any, *rest: Any) -> Any:
        poisson = run.scheme == "poisson"
        return step(replace(run, scheme="fixed", noise=2 * run.noise) if poisson else run, *rest)

    return _put(subsampling, "_step", of)


def _half_apart() -> Plant:
    """Half of the distance between two vectors for the length of one, as in sums over all records."""
    step = subsampling._step

    def of(run: SubsampledRun, *rest: Any) -> Any:
        return step(replace(run, noise=2 * run.noise / run.apart, apart=2.0), *rest)

    return _put(subsampling, "_step", of)


def _more_often() -> Plant:
    count = SystemNoise._count
    return _put(SystemNoise, "_count", lambda self, n, rate: count(self, n, 1.02 * rate))


def _by_drawn_size() -> Plant:
    batch = Gate._batch

    def divided(self: Gate, release: SubsampledSum, point: Any) -> Any:
        source, sizes = self._noise, list[int]()

        class Listening:
            def batch(self, *how: Any) -> Any:
                found = source.batch(*how)
                sizes.append(len(found))
                return found

        self._noise = Listening()  # pyright: ignore[reportAttributeAccessIssue]
        try:
            total = batch(self, release, point)
        finally:
            self._noise = source
        return (total * (release.divisor / max(1, *sizes, 1))).astype(np.int64)

    return _put(Gate, "_batch", divided)


def _of_batches() -> Iterator[Mutant]:
    spent = (
        "tests/core/estimators/frechet_mean/test_frechet_mean_accounting.py::"
        "test_the_noise_drawn_over_batches_pays_for_the_plan"
    )
    yield Mutant(
        "batch-over-n",
        "2C/n for 2C/B, of the mean over a batch (Maunu et al. 2022)",
        f"{spent}[1.0-1e-05-euclidean-rsgd]",
        _batches_over_n(),
    )
    within = "tests/core/privacy/test_accounting.py::test_slack_is_paid_for_out_of_delta[1e-05]"
    yield Mutant("slack-on-top", "a slack beside δ, not inside", within, _slack_on_top())
    yield Mutant("slack-uncounted", "a plan checked without its slack", within, _slack_uncounted())
    yield Mutant(
        "removed",
        "batches certified for a record removed",
        "tests/core/privacy/test_subsampling.py::test_a_step_on_the_grid_is_never_below_its_curve[0.01-poisson-0.5-20.0]",
        _removed(),
    )
    yield Mutant(
        "half-apart",
        "batches certified for vectors that are half as long as two may be apart",
        "tests/core/privacy/test_subsampling.py::test_a_step_on_the_grid_is_never_below_its_curve[0.01-poisson-0.01-1.0-1.4]",
        _half_apart(),
    )
    yield Mutant(
        "nearer-batches",
        "batches planned for records that are nearer to each other",
        "tests/core/privacy/test_gate.py::test_a_plan_with_batches_for_other_data_is_refused",
        _put(core_mechanisms, "apart", lambda *_: 1.0),
    )
    yield Mutant("rate", "a record more often in a batch, by a fiftieth", "law-poisson", _more_often())
    yield Mutant(
        "put-back",
        "a record twice in a batch",
        "law-fixed-3",
        _put(SystemNoise, "batch", lambda self, n, rate, _: self.indices(n, round(rate * n))),
    )
    yield Mutant(
        "drawn-size",
        "a batch divided by the size that it happens to have",
        "tests/core/privacy/test_gate.py::test_a_batch_is_drawn_by_the_gate_summed_and_divided_by_its_expected_size",
        _by_drawn_size(),
    )
    yield Mutant(
        "one-chunk",
        "half of what a replaced record moves, for a record more in a batch",
        "tests/core/privacy/test_gate.py::test_one_record_more_in_a_batch_moves_its_sum_by_at_most_the_certified_length",
        _put(
            clipped_sums,
            "batch_sensitivity",
            lambda clip, *how: clipped_sums.sensitivity(2 * clip, clip, *how[:2]) / 2,
        ),
    )
    yield Mutant(
        "pure-one-fewer",
        "pure releases charged together, but one",
        "tests/core/privacy/test_laplace_accounting.py::test_blocks_and_what_is_left_of_them_are_all_charged[1]",
        _one_fewer(),
    )
    yield Mutant(
        "pure-half-far",
        "Laplace noise over batches charged for a record removed",
        "tests/core/privacy/test_laplace_accounting.py::test_the_law_of_a_batch_is_that_of_its_densities[1.0-0.1-poisson]",
        _half_far(),
    )
    yield Mutant(
        "amplified",
        "qε for the ε of a batch",
        "tests/papers/test_acceleration_accounting.py::test_laplace_batches_cost_less_than_the_worst_of_their_amplified_epsilon",
        _put(core_mechanisms, "amplified", lambda epsilon, rate, _: rate * epsilon),
    )


# Streams


def _handed_out_again() -> Plant:
    extend = Gate.extend

    def again(self: Gate, *leaf: Any, **how: Any) -> None:
        fresh = self._fresh
        extend(self, *leaf, **how)
        self._fresh = np.concatenate([self._fresh, fresh[:1]])

    return _put(Gate, "extend", again)


def _by_rows() -> Plant:
    made = Gate.__init__

    def ordered(self: Gate, *given: Any, **how: Any) -> None:
        made(self, *given, **how)
        first = self._records._rows.take(self._fresh, axis=0).reshape(len(self._fresh), -1)
        self._fresh = self._fresh[np.argsort(-first[:, 0])] if len(first) else self._fresh

    return _put(Gate, "__init__", ordered)


def _raw_at_first() -> Plant:
    read = Prefixes.read

    def first(self: Prefixes) -> Array:
        return read(self) if len(self._drawn) > 1 else Grid(self.release.spacing).values(self._total)

    return _put(Prefixes, "read", first)


def _half_a_leaf() -> Plant:
    honest = _computed(PrefixSums, "sensitivity")
    return _put(PrefixSums, "sensitivity", property(lambda self: honest(self) / 2))


_whole_hessians = spider_schedule._whole_hessians


def _with_little_noise(problem: spider_schedule.Problem, sizes: Any, statistic: str) -> PrefixSums:
    """The stream of whole Hessians, that at the answer with too little noise."""
    found = _whole_hessians(problem, sizes, statistic)
    return replace(found, scale=found.scale / 10) if statistic == spider_schedule.CURVATURE else found


def _of_streams() -> Iterator[Mutant]:
    test = "tests/core/privacy/test_matrix_mechanism.py::"
    column = matrix_mechanism.column
    yield Mutant(
        "record-twice",
        "a stream hands a record out twice",
        f"{test}test_no_record_is_used_twice_and_none_is_skipped",
        _handed_out_again(),
    )
    yield Mutant(
        "order-by-rows",
        "the largest records come first",
        f"{test}test_the_order_is_the_gates_own_and_uniform",
        _by_rows(),
    )
    yield Mutant(
        "tree-height",
        "a tree lower by one",
        f"{test}test_the_noise_drawn_pays_for_the_stream[tree]",
        _put(matrix_mechanism, "column", lambda kind, leaves: column(kind, max(1, leaves // 2))),
        quick=False,
    )
    yield Mutant(
        "raw-prefix",
        "the first prefix without noise (Liu and Talwar 2025)",
        f"{test}test_the_noise_has_the_stated_variance[tree]",
        _raw_at_first(),
    )
    worst = "test_a_replaced_record_moves_the_whole_stream_by_at_most_its_certificate[0.25-square-root]"
    yield Mutant(
        "half-leaf", "G/b for 2G/b, of leaves (Liu and Talwar 2025)", f"{test}{worst}", _half_a_leaf()
    )
    yield Mutant(
        "curvature-unpaid",
        "a tenth of the noise on the Hessian at the answer of spider",
        "tests/papers/test_spider.py::test_plans_fit_their_budget_and_their_records_or_say_what_would",
        _put(spider_schedule, "_whole_hessians", _with_little_noise),
    )
    yield Mutant(
        "cheapest-stream",
        "of streams the cheapest counts",
        f"{test}test_of_streams_the_costliest_counts_and_other_sums_are_added",
        _put(budget, "max", min, create=True),
    )


# What decides


def _descended(by: Callable[..., dict[str, Any]]) -> Plant:
    """Gradient descent with arguments that follow from the rows."""
    honest = frechet_mean.gradient_descent

    def descent(ball: Any, source: Any, **given: Any) -> Any:
        return honest(ball, source, **(given | by(source._records._rows, **given)))

    return _put(frechet_mean, "gradient_descent", descent)


def _with_diagnostics() -> Plant:
    honest = frechet_mean._estimate

    def estimate(plan: Any, gate: Any) -> Any:
        point, told = honest(plan, gate)
        return (point, gate._records._rows.std()), told

    return _put(frechet_mean, "_estimate", estimate)


def _of_decisions() -> Iterator[Mutant]:
    told = "answers-alone"
    yield Mutant(
        "raw-diagnostic", "a spread of the rows, without noise, in the answer", told, _with_diagnostics()
    )
    yield Mutant(
        "start-at-a-record",
        "a descent starts at a record",
        told,
        _descended(lambda rows, **_: {"start": rows[0]}),
        quick=False,
    )
    yield Mutant(
        "step-by-rows",
        "a step size by the largest entry of the data (Kuru et al. 2022)",
        told,
        _descended(lambda rows, step_size, **_: {"step_size": step_size / (1 + np.abs(rows).max())}),
        quick=False,
    )
    yield Mutant(
        "early-stop",
        "an early stop that looks at rows",
        told,
        _descended(lambda rows, steps, **_: {"steps": steps * int(rows[:1].flat[0] > 0)}),
    )
    yield Mutant(
        "ends-when-done",
        "a run that ends as soon as it is done",
        "tests/service/estimates/test_runners.py::test_a_run_ends_at_such_a_moment_whatever_its_rows",
        _put(worker, "padded", nullcontext),
    )


# What analysts can tell of an owner's books


async def _run_in_the_service(
    self: DaskRunners, seconds: float, function: Callable[..., str], *args: str
) -> Any:
    """Run with a client of Dask in this process, as before there was one without keys."""
    async with Client(self._address, asynchronous=True, set_as_default=False) as client:
        try:
            return await client.submit(attempt, seconds, function, *args, pure=False)
        except Exception:
            raise RunLostError from None


def _views_without_functions() -> Plant:
    """Views over tables again, with barriers, as they were before revision 0022."""
    make = views.make

    def plain(connection: Connection) -> None:
        make(connection)
        if connection.dialect.name == "sqlite":
            return
        own = f"owner_id = ANY({views._OWNERS})"
        for name, whole in {"v_published": "all_published", **views.OWN_VIEWS}.items():
            condition = own if name in views.OWN_VIEWS else "true"
            select = f"SELECT * FROM {whole} WHERE {condition}"  # noqa: S608
            connection.exec_driver_sql(f"DROP VIEW {name}")
            connection.exec_driver_sql(f"CREATE VIEW {name} WITH (security_barrier) AS {select}")

    return _put(views, "make", plain)


def _of_books() -> Iterator[Mutant]:
    yield Mutant(
        "joined-by-rows",
        "accounts joined by the rows' digest again, not by what the owner declared",
        "tests/service/ledger/test_caps.py::test_only_a_declaration_joins_datasets",
        _put(served, "everywhere", (JOINED,)),
        quick=False,
    )
    yield Mutant(
        "entries-named",
        "an analyst's receipt that names the entries of the ledger",
        "tests/service/ledger/test_receipts.py::"
        "test_an_analyst_s_receipt_commits_to_the_entries_and_tells_nothing_of_them",
        _put(served, "everywhere", (NAMED,)),
        quick=False,
    )
    yield Mutant(
        "caps-in-turn",
        "an analyst's own caps looked at after the owner's budget",
        "tests/service/ledger/test_caps.py::test_a_question_on_several_datasets_tells_of_own_caps_alone",
        _put(served, "everywhere", (IN_TURN,)),
        quick=False,
    )
    yield Mutant(
        "client-in-the-service",
        "answers of Dask's workers unpickled by the service, which holds the keys",
        "tests/service/estimates/test_runners.py::test_what_a_worker_answers_runs_nothing_in_the_service",
        _put(DaskRunners, "_run", _run_in_the_service),
        quick=False,
    )
    seeing_through = "tests/service/database/test_seeing_through_views.py::"
    yield Mutant(
        "views-without-functions",
        "answers that are not published behind the barrier of a view, which EXPLAIN looks through",
        f"{seeing_through}test_no_bisection_finds_an_answer_that_is_not_published[value < {{}}-postgresql]",
        _views_without_functions(),
        quick=False,
    )
    yield Mutant(
        "own-views-without-functions",
        "books of other owners behind the barrier of a view, which EXPLAIN looks through",
        f"{seeing_through}test_the_books_of_others_change_nothing_that_a_reader_of_its_own_sees[postgresql]",
        _views_without_functions(),
        quick=False,
    )


# The interface and the chain of entries


def _unhashed(field: str) -> Plant:
    whole = chain.canonical_hash
    return _put(chain, "canonical_hash", lambda content: whole({**content, field: ""}))


def _of_interface() -> Iterator[Mutant]:
    yield Mutant(
        "fields-ignored",
        "form fields and query parameters that are not known, ignored",
        "tests/service/test_unknown_fields.py::"
        "test_an_unknown_form_field_is_refused_by_name_beside_the_known_ones[rows-of-create_dataset]",
        _put(served, "everywhere", (IGNORED,)),
        quick=False,
    )
    yield Mutant(
        "ledger-open",
        "a route of the ledger without its check of the owner",
        "tests/service/security/test_access.py::test_every_route_answers_each_caller_as_the_table_says",
        _put(served, "everywhere", (OPEN,)),
        quick=False,
    )
    yield Mutant(
        "slack-unhashed",
        "a hash of an entry that does not cover its slack",
        "tests/service/ledger/test_ledger.py::test_the_verifier_sees[sqlite-slack]",
        _unhashed("slack"),
    )


# The gate and the currency


def _kept_whatever() -> Plant:
    whole = Gate._whole

    def kept(self: Gate, release: NoisySum, point: Any) -> Any:
        if self._last is not None and self._last[0] is point:
            return self._last[2]
        return whole(self, release, point)

    return _put(Gate, "_whole", kept)


def _of_costs() -> Iterator[Mutant]:
    test = "tests/core/privacy/test_gate.py::"
    yield Mutant(
        "without-end",
        "more answers than were planned",
        f"{test}test_answers_are_counted_and_end",
        _put(gate, "repeat", lambda release, _: itertools.repeat(release)),
    )
    yield Mutant(
        "other-data",
        "a plan for other data",
        f"{test}test_a_plan_for_other_data_is_refused[wrong2]",
        _put(gate, "is_for", lambda *_: True),
    )
    yield Mutant(
        "kept-whatever",
        "a sum that is kept with another clip, grid or statistic",
        f"{test}test_a_kept_sum_is_of_the_same_statistic_clip_and_grid",
        _kept_whatever(),
    )
    yield Mutant(
        "turns-amplified",
        "turns of owners that are public, paid for as if nobody knew of them",
        "tests/core/estimators/test_federation.py::"
        "test_each_owner_spends_no_more_than_it_allows_by_the_noise_that_its_gate_drew"
        "[robust_pca-2-5-2-gaussian]",
        _put(federation, "_freed", lambda course, *_: float(course.fewest_owners)),
    )
    yield Mutant(
        "sum-down",
        "costs added up and rounded down",
        "tests/core/privacy/test_accounting.py::test_sums_are_never_below_the_exact_sum",
        _put(accounting, "_add_up", lambda a, b: nextafter(a + b, 0.0)),
        quick=False,
    )
    yield Mutant(
        "cost-down",
        "the cost of a sum rounded to the nearest",
        "tests/core/privacy/test_accounting.py::test_gaussian_cost_is_at_least_the_exact_ratio",
        _put(NoisySum, "cost", property(lambda self: Cost((self.diameter / self.scale) ** 2))),
        quick=False,
    )
    yield Mutant(
        "mu-up",
        "μ rounded up, that (ε, δ) buys",
        "tests/core/privacy/test_accounting.py::test_mu_is_never_above_the_optimum_and_near_it[1.0]",
        _put(accounting, "_MARGIN", -accounting._MARGIN),
    )


# Rounding, levels, and who may do what


def _without_claim(name: str) -> Plant:
    """Tokens whose claim of this name nobody looks at."""
    whole = tokens.jwt.JWTClaimsRegistry

    def fewer(**wanted: Any) -> Any:
        return whole(**{key: value for key, value in wanted.items() if key != name})

    return _put(tokens.jwt, "JWTClaimsRegistry", fewer)


def _at_level_90() -> Plant:
    """Radii of several numbers that hold in nine of ten runs."""
    quantile = column_means.chdtri
    return _put(column_means, "chdtri", lambda freedom, tail: quantile(freedom, 2 * tail))


def _of_rounding() -> Iterator[Mutant]:
    ledger_tests, units_tests = (
        "tests/service/ledger/test_ledger.py::",
        "tests/service/ledger/test_units.py::",
    )
    yield Mutant(
        "charge-down",
        "ε and δ of a charge rounded down",
        f"{ledger_tests}test_costs_are_rounded_up_by_less_than_a_unit",
        _put(units, "_up", units._down),
    )
    yield Mutant(
        "cost-to-nearest",
        "μ² and slack of a charge rounded to the nearest unit",
        f"{ledger_tests}test_costs_are_rounded_up_by_less_than_a_unit",
        _put(units, "ceil", round),
    )
    yield Mutant(
        "limit-up",
        "limits rounded up",
        f"{ledger_tests}test_limits_are_rounded_down_by_less_than_a_unit",
        _put(units, "_down", units._up),
    )
    yield Mutant(
        "limit-above",
        "one unit more of μ² than a budget guarantees",
        f"{ledger_tests}test_gdp_limits_are_the_largest_safe_ones",
        _put(units, "floor", lambda value: math.floor(value) + 1),
    )
    yield Mutant(
        "runs-with-more",
        "a query that runs with an ε that is rounded up",
        f"{units_tests}test_a_query_is_charged_exactly_what_it_runs_with_and_never_more_than_was_asked",
        _put(units, "ROUND_FLOOR", units.ROUND_CEILING),
    )
    yield Mutant(
        "cap-given-back",
        "a sum that came to the cap is lowered by a void",
        f"{ledger_tests}test_a_sum_that_is_not_known_any_more_stays_what_it_is_at_least[sqlite]",
        _put(entries, "moved", lambda spent, amount: min(spent + amount, units.INFORMATIVE_CAP)),
    )
    yield Mutant(
        "radius-level",
        "a radius of level .9 for one of .95",
        "tests/core/estimators/frechet_mean/test_intervals.py::"
        "test_the_radius_of_several_numbers_has_the_level_that_it_states[gaussian-2]",
        _at_level_90(),
    )
    yield Mutant(
        "half-diameter-columns",
        "half the diameter, of sums of a table's columns",
        "diameter-column-sum",
        _half_as_wide(ColumnSum),
    )


def _of_rights() -> Iterator[Mutant]:
    platform_tests = "tests/service/security/test_tokens.py::"
    yield Mutant(
        "audience-unchecked",
        "tokens that were issued for another service",
        f"{platform_tests}test_a_token_that_is_for_somebody_else_or_over_is_not_good[audience]",
        _without_claim("aud"),
    )
    yield Mutant(
        "issuer-unchecked",
        "tokens of any issuer",
        f"{platform_tests}test_a_token_that_is_for_somebody_else_or_over_is_not_good[issuer]",
        _without_claim("iss"),
    )
    yield Mutant(
        "any-type",
        "tokens of any type, as a notice of a logout",
        f"{platform_tests}test_a_token_is_of_a_type_that_opens_something",
        _put(tokens, "_is_access", lambda _: True),
    )
    yield Mutant(
        "short-keys",
        "RSA keys of 512 bits",
        f"{platform_tests}test_an_rsa_key_that_is_too_short_is_not_used",
        _put(tokens, "_SHORTEST_RSA", 512),
    )
    yield Mutant(
        "private-addresses",
        "webhooks sent to addresses of the service's own network",
        "tests/service/notices/test_notices.py::"
        "test_webhooks_reach_public_addresses_and_what_is_allowed[https-fd00::1-False]",
        _put(sending, "_is_public", lambda _: True),
    )
    for field, forgery in (("job", "job_id"), ("at", "at")):
        yield Mutant(
            f"{field}-unhashed",
            f"a hash of an entry that does not cover its `{field}`",
            f"tests/service/ledger/test_ledger.py::test_the_verifier_sees[sqlite-{forgery}]",
            _unhashed(field),
        )
    yield Mutant(
        "heads-unsigned",
        "heads that anybody signed",
        "tests/service/exports/test_witnesses.py::test_forged_heads_are_no_heads[sqlite]",
        _put(Trusted, "signed", lambda *_: True),
    )
    leavers_tests = "tests/service/leavers/test_leavers.py::"
    told = "test_a_leaver_loses_keys_and_grants_and_all_is_told[sqlite]"
    yield Mutant(
        "act-unrecorded",
        "keys of a leaver revoked and nothing recorded",
        f"{leavers_tests}{told}",
        _put(leavers.acts, "record", lambda *_, **__: None),
    )
    yield Mutant(
        "leavers-grants",
        "a leaver who keeps its grants",
        f"{leavers_tests}{told}",
        _put(leavers, "_grants", lambda *_: []),
    )


# Between a hub and its sites


def _of_sites() -> Iterator[Mutant]:
    test = "tests/service/sites/"
    read = link.read_body
    yield Mutant(
        "receipt-of-another",
        "a hub that takes the receipt of an earlier job",
        f"{test}test_receipts.py::test_the_receipt_of_an_earlier_job_is_refused",
        _put(hub, "_require_receipt", lambda *_: None),
    )
    yield Mutant(
        "no-byte-cap",
        "a site that reads more of a hub's answer than it takes",
        f"{test}test_link.py::test_no_more_of_a_hubs_answer_is_read_than_a_site_takes",
        _put(link, "read_body", lambda answer, most, seconds: read(answer, 2 * most, seconds)),
    )
    yield Mutant(
        "no-pause",
        "a site that asks a hub again at once which holds nothing back",
        f"{test}test_link.py::test_a_hub_that_holds_no_answer_back_is_asked_once_a_second",
        _put(link, "_PAUSES", (0.0,)),
    )


# What test modules plant themselves


# What callers do to each other's plans


class _ForEver:
    """A memo that no block ends."""

    def __init__(self) -> None:
        self._results = dict[Any, Any]()

    def get(self) -> dict[Any, Any]:
        return self._results

    def set(self, _: object) -> None:
        pass

    def reset(self, _: object) -> None:
        pass


def _of_planning() -> Iterator[Mutant]:
    turn, numbers = Turns.turn, itertools.count()
    test = "tests/service/workers/test_turns.py::"
    yield Mutant(
        "first-come",
        "heavy plans in the order in which they come, whoever asks",
        f"{test}test_callers_take_turns",
        _put(Turns, "turn", lambda self, _, *given: turn(self, str(next(numbers)), *given)),
    )
    yield Mutant(
        "charged-last",
        "queries that will be charged wait behind free plans",
        f"{test}test_queries_to_be_charged_come_before_free_plans",
        _put(Turns, "turn", lambda self, who, _, seconds: turn(self, who, "free", seconds)),
    )
    yield Mutant(
        "warm-certificates",
        "certificates that are kept from one caller's plan to another's",
        "tests/service/estimates/test_service.py::"
        "test_no_plan_is_faster_because_another_caller_asked_the_same[batches of a mean]",
        _put(memo, "_memo", _ForEver()),
    )


@dataclass(frozen=True)
class Planted:
    """Faults of which a test module has a list, and tries each.

    Attributes:
        name: of the line.
        about: whose faults.
        file: of the tests.
        test: of it, which is run once a fault.
    """

    name: str
    about: str
    file: str
    test: str

    @property
    def line(self) -> Line:
        """These faults as a line of the report."""
        return Line(f"faults-{self.name}", self.about, self._run, quick=False)

    def _run(self, long: bool) -> Finding:  # noqa: ARG002 - as `Mutant`
        """Run in a process of its own, because the tests may want databases."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        ran = subprocess.run(  # noqa: S603 - our own tests
            [sys.executable, "-m", "pytest", "-vv", "-p", "no:xdist", self.file],
            cwd=_ROOT,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        seen = re.findall(rf"::{self.test}\[(.+)\] PASSED", ran.stdout)
        names = sorted({re.sub(r"^(sqlite|postgresql|\d+)-", "", name) for name in seen})
        return Finding(
            holds=ran.returncode == 0 and bool(names),
            claimed=f"each is seen by a check in `{self.file}`",
            found=f"{len(names)} are: {', '.join(names)}",
            power="the same checks pass without" if ran.returncode == 0 else "some test FAILED",
        )


PLANTED = (
    Planted(
        "ledger",
        "faults of the ledger, a refund of a failure among them",
        "tests/service/ledger/test_planted_faults.py",
        "test_a_planted_fault_is_seen",
    ),
    Planted(
        "race",
        "a debit that reads, checks and then writes",
        "tests/service/ledger/test_concurrency.py",
        "test_a_read_check_write_debit_would_be_caught",
    ),
    Planted(
        "geometry",
        "formulas as Utpala et al. 2023 print them",
        "tests/core/manifolds/test_errata.py",
        "test_the_law_fails_where_the_paper_is_followed",
    ),
    Planted(
        "saddles",
        "formulas as Liu and Talwar 2025 print them",
        "tests/papers/test_spider_errata.py",
        "test_the_law_fails_where_the_paper_is_followed",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *_of_noise(),
    *_of_records(),
    *_of_errors(),
    *_of_batches(),
    *_of_streams(),
    *_of_decisions(),
    *_of_books(),
    *_of_interface(),
    *_of_costs(),
    *_of_rounding(),
    *_of_rights(),
    *_of_planning(),
    *_of_sites(),
)

SECTION = Section(
    "Faults on purpose",
    """\
Each fault is put into the code by itself. What is named must then fail, and pass when the fault is out again.
Where a paper prints the fault, it is named.""",
    (*(mutant.line for mutant in MUTANTS), *(planted.line for planted in PLANTED)),
)
