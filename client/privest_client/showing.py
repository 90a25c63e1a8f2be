"""What people see: bars, budgets and plans, and the schema before it is sent."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import degrees
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.prompt import Confirm

from privest_client import models
from privest_client.data import Schema, Upload
from privest_client.errors import SchemaMismatch
from privest_client.reading import Cells, Shown, plain
from privest_client.tables import Column, ShownColumns

_NOT_BOUNDED = 1e100
"""Stands for a distance that nothing bounds."""

_SHOWN = 12
"""Columns whose forecast is shown."""

_WORDS = {
    "asked": "asking",
    "requested": "waits for the owner's approval, nothing is charged yet",
    "reserved": "charged, waiting for a worker",
    "claimed": "running",
}


@contextmanager
def progress_of_job(what: str, shown: bool) -> Iterator[Callable[[str], None]]:
    """A line that tells how far a job is and for how long it has been; outside terminals one a state."""
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with _bars(shown, *columns) as bars:
        task = bars.add_task(what, total=None)
        seen = set[str]()

        def told(state: str) -> None:
            line = f"{what}: {_WORDS.get(state, state)}"
            bars.update(task, description=line)
            if shown and state not in seen and not bars.console.is_terminal:
                print(line, file=sys.stderr)
            seen.add(state)

        yield told


@contextmanager
def progress_of_upload(file: Upload, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar of bytes sent; then the service checks them."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with _bars(shown, *columns) as bars:
        task = bars.add_task(f"uploading {plain(file.name)}", total=file.size)

        def sent(count: int) -> None:
            bars.advance(task, count)
            if bars.tasks[0].completed >= file.size:
                bars.update(task, description=f"checking {plain(file.name)}")

        yield sent


def _bars(shown: bool, *columns: ProgressColumn) -> Progress:
    """Bars in terminals alone: in notebooks they would need ipywidgets, and warn where these are not."""
    console = Console(stderr=True, force_jupyter=False)
    return Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal))


def announced(schema: Schema | Shown) -> None:
    """Show a schema that was inferred."""
    shown = repr(schema) if isinstance(schema, Shown) else json.dumps(schema, indent=2)
    print(f"Everybody who may ask will see this schema:\n{shown}", file=sys.stderr)


def confirmed(schema: Schema | Shown, how: bool | Callable[[Any], bool] | None) -> None:
    """Show an inferred schema, and go on only if it is confirmed.

    Raises:
        SchemaMismatch: it is not.
    """
    if how is True:
        return
    announced(schema)
    if callable(how):
        yes = how(schema)
    elif how is None and sys.stdin.isatty():
        yes = Confirm.ask("Is that what may be known?", console=Console(stderr=True))
    else:
        raise SchemaMismatch(
            "nobody confirmed the schema, which was inferred: state it, or pass confirm=True"
        )
    if not yes:
        raise SchemaMismatch("the schema was not confirmed; nothing was sent")


class Dataset(ShownColumns, models.DatasetView):
    """A dataset as the service tells of it; printed, its columns are a small table."""

    def _title(self) -> str:
        return f"Dataset {self.id} of {self.n} records" + (f": {self.name}" if self.name else "")

    @property
    def _declared(self) -> Sequence[Column]:
        declared = self.schema_.model_dump(mode="json", by_alias=True)
        return declared["columns"] if self.kind == "table" else ()

    def _cells(self) -> Cells:
        return super()._cells() if self._declared else {}

    def _said(self) -> list[tuple[str, str]]:
        declared = self.schema_.model_dump(mode="json", by_alias=True, exclude_none=True)
        if self.kind == "table":
            declared = {"unit": declared["unit"]} if "unit" in declared else {}
        said = [(name, str(value)) for name, value in declared.items()]
        outside = self.values_outside()
        return (
            [*said, ("outside the bounds", f"{outside}; they count as the nearer bound")] if outside else said
        )

    def values_outside(self) -> str:
        """Return the values outside declared bounds by columns, as a text; empty if there are none.

        Only the answer to an upload counts them.
        """
        counts = self.outside_bounds or {}
        shown = ", ".join(f"{count:,} of {name}" for name, count in [*counts.items()][:_SHOWN])
        return shown + (", …" if len(counts) > _SHOWN else "")


@dataclass(frozen=True, repr=False)
class Budget(Shown):
    """Where a budget stands.

    Attributes:
        told: as the service tells it.
    """

    told: models.Budget

    @property
    def remaining(self) -> models.Amount:
        """The largest single further query."""
        return self.told.remaining

    def _title(self) -> str:
        return f"Privacy budget ({self.told.composition}), window {self.told.window}"

    def _said(self) -> list[tuple[str, str]]:
        told = self.told
        rows = [
            ("limit", amount(told.limit)),
            ("spent", f"{amount(told.spent)}: {_percent(told.share)} of the budget, as costs add up"),
            ("left for one query", amount(told.remaining)),
            ("queries", str(told.queries)),
        ]
        if told.windows is not None and told.windows.next is not None:
            rows.append(("next window", f"{told.windows.next:%Y-%m-%d}"))
        if told.windows is not None and told.windows.so_far.windows > 1 and told.windows.so_far.promise:
            so_far = told.windows.so_far
            rows.append((f"promised by {so_far.windows} windows together", amount(so_far.promise)))
        if told.frozen:
            rows.append(("frozen", "yes: nothing can be charged"))
        return rows


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What a question costs and what to expect of it.

    Attributes:
        told: as the service tells it.
    """

    told: Any

    @property
    def epsilon(self) -> float:
        """The ε to ask with: as it was given, or as it was found."""
        return self.told.privacy.epsilon

    @property
    def expected_error(self) -> Any:
        """Error that the noise is expected to cause, from public facts alone."""
        return self.told.expected_error

    @property
    def warnings(self) -> list[str]:
        """What the analyst should know."""
        return self.told.warnings

    def _title(self) -> str:
        return f"Plan of {self.told.kind}"

    def _said(self) -> list[tuple[str, str]]:
        told = self.told
        rows = [("cost", amount(told.privacy)), *_rows_of_room(told.room), ("noise", told.privacy.mechanism)]
        rows += _rows_of_forecast(told.expected_error)
        if columns := getattr(told, "columns", None):
            each = ", ".join(f"{column.name} ± {column.radius_95:.2g}" for column in columns[:_SHOWN])
            rows.append(("which is, of columns", each + (", …" if len(columns) > _SHOWN else "")))
        if (found := told.finding) is not None:
            price = (
                f"{found.share:.0%} of the budget, in {found.rounds} rounds; the error is at most about "
                f"{found.times:.3g} times what right bounds in the schema would give"
            )
            rows.append(("finding what is not declared", price))
        rows += [("warning", warning) for warning in dict.fromkeys(told.warnings)]
        return rows


