"""Floating point against the grid: orders of summation, cancellation, and rows that no upload lets in."""

import warnings
from dataclasses import dataclass
from functools import reduce
from math import fsum, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.lines import Finding, Line, Section
from privest.arrays import Array, lengths
from privest.data.records import CHUNK, Records
from privest.privacy import clipped_sums
from privest.privacy.clipped_sums import Statistic
from privest.privacy.gate import ChunkSum, Gate
from privest.privacy.mechanisms import NoisySum, noisy_sum
from testing.hostile_rows import EXTREMES
from testing.neighbours import CASES, Case

_KINDS = tuple({type(case.statistic): case for case in CASES}.values())
"""One case for each kind of statistic."""


@dataclass(frozen=True, eq=False)
class _Scene:
    """A statistic with rows for it.

    Attributes:
        case: the statistic and its clip.
        point: where it is summed.
        rows: (n, ...) as an upload has them.
    """

    case: Case
    point: Any
    rows: Array

    @classmethod
    def of(cls, case: Case, count: int) -> "_Scene":
        """A scene of a case with so many rows."""
        rng, (of_record, of_point) = np.random.default_rng(0), case.sizes
        point = case.point(rng.standard_normal(of_point))
        rows = [case.record(rng.standard_normal(of_record)) for _ in range(count)]
        return cls(case, point, np.concatenate(rows))

    def tampered(self, count: int) -> Array:
        """Rows of extreme numbers, with some of them, and of one alone: such as no upload has."""
        rng = np.random.default_rng(1)
        of_record = self.rows.shape[1:]
        extreme = rng.choice(EXTREMES, (count, *of_record))
        usual = np.resize(self.rows, extreme.shape)
        some = np.where(rng.random(extreme.shape) < 0.3, extreme, usual)
        return np.concatenate([extreme, some, *(np.full((1, *of_record), value) for value in EXTREMES)])

    def release(self, n: int) -> NoisySum:
        """A sum over n rows."""
        size, clip = self.case.statistic.size, self.case.clip
        diameter = self.case.statistic.diameter(clip)
        return noisy_sum("gaussian", n=n, size=size, clip=clip, loss=1.0, diameter=diameter)

    def chunk_sum(self, statistic: Statistic, n: int) -> ChunkSum:
        """The sum over a chunk of n rows, as the gate makes it."""
        return ChunkSum(statistic, self.point, self.case.clip, self.release(n).spacing, grouped=False)


# Rows that no upload lets in


@dataclass(frozen=True)
class _Trusting:
    """Clips rows as if they were numbers, and not too large.

    Attributes:
        size: of a row.
    """

    size: int

    description = "the mean"

    def diameter(self, clip: float) -> float:
        """See `Statistic`."""
        return 2 * clip

    def clipped_sum(self, point: Any, rows: Array, clip: float) -> Array:  # noqa: ARG002
        """See `Statistic`."""
        with np.errstate(all="ignore"):
            return clip / np.maximum(lengths(rows), clip) @ rows


def _moved(scene: _Scene, statistic: Statistic, count: int) -> float:
    """The furthest that a row in another's place moves a sum, over its sensitivity; infinite for an error."""
    rest, rows = scene.rows[:2], np.concatenate([scene.rows, scene.tampered(count)])
    release = scene.release(3)

    def of_chunk(chunk: Array) -> NDArray[np.int64]:
        # Not the gate's `ChunkSum`, whose last defence would hide what the statistic does by itself.
        found = statistic.clipped_sum(scene.point, chunk, scene.case.clip)
        return clipped_sums.Grid(release.spacing).quantise(found)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sums = np.stack([of_chunk(np.concatenate([row[None], rest])) for row in rows])
    except (ArithmeticError, LookupError, ValueError, Warning):
        return inf
    values = sums * release.spacing
    return max(float(lengths(values - value).max()) for value in values) / release.sensitivity


def _tampered(long: bool) -> Finding:
    count = 1_000 if long else 12
    scenes = [_Scene.of(case, 6) for case in CASES]
    found = max(_moved(scene, scene.case.statistic, count) for scene in scenes)
    naive = scenes[0]
    broken = _moved(naive, _Trusting(naive.case.statistic.size), count)
    return Finding(
        holds=found <= 1 < broken,
        claimed="a row of any numbers, or of none, moves a sum by the sensitivity at most and stops nothing",
        found=f"{found:.4f} of it, by {2 * count} rows and more in each of {len(CASES)} cases",
        power=f"a clip that trusts its rows: {'an error' if broken == inf else f'{broken:.3g} of it'}",
    )


