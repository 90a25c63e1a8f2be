"""Answers as tables: for each column, feature or score its name, its value and its interval."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privest_service.estimates.intervals import NORMAL_95, scores, standard_errors, towards
from privest_service.reports.formatting import number, numbers, rounded_up

_INTERVAL = "Interval of 95 %"


@dataclass(frozen=True)
class AnswerTable:
    """A table of numbers.

    Attributes:
        title: what it is of.
        heads: of its columns.
        rows: each with a name, a word on it, and cells.
        note: what its numbers mean.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, str, list[str]]] = field(default_factory=list[tuple[str, str, list[str]]])
    note: str = ""


def answer_tables(
    kind: str, answer: dict[str, Any], features: tuple[str, ...], fills: Mapping[str, str]
) -> list[AnswerTable]:
    """The tables of an answer whose numbers have names.

    Args:
        kind: of the question.
        answer: as the interface tells it.
        features: names of a classifier's features.
        fills: what gaps count as, by names of features, where a public value fills them.
    """
    if kind in ("logistic-regression", "classifier-selection") and features:
        return _coefficients(answer, features)
    if kind == "classifier-score":
        return [_scores(answer)]
    if kind == "bounds":
        return _bounds(answer)
    if not answer.get("columns"):
        return []
    return [_means(answer, fills) if kind == "frechet-mean" else _loadings(answer)]


def _means(answer: dict[str, Any], fills: Mapping[str, str]) -> AnswerTable:
    note = "Intervals are for the means of these records: by the noise, and by what clipping may have moved."
    table = AnswerTable("Means of columns", ("Column", "Mean", _INTERVAL), note=note)
    for each in answer["columns"]:
        share = ["share"] if each["kind"] == "share" else []
        gaps = [f"every gap counts as {fills[each['name']]}"] if each["name"] in fills else []
        if each["low"] is None:
            cells = [*written([each["value"]]), "none can be stated"]
        else:
            low, value, high = written([each[part] for part in ("low", "value", "high")])
            if not isinstance(each["value"], str):  # half an interval of dates is none
                value += f" ± {rounded_up((each['high'] - each['low']) / 2).replace(',', '')}"
            cells = [value, f"{low} to {high}"]
        table.rows.append((each["name"], ", ".join(share + gaps), cells))
    return table


def _bounds(answer: dict[str, Any]) -> list[AnswerTable]:
    note = (
        "Bounds may be declared in a next upload: hardly more than one record in a hundred is beyond either."
    )
    bounds = AnswerTable("Bounds", ("Column", "Median", "Spread", "Bounds to declare"), note=note)
    levels = [f"{100 * each['level']:g} %" for each in answer["places"][0]["quantiles"]]
    note = "So many of the records are below the value, which is in the interval of 95 % beside it."
    quantiles = AnswerTable("Quantiles", ("Column", *levels), note=note)
    for each in answer["places"]:
        low, center, high = written([each[part] for part in ("low", "center", "high")])
        bounds.rows.append((each["name"], "", [center, *written([each["scale"]]), f"{low} to {high}"]))
        told = [written([one[part] for part in ("low", "value", "high")]) for one in each["quantiles"]]
        quantiles.rows.append((each["name"], "", [f"{value} ({low} to {high})" for low, value, high in told]))
    return [bounds, quantiles]


def written(values: list[Any]) -> list[str]:
    """Values of a column, as its file might have them: numbers of one fineness, or dates.

    Thousands are not set apart. Nobody declares which columns are quantities, and a year is none.
    """
    return values if isinstance(values[0], str) else [each.replace(",", "") for each in numbers(values)]


def _loadings(answer: dict[str, Any]) -> AnswerTable:
    basis, center = np.array(answer["basis"]), answer.get("center")
    heads = [f"Direction {j + 1}" for j in range(basis.shape[1])] if basis.shape[1] > 1 else ["Loading"]
    values = basis if center is None else np.column_stack([basis, center])
    table = AnswerTable("Loadings", ("Column", *heads, *([] if center is None else ["Centre"])))
    for name, row in zip(answer["columns"], values.tolist(), strict=True):
        table.rows.append((name, "", [number(value) for value in row]))
    return table


def _coefficients(answer: dict[str, Any], features: tuple[str, ...]) -> list[AnswerTable]:
    values = np.column_stack([np.atleast_2d(answer["coefficients"]), np.atleast_1d(answer["intercept"])])
    reach = NORMAL_95 * standard_errors(answer)
    found, note = list[AnswerTable](), _relative(answer)
    for kind, row, ends in zip(towards(answer), values.tolist(), reach.tolist(), strict=True):
        heads = ("Feature", "Coefficient", _INTERVAL)
        table = AnswerTable(f"Coefficients towards “{kind}”", heads, note=note)
        for name, value, end in zip((*features, "intercept"), row, ends, strict=True):
            word = "" if len(table.rows) < len(features) else "where all features are 0"
            table.rows.append(
                (name, word, [number(value), f"{number(value - end)} to {number(value + end)}"])
            )
        found.append(table)
    return found


def _relative(answer: dict[str, Any]) -> str:
    """Return a sentence on the categories that coefficients are relative to; empty where there are none."""
    told = [f"{each['column']}: {', '.join(each['categories'])}" for each in answer.get("references") or ()]
    return f"Coefficients of categories are relative to {'; '.join(told)}." if told else ""


def _scores(answer: dict[str, Any]) -> AnswerTable:
    note = (
        "The interval for new records covers the noise and the sampling of rows, for a classifier that was "
        "not fitted to these rows. The interval for these records covers the noise alone."
    )
    table = AnswerTable("Scores", ("Score", "Value", _INTERVAL), note=note)
    for name, records, low, value, high in scores(answer):
        table.rows.append((name, records, [number(value), f"{number(low)} to {number(high)}"]))
    return table
