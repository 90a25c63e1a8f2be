"""Estimates as numpy arrays, with their uncertainty and their price, and as small tables for reading."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from privest_client import models, scikit_learn
from privest_client.card import card_of
from privest_client.features import columns_used, design, feature_names, filled, indicators, names_to_ask
from privest_client.frames import beside, framed
from privest_client.plotting import drawn
from privest_client.reading import Cells, Shown, brief, with_error
from privest_client.showing import Covered, lines_of_answer

Array = NDArray[np.float64]

Numbers = dict[str, list[Any]]
"""An answer as a table, by its columns: names, and values with the ends of intervals where there are some."""


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """What is the same of all answers, and all there is of those that have no class of their own here.

    Attributes:
        job: as the service tells it; the answer is its `estimate`.
        schema: public, of the dataset that was asked about, where that is known.
        model: the model of that job, by which `make openapi` finds the class of an estimator's answers.
    """

    job: Any
    schema: Mapping[str, Any] | None = None
    model: ClassVar[Any]

    @property
    def id(self) -> str:
        """The id of the job, under which the answer can be read again."""
        return self.job.id

    @property
    def privacy(self) -> models.Privacy:
        """What the run guarantees."""
        return self.job.privacy

    @property
    def charges(self) -> list[models.ChargeView]:
        """What accounts were charged."""
        return self.job.charges

    @property
    def uncertainty(self) -> Any:
        """How far off the answer may be, from what (`of`, in words), and by what."""
        return self.job.uncertainty

    @property
    def forecast(self) -> Any:
        """What the plan foretold of the error, before any row was read."""
        return self.job.forecast

    @property
    def warnings(self) -> list[str]:
        """What the plan and the run want the analyst to know."""
        return self.job.warnings

    @property
    def receipt(self) -> models.Receipt | None:
        """The service's signature under charge and answer."""
        return self.job.receipt

    @property
    def free(self) -> bool:
        """Whether nothing was charged: an answer of before, or one from synthetic rows."""
        return self.job.reused or self.job.dummy

    @property
    def card(self) -> dict[str, Any]:
        """What goes with the answer wherever it goes: privacy, unit, errors, receipt, software."""
        return card_of(self.job, self.schema)

    def interval(self, level: float = 0.95) -> dict[str, tuple[Any, Any]]:
        """The ends of an interval for each name, which hold the true values with probability `level` each.

        Raises:
            ValueError: what was released tells no interval of this level.
        """
        numbers = self._numbers(level)
        if "low" in numbers:
            ends = zip(numbers["low"], numbers["high"], strict=True)
            return dict(zip(numbers["name"], ends, strict=True))
        if level != 0.95:
            raise ValueError("of this answer only the distance is known that 95 % of runs do not exceed")
        return {"distance": (0.0, self.job.uncertainty.radius_95)}

    def to_frame(self, backend: str | None = None) -> Any:
        """The answer as a frame, with intervals of 95 % where there are some.

        Args:
            backend: `pandas`, `polars` or `pyarrow`; by default the first of these that is installed.

        Raises:
            ImportError: none is.
        """
        return framed(self._numbers(0.95), backend)

    def plot(self) -> Any:
        """The answer as a picture: matplotlib's axes, one or several.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return drawn(self._drawn(), self._title())

    def save(self, path: str | Path) -> None:
        """Write the answer with its card into a JSON file, from which `privest_client.load` has it again."""
        content = {
            "card": self.card,
            "schema": self.schema,
            "job": self.job.model_dump(mode="json", by_alias=True),
        }
        Path(path).write_text(json.dumps(content, indent=2) + "\n")

    def _numbers(self, level: float) -> Numbers:
        """The answer as a table; where the noise in each number is known, with intervals of this level."""
        return _entries(_first_array(self.job.estimate))

    def _drawn(self) -> Numbers:
        """What a picture shows of that table."""
        return self._numbers(0.95)

    def _title(self) -> str:
        about = self.job.receipt.statement.dataset if self.job.receipt else ""
        about = ", ".join(about) if isinstance(about, list) else about
        return f"Answer of {self.job.kind}" + (f" on {about}" if about else "")

    def _cells(self) -> Cells:
        numbers = self._numbers(0.95)
        if "low" not in numbers:
            return numbers
        shown = [
            with_error(value, half)
            if (half := _half(low, value, high)) is not None
            else (brief(value), "none")
            for low, value, high in zip(numbers["low"], numbers["value"], numbers["high"], strict=True)
        ]
        return {"name": numbers["name"], "value": [a for a, _ in shown], "± in 95 %": [b for _, b in shown]}

    def _covered(self) -> Covered:
        """What its figures cover."""
        return Covered()

    def _said(self) -> list[tuple[str, str]]:
        return lines_of_answer(self.job, self._covered())


def _first_array(estimate: Any) -> Array:
    """The first field of an answer that holds numbers."""
    for value in ({} if estimate is None else estimate.model_dump()).values():
        try:
            return np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            continue
    return np.empty(0)


def _entries(values: Array) -> Numbers:
    """An array by places: a matrix row by row, anything else number by number."""
    if values.ndim == 2:
        return _directions([str(place) for place in range(len(values))], values, "column")
    names = [", ".join(map(str, place)) for place in np.ndindex(values.shape)]
    return {"name": names, "value": values.ravel().tolist()}


def _directions(names: Sequence[str], basis: Array, called: str = "direction") -> Numbers:
    found: Numbers = {"name": list(names)}
    return found | {f"{called} {place + 1}": column.tolist() for place, column in enumerate(basis.T)}


def _half(low: Any, value: Any, high: Any) -> Any:
    """Half the width of an interval: of dates in days, in words; None where no interval is stated."""
    if low is None:
        return None
    if isinstance(value, str):
        days = max(_day(high) - _day(value), _day(value) - _day(low))
        return f"{days.days} days"
    return max(high - value, value - low)


def _day(text: str) -> date:
    return date.fromisoformat(text)


def _times(level: float) -> float:
    """Standard deviations on either side, within which a normal variate is with this probability.

    Raises:
        ValueError: it is no probability.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


