"""What decides an estimate: told one dataset's noisy answers over another's rows, it must be the first's."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from audit.estimates import CASES, Case
from audit.lines import Finding, Line, Section
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata, PointsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.privacy.gate import Gate

Run = Callable[[Any, Gate], Any]
"""An estimator's function that runs a plan."""


class _Listening(Gate):
    """Keeps what it was asked and what it answered, or repeats what another gate did."""

    def __init__(self, plan: Any, rows: Array, told: "_Listening | None" = None) -> None:
        super().__init__(Records(rows, threads=1), plan.statistics, plan.releases)
        self._told = told
        self.asked = list[bytes]()
        self.answers = list[Any]()

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """See `Gate`."""
        return self._keep((point, statistic), super().mean(point, statistic))

    def prefix(self, stream: str) -> Array:
        """See `Gate`."""
        return self._keep(stream, super().prefix(stream))

    def extend(self, stream: str, point: Any, records: int, *, anew: bool = False) -> None:
        """See `Gate`."""
        self._keep((stream, point, records, anew), super().extend(stream, point, records, anew=anew))

    def pick(self, count: int) -> int:
        """See `Gate`."""
        return self._keep(count, super().pick(count))

    def _keep(self, question: Any, answer: Any) -> Any:
        self.asked.append(pickle.dumps(question))
        told = self._told.answers if self._told else []
        self.answers.append(told[len(self.answers)] if len(self.answers) < len(told) else answer)
        return self.answers[-1]


def _same(case: Case, run: Run) -> bool:
    """Whether an estimate, and all questions on the way to it, are those of the answers."""
    rng = np.random.default_rng(4)
    rows, others, alike = (case.shape.dummy(case.shape.n, rng) for _ in range(3))
    first = _Listening(case.plan, rows)
    estimate = pickle.dumps(run(case.plan, first))
    for again in (others, np.repeat(alike[:1], len(alike), axis=0), rows[::-1]):
        gate = _Listening(case.plan, again, first)
        if pickle.dumps(run(case.plan, gate)) != estimate or gate.asked != first.asked:
            return False
    return True


def _cases() -> Iterator[Case]:
    yield from CASES
    spec = FrechetMeanSpec(solver="rsvrg", rate=0.2, epochs=2, steps=3, restarts=2)
    yield Case("rsvrg", "", FRECHET_MEAN, spec, PointsMetadata(100, {"name": "sphere", "dim": 3}))
    labelled = LabelledMetadata(2_000, ("a", "b"), "y", ("0", "1"), 2.0)
    yield Case("spider", "", LOGISTIC_REGRESSION, LogisticSpec("spider", loss="sigmoid"), labelled)
    spec = RobustPCASpec(2, start="sketch", center=True, explained=True, consensus=True, steps=3)
    yield Case("everything", "", ROBUST_PCA, spec, VectorsMetadata(100, 5))


def _with_a_record(run: Run) -> Run:
    """The mutant that answers with a record besides."""
    return lambda plan, gate: (run(plan, gate), gate._records._rows[:1])


def _retold(long: bool) -> Finding:  # noqa: ARG001 - nothing here is random
    cases = list(_cases())
    same = [_same(case, case.estimator.run) for case in cases]
    seen = [not _same(case, _with_a_record(case.estimator.run)) for case in cases]
    return Finding(
        holds=all(same) and all(seen),
        claimed="an estimate and all questions follow from the plan and noisy answers, bit for bit",
        found=f"those of {sum(same)} of {len(cases)} do, over three other datasets each",
        power=f"with a record besides: {sum(seen)} do not",
    )


SECTION = Section(
    "What decides an estimate",
    """\
A run is made again over other rows, with the first run's noisy answers in place of its own. A start at a
record, a step or an end by what rows are like, a number without noise in the answer: each would show.""",
    (Line("answers-alone", "whether anything of the rows counts but what was released", _retold),),
)