@dataclass(frozen=True, repr=False)
class Prices(Shown):
    """What several questions cost together.

    Attributes:
        told: as the service tells it.
    """

    told: models.WorkloadView

    @property
    def covered(self) -> bool:
        """Whether all limits that the caller may know cover all questions."""
        return self.told.covered

    def _title(self) -> str:
        return f"Price of {len(self.told.plans)} questions"

    def _cells(self) -> Cells:
        plans = self.told.plans
        return {
            "question": [plan.kind for plan in plans],
            "ε": [f"{plan.privacy.epsilon:.4g}" for plan in plans],
            "off by at most": ["" if plan.radius_95 is None else f"{plan.radius_95:.3g}" for plan in plans],
        }

    def _said(self) -> list[tuple[str, str]]:
        rows = list[tuple[str, str]]()
        for each in self.told.datasets:
            sums = [each.sequence] if each.together is None else [each.sequence, each.together]
            words = [
                "more than this δ can say" if total.epsilon is None else f"ε = {total.epsilon:.4g}"
                for total in sums
            ]
            together = f"; by one certificate {words[1]}" if len(set(words)) > 1 else ""
            price = f"{words[0]} at δ = {each.delta:.3g}, for {each.questions} questions{together}"
            rows.append((f"together, of {each.dataset}", price))
        for limit in self.told.limits:
            verdict = "covered" if limit.covered else "not covered"
            of = {"owner": "the budget", "dataset": "the dataset's cap", "analyst": "your cap"}[limit.scope]
            rows.append(
                (of, f"takes {_percent(limit.share)}, of which {_percent(limit.left)} is left: {verdict}")
            )
        return rows