@dataclass(frozen=True, repr=False)
class FrechetMean(Estimate):
    """A private mean: of columns of a table, or on a manifold."""

    model = models.FrechetMeanJob

    @property
    def point(self) -> Array:
        """The mean, of the shape of one record; of a table it is in standardised units."""
        return np.array(self.job.estimate.point)

    @property
    def columns(self) -> dict[str, float | str]:
        """Means of a table's columns in their own units, by name, and shares of categories; else empty."""
        return {each.name: each.value for each in self._columns()}

    @property
    def standard_deviation(self) -> float:
        """How far it may be off, root mean square; see `uncertainty` for what that covers."""
        return self.job.uncertainty.standard_deviation

    @property
    def radius_95(self) -> float:
        """How far it is off in 95 % of runs at most."""
        return self.job.uncertainty.radius_95

    def _columns(self) -> Sequence[Any]:
        return getattr(self.job.estimate, "columns", None) or ()

    def _covered(self) -> Covered:
        if not self._columns():
            return Covered()
        return Covered(
            "by noise and clipping, from the mean of these very records",
            together="all columns at once, in halves of the widths of their bounds",
        )

    def _said(self) -> list[tuple[str, str]]:
        names = {each.name for each in self._columns()}
        features = [name.removesuffix(" filled") for name in names if name.endswith(" filled")]
        fills = filled([name for name in features if name in names], self.schema)
        told = [f"{name} filled: every gap counts as {brief(value)}" for name, value in fills.items()]
        return [*super()._said(), *([("with gaps", "; ".join(told))] if told else [])]

    def _numbers(self, level: float) -> Numbers:
        columns = self._columns()
        if not columns:
            return _entries(self.point)
        factor = _times(level) / _times(0.95)
        ends = [_wider(each, factor) for each in columns]
        return {
            "name": [each.name for each in columns],
            "value": [each.value for each in columns],
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
            "kind": [each.kind for each in columns],
        }


