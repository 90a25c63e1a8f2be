"""Whether anything but released numbers tells two worlds apart: what gates are asked, and how runs end."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from math import isnan
from typing import Any
from unittest.mock import patch

import numpy as np

from audit.lines import Finding, Line, Section
from audit.questions import Question, every, usual, worlds
from privest.arrays import Array
from privest.data.records import Records
from privest.privacy.gate import ChunkSum, Gate
from privest.privacy.oracle import Oracle
from privest_service.estimates.plans import run_plan
from testing.noise import ScaledNoise

ADAPTIVE = "spider"
"""The solver whose number of answers follows from what was released."""

_ENDS = ("low", "high")
"""Names of the ends of intervals."""


def masked(value: Any) -> Any:
    """The form of what JSON can hold: names, lengths and texts, of each number that it is one.

    The end of a quantile's interval is one too where nobody knows it, as released numbers have it.
    """
    if isinstance(value, dict):
        ends = _ENDS if "level" in value else ()
        return {
            name: "a number" if part is None and name in ends else masked(part)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [masked(part) for part in value]
    if isinstance(value, float):
        return "not a number" if isnan(value) else "a number"
    return "a number" if type(value) is int else value


def masked_job(job: dict[str, Any]) -> dict[str, Any]:
    """An answered job, its estimate in form.

    What its run found out of the error is left out. The lines `outcomes` and `answers-alone` see to it that
    all of that, words too, follows from released numbers.
    """
    return job | {"estimate": masked(job["estimate"]), "uncertainty": "…", "warnings": "…"}


@dataclass
class _Watched(Oracle):
    """A gate that notes what it is asked; what it is told to answer, it does, once it has answered itself.

    Attributes:
        gate: over rows.
        asked: so far.
        answers: so far.
        told: what to answer, of another run.
    """

    gate: Gate
    asked: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    told: Iterator[Any] | None = None

    @property
    def remaining(self) -> int:
        return self.gate.remaining

    @property
    def streams(self) -> "_Watched":
        return self

    @property
    def unused(self) -> int:
        return self.gate.unused

    def pick(self, count: int) -> int:
        return self._answer(f"pick {count}", self.gate.pick(count))

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        return self._answer(f"mean {statistic} {point!r}", self.gate.mean(point, statistic))

    def extend(self, stream: str, point: Any, records: int, *, anew: bool = False) -> None:
        self.gate.extend(stream, point, records, anew=anew)
        self._answer(f"extend {stream} {records} {anew} {point!r}", None)

    def prefix(self, stream: str) -> Array:
        return self._answer(f"prefix {stream}", self.gate.prefix(stream))

    def _answer(self, asked: str, found: Any) -> Any:
        self.asked.append(asked)
        self.answers.append(found)
        return found if self.told is None else next(self.told)


@dataclass
class Seen:
    """What was seen of one run.

    Attributes:
        end: its answer in form, or the name of what stopped it.
        uncertainty: in full; its words too follow from what was released.
        warned: words that a worker would have logged.
        gates: of its datasets.
    """

    end: Any
    uncertainty: Any
    warned: list[str]
    gates: list[_Watched]

    @property
    def asked(self) -> list[str]:
        """Names of what each gate was asked, in order."""
        return [" ".join(one.split()[:2]) for gate in self.gates for one in gate.asked]

    @property
    def in_full(self) -> list[list[str]]:
        """What each gate was asked, and at which points."""
        return [gate.asked for gate in self.gates]

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that two worlds must have in common."""
        return self.end, self.warned, self.asked, [gate.gate.answered for gate in self.gates]


def run(question: Question, rows: Array, told: "Seen | None" = None) -> Seen:
    """Answer a question on rows, with what gates answered in another run if that is given."""
    shape = question.shape
    parts = getattr(question.plan, "parts", [question.plan])
    gates = [
        _Watched(
            Gate(
                Records(each, threads=1, recipe=question.recipe),
                question.plan.statistics,
                part.releases,
                ScaledNoise(order=np.arange),
            ),
            told=iter(told.gates[place].answers) if told else None,
        )
        for place, (each, part) in enumerate(
            zip([rows, *[usual(shape)] * (question.datasets - 1)], parts, strict=True)
        )
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        uncertainty = None
        try:
            answer = run_plan(question.kind.estimator, question.plan, gates)
            uncertainty = answer.pop("uncertainty")
            end = masked(answer)
        except Exception as error:  # as a worker would
            end = type(error).__name__
    return Seen(end, uncertainty, sorted({str(warning.message) for warning in warned}), gates)


_questions = cache(lambda: tuple(every()))
_clipped = ChunkSum._clipped


def _stopped(self: ChunkSum, rows: Array) -> Array:
    if (np.abs(rows) > 1e100).any():
        raise FloatingPointError
    return _clipped(self, rows)


def _apart(questions: Iterable[Question], long: bool, differ: Callable[[Question, Array], bool]) -> list[str]:
    """Name the questions and worlds in which a run differs from the usual world."""
    return [
        f"{question} ({name})"
        for question in questions
        for name, rows in worlds(question.shape, together=not long)
        if differ(question, rows)
    ]


def _ends_apart(question: Question, rows: Array) -> bool:
    """Whether a run ends otherwise, or its uncertainty follows from anything but gates' answers."""
    one = run(question, usual(question.shape))
    if isinstance(one.end, str) or run(question, rows).outcome != one.outcome:
        return True
    return run(question, rows, one).uncertainty != one.uncertainty


def _asks_apart(question: Question, rows: Array) -> bool:
    """Whether a gate is asked anything else where all of its answers are those of the other world."""
    one = run(question, usual(question.shape))
    other = run(question, rows, one)
    same = all(
        getattr(one, each) == getattr(other, each) for each in ("end", "uncertainty", "warned", "in_full")
    )
    return isinstance(one.end, str) or not same


def _line(
    name: str, about: str, claimed: str, differ: Callable[[Question, Array], bool], adaptive: bool
) -> Line:
    def attack(long: bool) -> Finding:
        asked = [question for question in _questions() if (question.solver == ADAPTIVE) == adaptive]
        apart = _apart(asked, long, differ)
        with patch.object(ChunkSum, "_clipped", _stopped):
            seen = _apart(asked if long else asked[::25], long, differ)
        return Finding(
            holds=not apart and bool(seen),
            claimed=claimed,
            found="; ".join([f"{len(apart)} of {len(asked)} questions tell worlds apart", *apart[:3]]),
            power=f"where records above 1e100 stop a run: {len(seen)}",
        )

    return Line(name, about, attack)


SECTION = Section(
    "What runs tell beside their answers",
    """\
All questions that the interface offers, as its request models name them: every space and a table, every
solver with every loss, every other choice by itself. The worlds differ in records that are huge, zero,
denormal, tiny, not known, duplicates, opposite, far out, on the cut locus, or the only one of their class;
in the quick form in all of them at once.""",
    (
        _line(
            "outcomes",
            "how runs end, and what gates are asked, in every kind, solver and loss",
            "the same forms of answers, questions to gates in the same order, ends and warnings; and where "
            "gates answer the same, the same uncertainty",
            _ends_apart,
            adaptive=False,
        ),
        _line(
            "next-questions",
            f"what `{ADAPTIVE}` asks its gate, given what that answered",
            "the same answers, the same next question",
            _asks_apart,
            adaptive=True,
        ),
    ),
)
