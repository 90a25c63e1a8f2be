"""The alarm for answers that are far better than their plan forecast."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from privest.estimators.frechet_mean import column_means
from privest.estimators.frechet_mean.column_means import ColumnsMean
from testing.forecast_alarm import TooGoodError
from testing.ordinary_columns import Case, answers, sets_of_columns, single_columns

CASES = {case.name: case for case in chain(single_columns(), sets_of_columns())}


def shorter(monkeypatch: pytest.MonkeyPatch, *, stated: bool) -> None:
    """Plant a fault: the run states a tenth of its intervals, with what it assumes or without."""
    honest = column_means.run

    def run(*arguments: object) -> ColumnsMean:
        found = honest(*arguments)  # pyright: ignore[reportArgumentType]
        uncertainty = found.uncertainty if stated else replace(found.uncertainty, unknown=())
        return replace(found, half_widths=found.half_widths / 10, uncertainty=uncertainty)

    monkeypatch.setattr(column_means, "run", run)


@pytest.mark.few(17)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_no_ordinary_answer_is_far_better_than_its_forecast(case: Case) -> None:
    answers(case, 3, seed=11)


@pytest.mark.parametrize("name", ["share 0.05", "uniform", "age, bmi, three rare", "twenty yes .05"])
def test_an_interval_that_is_too_short_raises_the_alarm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter(monkeypatch, stated=True)
    with pytest.raises(TooGoodError, match="where the plan forecast"):
        answers(CASES[name], 1, seed=11)


def test_a_clipped_column_that_does_not_say_so_raises_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = CASES["normal, bounds 100×"]
    shorter(monkeypatch, stated=False)
    with pytest.raises(TooGoodError):
        answers(wide, 1, seed=11)


def test_a_clip_beside_a_share_does_not_excuse_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, share = CASES["normal, bounds 100×"], CASES["share 0.05"]
    both = Case("", np.hstack([wide.rows, share.rows]), (*wide.columns, *share.columns))
    answers(both, 1, seed=11)
    shorter(monkeypatch, stated=True)
    with pytest.raises(TooGoodError, match=r"^c1 "):
        answers(both, 1, seed=11)