# Order


def _in_order(scene: _Scene, chunks: Array, threads: int) -> NDArray[np.int64]:
    rows = np.concatenate(list(chunks))
    return Records(rows, threads).sum(scene.chunk_sum(scene.case.statistic, len(rows)))


def _order(long: bool) -> Finding:
    tries, agree, differ = 20 if long else 2, True, 0
    for case in _KINDS:
        rng, scene = np.random.default_rng(2), _Scene.of(case, 64)
        chunks = scene.rows[rng.integers(0, 64, (3, CHUNK))]
        first = _in_order(scene, chunks, threads=1)
        for _ in range(tries):
            order = rng.permutation(3)
            agree &= bool((_in_order(scene, chunks[order], threads=int(rng.integers(1, 5))) == first).all())
        floats = [case.statistic.clipped_sum(scene.point, chunk, case.clip) for chunk in chunks]
        differ += not np.array_equal(reduce(np.add, floats), reduce(np.add, floats[::-1]))
    return Finding(
        holds=agree and differ > 0,
        claimed="the sum is the same to the last bit for every order of chunks and number of threads",
        found=f"{'the same' if agree else 'NOT the same'}, {len(_KINDS)} statistics, {tries} orders each",
        power=f"sums of floats: {differ} of {len(_KINDS)} are not",
    )


# Cancellation


def _errors(scene: _Scene, rows: Array) -> tuple[float, float]:
    """Errors of a chunk's sum relative to the allowance: in double precision, and in single precision."""
    case, repeats = scene.case, CHUNK // len(rows)
    alone = np.stack([case.statistic.clipped_sum(scene.point, row[None], case.clip) for row in rows])
    exact = np.array([fsum(np.tile(column, repeats)) for column in alone.T])
    order = np.random.default_rng(3).permutation(repeats * len(rows)) % len(rows)
    found = case.statistic.clipped_sum(scene.point, rows[order], case.clip)
    single = alone.astype(np.float32)[order].cumsum(axis=0, dtype=np.float32)[-1]
    allowed = clipped_sums.sensitivity(0.0, case.clip, case.statistic.size, 0.0) / 2
    return float(lengths(found - exact)) / allowed, float(lengths(single - exact)) / allowed


def _cancellation(long: bool) -> Finding:
    count, pairs = 500 if long else 50, list[tuple[float, float]]()
    for case in _KINDS:
        scene = _Scene.of(case, count)
        pairs += [_errors(scene, scene.rows), _errors(scene, scene.tampered(count))]
    found, broken = np.max(pairs, axis=0).tolist()  # which is NaN if any is
    return Finding(
        holds=found <= 1 < broken,
        claimed="a chunk's sum is off its records' by no more than the sensitivity allows for",
        found=f"{found:.2g} of it, rows of any size in any order, {len(_KINDS)} statistics",
        power=f"in single precision: {broken:.2g} of it",
    )


# Answers


def _on_grid(answers: Array, release: NoisySum) -> bool:
    integers = np.rint(answers * release.divisor / release.spacing)
    return bool(
        np.isfinite(integers).all()
        and np.abs(integers).max() < 2**53
        and (integers * release.spacing / release.divisor == answers).all()
    )


def _answers(long: bool) -> Finding:
    tries, agree, missed = 200 if long else 2, True, 0
    for case in CASES:
        scene = _Scene.of(case, 5)
        rows = np.concatenate([scene.rows, scene.tampered(5)])
        release = scene.release(len(rows))
        for _ in range(tries):
            gate = Gate(Records(rows, 1), {"gradient": case.statistic}, [release])
            answer = gate.mean(scene.point)
            agree &= _on_grid(answer, release)
            missed += not _on_grid(answer * (1 + 2.0**-52), release)
    return Finding(
        holds=agree and missed > 0,
        claimed="every answer is a point of its public grid, over its divisor",
        found=f"{'all' if agree else 'NOT all'} of {tries * len(CASES)}, tampered rows among the others",
        power=f"off it by one bit: {missed} are not",
    )


SECTION = Section(
    "Floating point",
    f"""\
Every statistic on rows with zeros, denormal numbers, numbers near the ends of float64, infinities and NaN, as
somebody could put them into the store past the upload, which refuses them. Chunks have {CHUNK:,} rows.""",
    (
        Line("float-tampered", "rows that no upload lets in", _tampered),
        Line("float-order", "the order of summation", _order),
        Line("float-cancellation", "rounding and cancellation in a chunk", _cancellation),
        Line("float-grid", "the last bits of answers", _answers),
    ),
)
