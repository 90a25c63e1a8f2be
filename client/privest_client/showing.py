"""What people see: bars, tables, and the schema before it is sent."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.prompt import Confirm
from rich.table import Table

from privest_client import models
from privest_client.data import Schema, Upload
from privest_client.errors import SchemaMismatch

_WORDS = {"asked": "asking", "reserved": "charged, waiting for a worker", "claimed": "running"}


@contextmanager
def progress_of_job(what: str, shown: bool) -> Iterator[Callable[[str], None]]:
    """A line that tells how far a job is and for how long it has been."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bars:
        task = bars.add_task(what, total=None)
        yield lambda state: bars.update(task, description=f"{what}: {_WORDS.get(state, state)}")


@contextmanager
def progress_of_upload(file: Upload, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar of bytes sent; then the service checks them."""
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bars:
        task = bars.add_task(f"uploading {file.name}", total=file.size)

        def sent(count: int) -> None:
            bars.advance(task, count)
            if bars.tasks[0].completed >= file.size:
                bars.update(task, description=f"checking {file.name}")

        yield sent


def confirmed(schema: Schema, how: bool | Callable[[Schema], bool] | None) -> None:
    """Show an inferred schema, and go on only if it is confirmed.

    Raises:
        SchemaMismatch: it is not.
    """
    if how is True:
        return
    console = Console(stderr=True)
    console.print("[bold]Everybody who may ask will see this schema:[/bold]")
    console.print_json(json.dumps(schema))
    if callable(how):
        yes = how(schema)
    elif how is None and sys.stdin.isatty():
        yes = Confirm.ask("Is that what may be known?", console=console)
    else:
        raise SchemaMismatch(
            "nobody confirmed the schema, which was inferred: state it, or pass confirm=True"
        )
    if not yes:
        raise SchemaMismatch("the schema was not confirmed; nothing was sent")


class Shown:
    """A table in terminals and in notebooks."""

    def __rich__(self) -> Table:
        title, rows = self._table()
        table = Table("", "", title=title, show_header=False, title_justify="left")
        for row in rows:
            table.add_row(*row)
        return table

    def __repr__(self) -> str:
        text = StringIO()
        Console(file=text, width=100, force_jupyter=False, color_system=None).print(self)
        return text.getvalue()

    def _repr_html_(self) -> str:
        title, rows = self._table()
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(title)}</caption>{cells}</table>"

    def _table(self) -> tuple[str, list[tuple[str, str]]]:
        raise NotImplementedError


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

    def _table(self) -> tuple[str, list[tuple[str, str]]]:
        told = self.told
        rows = [
            ("limit", _amount(told.limit)),
            ("spent", _amount(told.spent)),
            ("left for one query", _amount(told.remaining)),
            ("queries", str(told.queries)),
        ]
        if told.frozen:
            rows.append(("frozen", "yes: nothing can be charged"))
        return f"Privacy budget ({told.composition}), window {told.window}", rows


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What a question costs and what to expect of it.

    Attributes:
        told: as the service tells it.
    """

    told: Any

    @property
    def expected_error(self) -> Any:
        """Error that the noise is expected to cause, from public facts alone."""
        return self.told.expected_error

    @property
    def warnings(self) -> list[str]:
        """What the analyst should know."""
        return self.told.warnings

    def _table(self) -> tuple[str, list[tuple[str, str]]]:
        told = self.told
        rows = [("cost", _amount(told.privacy)), ("noise", told.privacy.mechanism)]
        errors = told.expected_error.model_dump(exclude_none=True)
        rows += [
            (_words(name), value if isinstance(value, str) else f"{value:.4g}")
            for name, value in errors.items()
            if value != ""
        ]
        rows += [("warning", warning) for warning in told.warnings]
        return f"Plan of {told.kind}", rows


def rows_of_answer(job: Any) -> list[tuple[str, str]]:
    """An answer, how far off it may be and from what, and its price, line by line."""
    numbers: dict[str, Any] = {} if job.estimate is None else job.estimate.model_dump(exclude_none=True)
    rows = [(_words(name), _short(value)) for name, value in numbers.items()]
    found = job.uncertainty
    if found is not None and found.of:
        rows.append(("off by at most", f"{found.radius_95:.4g} in 95 of 100 runs, from {found.of}"))
        rows.append(("by the noise alone", f"{found.noise:.4g}"))
        moved, sampling = ("unknown" if x is None else f"{x:.4g}" for x in (found.moved, found.sampling))
        rows += [("by clipping and unfinished steps", moved), ("standard error of few records", sampling)]
        rows += [("in no figure", each) for each in found.unknown]
    elif found is not None:
        rows.append(("error foretold", f"{found.standard_deviation:.4g}"))
    rows += [("warning", warning) for warning in job.warnings]
    return [*rows, ("cost", _amount(job.privacy)), ("job", f"{job.id}, {job.state}")]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _short(value: Any) -> str:
    """A number, or the beginning and the end of many."""
    if isinstance(value, dict):
        return ", ".join(f"{_words(name)} {_short(each)}" for name, each in value.items())
    shown = np.asarray(value)
    return np.array2string(shown, precision=4, threshold=24, edgeitems=2) if shown.size else "none"


def _amount(amount: Any) -> str:
    return f"ε = {amount.epsilon:.6g}, δ = {amount.delta:.3g}"