@dataclass(frozen=True)
class Covered:
    """What the figures of an answer cover.

    Attributes:
        intervals: what ± does, in words; empty where there is none.
        sampling: whether ± covers that records are few, too.
        unit: of distances, with a space before it.
        together: what a distance is of, in words, where it is of several columns.
    """

    intervals: str = ""
    sampling: bool = False
    unit: str = ""
    together: str = ""


def lines_of_answer(job: Any, covered: Covered) -> list[tuple[str, str]]:
    """How far off an answer may be and from what, its price, and its job, line by line.

    Args:
        job: as the service tells it.
        covered: what its figures cover.
    """
    rows, unit = [("warning", warning) for warning in dict.fromkeys(job.warnings)], covered.unit
    if covered.intervals:
        rows.append(("± is", covered.intervals))
    if job.uncertainty is not None and job.uncertainty.of:
        rows += _rows_of_error(job.uncertainty, covered)
    if job.forecast is not None:
        rows += _rows_of_forecast(job.forecast, unit)
    free = " (free: synthetic rows)" if job.dummy else " (free: answered before)" if job.reused else ""
    return [*rows, ("cost", amount(job.privacy) + free), ("job", f"{job.id}, {job.state}")]


def _rows_of_error(found: Any, covered: Covered) -> Iterator[tuple[str, str]]:
    """How far off an answer may be, by what its run found out."""

    def distance(value: float | None, besides: str = "") -> str:
        if value is None or value >= _NOT_BOUNDED:
            return "unknown"
        turned = f" ({degrees(value):.3g}°)" if covered.unit == " rad" else ""
        return f"{value:.4g}{covered.unit}{turned}{besides}"

    together = f": {covered.together}" if covered.together else ""
    yield "off by at most", f"{distance(found.radius_95)} in 95 of 100 runs, from {found.of}{together}"
    yield "by the noise alone", distance(found.noise)
    yield "by clipping, penalties and unfinished steps", distance(found.moved)
    where = ", in ± and in no other figure" if covered.sampling else ", in no other figure"
    yield "standard error of few records", distance(found.sampling, where)
    for each in found.unknown:
        yield "in no figure", each


def _rows_of_forecast(foretold: Any, unit: str = "") -> Iterator[tuple[str, str]]:
    """How far off an answer is expected to be, by its plan."""
    numbers = foretold.model_dump(exclude_none=True)
    told = f"{numbers.pop('standard_deviation'):.4g}{unit} root mean square"
    if (radius := numbers.pop("radius_95", None)) is not None:
        told += f", at most {radius:.4g}{unit} in 95 of 100 runs"
    if (worse := numbers.pop("unfavourable", None)) is not None:
        told += f", {worse:.4g}{unit} in an unfavourable case"
    yield "error foretold", told
    if assumed := numbers.pop("assumes", ""):
        yield "which assumes", assumed
    if untold := numbers.pop("untold", ""):
        yield "not foretold", untold
    for name, value in numbers.items():
        yield _words(name), f"{value:.4g}"


_LIMITS = {"owner": "your budget", "dataset": "the cap on this dataset", "analyst": "your cap"}


def _rows_of_room(room: Any) -> Iterator[tuple[str, str]]:
    """What a question takes of a limit that its caller may know."""
    if room is not None:
        took, left = _percent(room.share), _percent(room.left)
        there = f"ε = {room.cost.epsilon:.4g} at δ = {room.cost.delta:.3g}"
        yield "which takes", f"{took} of {_LIMITS[room.scope]}, as costs add up ({there}); {left} is left"
        times = f"{room.times:,} of this ε" if room.covered else "none of this ε"
        once = "" if room.epsilon is None else f", or for one of ε = {room.epsilon:.15g} at this δ"
        yield "enough for", f"{times}{once}"


def _percent(part: float) -> str:
    return f"{100 * part:{'.0f' if part > 1 else '.3g'}} %"


def _words(name: str) -> str:
    return name.replace("_", " ")


def amount(told: Any) -> str:
    """An (ε, δ) in words."""
    return f"ε = {told.epsilon:.6g}, δ = {told.delta:.3g}"