def _wider(column: Any, factor: float) -> tuple[Any, Any]:
    """The interval of a column's mean, so many times as wide; ends of shares stay within 0 and 1."""
    if factor == 1 or column.low is None:
        return column.low, column.high
    if isinstance(column.value, str):
        value = _day(column.value)
        days = max(_day(column.high) - value, value - _day(column.low)).days
        reach = timedelta(days=int(-(-days * factor // 1)))
        return (value - reach).isoformat(), (value + reach).isoformat()
    reach = factor * _half(column.low, column.value, column.high)
    low, high = column.value - reach, column.value + reach
    return (max(low, 0.0), min(high, 1.0)) if column.kind == "share" else (low, high)


@dataclass(frozen=True, repr=False)
class Subspace(Estimate):
    """A private subspace: of robust PCA."""

    model = models.RobustPCAJob

    @property
    def basis(self) -> Array:
        """(d, r) with orthonormal columns."""
        return np.array(self.job.estimate.basis)

    @property
    def feature_names(self) -> list[str]:
        """The names of the rows of `basis`: of a table's columns and indicators; else their places."""
        names = getattr(self.job.estimate, "columns", None)
        return list(names) if names else [str(place) for place in range(len(self.basis))]

    @property
    def loadings(self) -> dict[str, Array]:
        """How each feature points along each direction, by its name."""
        return dict(zip(self.feature_names, self.basis, strict=True))

    @property
    def center(self) -> Array | None:
        """(d,) if one was estimated."""
        center = self.job.estimate.center
        return None if center is None else np.array(center)

    @property
    def explained(self) -> Array | None:
        """(r,) share of variance along each column, if it was estimated."""
        explained = self.job.estimate.explained
        return None if explained is None else np.array(explained)

    @property
    def standard_deviation(self) -> float:
        """Angle by which it may be off, root mean square, in radians; see `uncertainty`."""
        return self.job.uncertainty.standard_deviation

    @property
    def radius_95(self) -> float:
        """Angle by which it is off in 95 % of runs at most."""
        return self.job.uncertainty.radius_95

    def to_sklearn(self) -> Any:
        """The directions as a fitted `sklearn.decomposition.PCA`, with the card as `privest_card_`.

        On a table it is the last step of a pipeline, which takes frames with the columns asked about.

        Raises:
            ImportError: scikit-learn is not installed.
        """
        return scikit_learn.pca(self)

    def _covered(self) -> Covered:
        return Covered(unit=" rad")

    def _said(self) -> list[tuple[str, str]]:
        first = [self.feature_names[place] for place in np.abs(self.basis).argmax(axis=0)]
        yes_or_no = indicators(self.schema)
        led = [f"direction {at} by {name}" for at, name in enumerate(first, 1) if name in yes_or_no]
        why = "yes or no differs more than most numbers do within their bounds; columns=… may leave it out"
        return [*([("led", f"{', '.join(led)}: {why}")] if led else []), *super()._said()]

    def _numbers(self, level: float) -> Numbers:
        return _directions(self.feature_names, self.basis)


@dataclass(frozen=True, repr=False)
class Completion(Estimate):
    """The private subspace that vectors with gaps lie in."""

    model = models.MatrixCompletionJob

    @property
    def basis(self) -> Array:
        """(d, r) with orthonormal columns."""
        return np.array(self.job.estimate.basis)

    @property
    def radius_95(self) -> float:
        """Angle between it and the subspace that 95 % of runs do not exceed."""
        return self.job.uncertainty.radius_95

    @property
    def held_out_error(self) -> float | None:
        """Error on known entries that were held out, in halves of declared ranges, if it was estimated."""
        return self.job.estimate.held_out_error

    @property
    def column_means_error(self) -> float | None:
        """The same error of the columns' means alone."""
        return self.job.estimate.column_means_error

    def complete(self, vector: Array) -> Array:
        """A vector whose unknown entries, NaN, are filled in: least squares on those that are known.

        Where the answer has means of the columns, its own mean and the ridge of the answer are part of that.

        Args:
            vector: (d,) in the columns' own units.
        """
        known, found = np.isfinite(vector), self.job.estimate
        centers, scales = np.array(found.centers or 0.0), np.array(found.scales or 1.0)
        left = (vector - centers) / scales
        if found.ridge is None:
            weights, *_ = np.linalg.lstsq(self.basis[known], left[known])
            return np.where(known, vector, centers + scales * (self.basis @ weights))
        own = left[known].sum() / (known.sum() + 1)  # as the service fits: drawn to 0 by one entry
        basis = self.basis[known]
        weights = np.linalg.solve(basis.T @ basis + np.diag(found.ridge), basis.T @ (left[known] - own))
        return np.where(known, vector, centers + scales * (own + self.basis @ weights))

    def _covered(self) -> Covered:
        return Covered(unit=" rad")

    def _numbers(self, level: float) -> Numbers:
        names = getattr(self.job.estimate, "columns", None) or [str(at) for at in range(len(self.basis))]
        return _directions(names, self.basis)


_TRUTHS: dict[str, bool] = {"false": False, "true": True}
"""Classes of a label that is a column of truth values, as the service writes them."""


@dataclass(frozen=True, repr=False)
class LinearClassifier(Estimate):
    """A private linear classifier."""

    model = models.LogisticRegressionJob

    @property
    def classes(self) -> list[str]:
        """A positive score means the second of two, the highest one of more."""
        return self.job.estimate.classes

    @property
    def feature_names(self) -> list[str]:
        """The names of the coefficients: columns, `column=category`, `column missing`; else their places."""
        told = getattr(self.job.estimate, "features", None)
        if not told and self.schema and self.schema["kind"] == "labelled":
            told = feature_names(self.schema)
        return list(told) if told else [str(place) for place in range(self.coefficients.shape[-1])]

    @property
    def coefficients(self) -> Array:
        """(d,), or (classes, d), in the units of the uploaded features."""
        return np.array(self.job.estimate.coefficients)

    @property
    def intercept(self) -> Array:
        """The intercept, of shape () or (classes,)."""
        return np.array(self.job.estimate.intercept)

    @property
    def standard_errors(self) -> Array:
        """Standard errors of the coefficients and, last, the intercept.

        They include the noise, and the sampling of rows where its share is known.
        """
        noise = np.array(self.job.estimate.noise.standard_errors)
        if self.job.estimate.sampling is None:
            return noise
        return np.hypot(noise, np.array(self.job.estimate.sampling.standard_errors))

    @property
    def covariance(self) -> Array | None:
        """(d + 1, d + 1) covariance by the noise, intercept last; of more classes one each; None of many."""
        told = self.job.estimate.noise.covariance
        return None if told is None else np.array(told)

    def scores(self, rows: Any) -> Array:
        """(n,) or (n, classes) scores of rows.

        Args:
            rows: a frame with the columns that were asked about, or an array (n, d) of features.

        Raises:
            SchemaMismatch: the frame lacks columns, or holds what the schema does not declare.
        """
        return design(rows, self.feature_names, self.schema) @ self.coefficients.T + self.intercept

    @property
    def labels(self) -> list[str | bool]:
        """The classes as a frame has them: True and False where the label is a column of truth values."""
        columns = self.schema["columns"] if self.schema and self.schema["kind"] == "table" else ()
        # A category may be called so, too.
        if not columns or any(_TRUTHS.keys() <= set(column.get("categories") or ()) for column in columns):
            return [*self.classes]
        return [_TRUTHS.get(each, each) for each in self.classes]

    def predict(self, rows: Any) -> Any:
        """The likeliest of `labels` for each row; see `scores` for what rows may be.

        Returns:
            A series of the frame's library, with its index where it has one; of an array an array.
        """
        scores = self.scores(rows)
        places = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return beside(rows, np.array(self.labels)[places], self.label or "label")

    def predict_proba(self, rows: Any) -> Array:
        """(n, classes) chances of each row's classes; of the loss `logistic`, as others tell sides alone."""
        scores = self.scores(rows)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=-1)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def to_sklearn(self) -> Any:
        """A fitted `sklearn.linear_model.LogisticRegression`, with the card as `privest_card_`.

        It takes arrays of features, or frames with columns of these names, as scikit-learn does. On a table
        it is the last step of a pipeline, which takes frames with the columns that were asked about.

        Raises:
            ImportError: scikit-learn is not installed.
        """
        return scikit_learn.logistic_regression(self)

    @property
    def label(self) -> str | None:
        """The column of a table that it tells; None of labelled rows, which have declared theirs."""
        return getattr(self.job.estimate, "label", None)

    def _said(self) -> list[tuple[str, str]]:
        told = "; ".join(f"{column}: {', '.join(each)}" for column, each in self.references.items())
        return [*([("relative to", told)] if told else []), *super()._said()]

    @property
    def references(self) -> dict[str, list[str]]:
        """Categories that coefficients of the others are relative to, by column; empty if there are none."""
        told = getattr(self.job.estimate, "references", None) or ()
        return {each.column: [*each.categories] for each in told}

    @property
    def features(self) -> list[str] | None:
        """The columns of a table that it tells the label by; None of labelled rows."""
        if self.schema is None or self.schema["kind"] != "table":
            return None
        return columns_used(self.feature_names, self.schema)

    @property
    def names_to_ask(self) -> list[str] | None:
        """The features of a table by the names of a query for the same ones; None of labelled rows."""
        return None if self.features is None else names_to_ask(self.feature_names, self.schema or {})

    def _covered(self) -> Covered:
        sampled = self.job.estimate.sampling is not None
        few = " and having few records" if sampled else " alone"
        return Covered(f"by noise{few}, and not by clipping and a penalty", sampled)

    def _drawn(self) -> Numbers:
        """Leave intercepts of a table out: they are where all columns are 0, and often far from all else."""
        numbers = self._numbers(0.95)
        if self.features is None:
            return numbers
        each = len(self.feature_names) + 1
        shown = [place for place in range(len(numbers["name"])) if (place + 1) % each]
        return {part: [values[place] for place in shown] for part, values in numbers.items()}

    def _numbers(self, level: float) -> Numbers:
        names = [*self.feature_names, "intercept"]
        if self.coefficients.ndim == 2:
            names = [f"{name}, {each}" for each in self.classes for name in names]
        intercept = np.atleast_1d(self.intercept)[:, None]
        values = np.hstack([np.atleast_2d(self.coefficients), intercept]).ravel()
        reach = _times(level) * self.standard_errors.ravel()
        return {
            "name": names,
            "value": values.tolist(),
            "low": (values - reach).tolist(),
            "high": (values + reach).tolist(),
        }


@dataclass(frozen=True, repr=False)
class SelectedClassifier(LinearClassifier):
    """The classifier that was chosen among several."""

    model = models.ClassifierSelectionJob

    @property
    def winner(self) -> int:
        """Its place among the candidates, of which the first is 0."""
        return self.job.estimate.winner

    @property
    def candidate_scores(self) -> Array:
        """(candidates,) noisy shares of right answers of small fits; (0,) where there was no choice.

        They are of the records that the fits saw, and good for the choice alone.
        """
        return np.array(self.job.estimate.scores)


@dataclass(frozen=True, repr=False)
class Score(Estimate):
    """The private score of a classifier."""

    model = models.ClassifierScoreJob

    @property
    def value(self) -> float:
        """The share of right answers, or the area under the ROC curve."""
        return self.job.estimate.value

    @property
    def standard_error(self) -> float:
        """Standard error from the noise and from the sampling of rows."""
        return float(np.hypot(self.job.estimate.standard_error, self.job.estimate.sampling_error))

    def _covered(self) -> Covered:
        return Covered(
            "by noise and having few records, from the score on all records like these", sampling=True
        )

    @property
    def these_records(self) -> tuple[float, float]:
        """Ends of the 95 % interval of the score on these very records: it covers the noise alone."""
        return self._ends("these_records", self.job.estimate.standard_error)

    @property
    def population(self) -> tuple[float, float]:
        """Ends of the 95 % interval of the score on new records: it covers noise and the sampling of rows."""
        return self._ends("population", self.standard_error)

    def _ends(self, name: str, error: float) -> tuple[float, float]:
        """Return a stated interval, or of an older service the one of a standard error."""
        stated, reach = getattr(self.job.estimate, name, None), _times(0.95) * error
        return (self.value - reach, self.value + reach) if stated is None else (stated.low, stated.high)

    def _numbers(self, level: float) -> Numbers:
        factor = _times(level) / _times(0.95)
        low, high = (self.value + factor * (end - self.value) for end in self.population)
        return {
            "name": [self.job.estimate.metric],
            "value": [self.value],
            "low": [max(0.0, low)],
            "high": [min(1.0, high)],
        }


@dataclass(frozen=True)
class Kind:
    """A kind of estimate.

    Attributes:
        name: in paths.
        request: what it is asked with.
        plan: what its plan is.
        job: what answers the request.
        answer: what its answer becomes.
    """

    name: str
    request: type[BaseModel]
    plan: type[BaseModel]
    job: type[BaseModel]
    answer: type[Estimate]


@dataclass(frozen=True, repr=False)
class Bounds(Estimate):
    """Private bounds of columns, or of distances: where most records are, and quantiles."""

    model = models.BoundsJob

    @property
    def bounds(self) -> dict[str, dict[str, float | str]]:
        """`low` and `high` to declare, by name: hardly more than one record in a hundred is beyond either.

        Of a table they may be given as `columns` of a next upload.
        """
        return {each.name: {"low": each.low, "high": each.high} for each in self.job.estimate.places}

    def quantiles(self, name: str) -> Numbers:
        """Quantiles of a column, or of `distance`, with intervals of 95 %, as a table by its columns.

        Raises:
            KeyError: the answer tells of no such column.
        """
        told = {each.name: each.quantiles for each in self.job.estimate.places}[name]
        return {part: [getattr(each, part) for each in told] for part in ("level", "value", "low", "high")}

    def plot(self) -> Any:
        """Medians between the bounds to declare: matplotlib's axes, one or several.

        Raises:
            ImportError: matplotlib is not installed.
        """
        places = self.job.estimate.places
        told = {"value": "center", "low": "low", "high": "high"}
        shown: Numbers = {part: [getattr(each, name) for each in places] for part, name in told.items()}
        return drawn(
            {"name": [each.name for each in places], "kind": ["mean"] * len(places), **shown}, self._title()
        )

    def _numbers(self, level: float) -> Numbers:
        told = {
            "name": "name",
            "median": "center",
            "scale": "scale",
            "lower bound": "low",
            "upper bound": "high",
        }
        return {
            called: [getattr(each, part) for each in self.job.estimate.places]
            for called, part in told.items()
        }
