"""`privest demo`: an owner, real data, private answers over HTTP, the bill, and a query that is refused.

It begins with means of ordinary columns. Means of handwritten digits follow, as points of a curved space.
"""

import io
import json
import uuid
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from privest import manifolds
from privest.arrays import Array
from privest_service.demo import columns, descriptors
from privest_service.demo.server import Service, ok, services

EPSILONS = (0.1, 0.5, 2.0)
"""ε of the queries about each digit."""

BUDGET = {"epsilon": 4.0, "delta": 1e-3, "composition": "gdp"}

_HOW_TO_READ = """\
Each image becomes a matrix that says how its strokes vary together. Such
matrices form a curved space. Their Fréchet mean is the point with the least
sum of squared distances to all of them. The numbers are distances there:
- plan ±: in 95 of 100 runs the answer should be no further from the true mean.
  The plan states it before any image is read.
- answer ±: the same, by what the run released. It replaces the plan's number.
- truly off by: the distance from the true mean. Only the owner can compute it.
A larger ε gives closer answers and protects less. With ε = 0.1 so few images
tell next to nothing, and the answers warn of it: which mean is nearest is
chance.
"""


def main() -> int:
    """Tell the story on a service of its own; returns the exit status."""
    console = Console(highlight=False, markup=False)
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    )
    with progress:
        step = progress.add_task("starting the service")
        with services(1) as (service,):
            service.start()
            story = Story(service)
            progress.update(step, description="registering an owner with a budget")
            story.register_owner()
            for rows in columns.tables():
                progress.update(step, description=f"means of the columns of {len(rows.values)} {rows.name}")
                story.ask_columns(rows)
            for digit in descriptors.DIGITS:
                progress.update(step, description=f"uploading the images of digit {digit}")
                story.upload(digit)
            for epsilon in EPSILONS:
                for digit in descriptors.DIGITS:
                    progress.update(step, description=f"private mean of digit {digit} at ε = {epsilon}")
                    story.ask(digit, epsilon)
            progress.update(step, description="reading the bill, and asking once more")
            budget, refusal = story.budget(), story.ask_too_much()
    story.show(console)
    show_bill(console, budget, refusal)
    return 0


class Story:
    """One owner's queries, with their plans and answers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._owner = service.caller()
        self._owner_id = ""
        self._columns: list[columns.Asked] = []
        self._datasets: dict[int, str] = {}
        self._rows: dict[int, Array] = {}
        self._plans: dict[tuple[int, float], dict[str, Any]] = {}
        self._answers: dict[tuple[int, float], dict[str, Any]] = {}

    def register_owner(self) -> None:
        """Register the owner, and call with its key from here on."""
        made = ok(self._owner.post("/v1/owners", json={"name": "archive", "budget": BUDGET}))
        self._owner_id = made["id"]
        self._owner = self._service.caller(made["key"])

    def ask_columns(self, rows: columns.Rows) -> None:
        """Upload a table, and ask for the means of all its columns."""
        dataset = self._upload("rows.csv", rows.csv, rows.schema)
        plan, job = self._plan(dataset, columns.EPSILON), self._estimate(dataset, columns.EPSILON)
        self._columns.append(columns.Asked(rows, ok(plan), ok(job)))

    def upload(self, digit: int) -> None:
        """Upload the images of one digit as a dataset."""
        self._rows[digit] = descriptors.digit_descriptors(digit)
        file = io.BytesIO()
        np.save(file, self._rows[digit])
        self._datasets[digit] = self._upload("digits.npy", file.getvalue(), descriptors.schema())

    def _upload(self, name: str, content: bytes, schema: dict[str, Any]) -> str:
        made = self._owner.post(
            "/v1/datasets", files={"file": (name, content)}, data={"schema": json.dumps(schema)}
        )
        return ok(made)["id"]

    def _plan(self, dataset: str, epsilon: float) -> httpx.Response:
        return self._owner.post("/v1/estimates/frechet-mean/plan", json=_query(dataset, epsilon))

    def _estimate(self, dataset: str, epsilon: float) -> httpx.Response:
        return self._owner.post(
            "/v1/estimates/frechet-mean",
            json=_query(dataset, epsilon),
            headers={"Idempotency-Key": str(uuid.uuid4()), "Prefer": "wait=60"},
        )

    def ask(self, digit: int, epsilon: float) -> None:
        """Ask for the private mean of a digit, after its plan."""
        self._plans[digit, epsilon] = ok(self._plan(self._datasets[digit], epsilon))
        self._answers[digit, epsilon] = ok(self._estimate(self._datasets[digit], epsilon))

    def ask_too_much(self) -> httpx.Response:
        """Submit a query that the budget does not cover, and return the refusal."""
        return self._estimate(self._datasets[descriptors.DIGITS[0]], BUDGET["epsilon"])

    def budget(self) -> dict[str, Any]:
        """Return the owner's budget with what is spent of it."""
        return ok(self._owner.get(f"/v1/owners/{self._owner_id}/budget"))

    def show(self, console: Console) -> None:
        """Print the answers beside the true means."""
        columns.show(console, self._columns)
        first, second = descriptors.DIGITS
        space = manifolds.get(**descriptors.schema()["manifold"])
        exact = {digit: descriptors.frechet_mean(rows) for digit, rows in self._rows.items()}
        apart = float(space.dist(exact[first], exact[second]))

        means = Table(
            title=f"\nPrivate Fréchet means of handwritten digits {first} and {second}",
            caption=f"The true means of the two digits are {apart:.2f} apart.",
        )
        for column in ("ε", "digit", "images", "plan ±", "answer ±", "truly off by", "nearest true mean"):
            means.add_column(column, justify="right")
        for epsilon in EPSILONS:
            for digit in descriptors.DIGITS:
                plan, answer = self._plans[digit, epsilon], self._answers[digit, epsilon]
                point = np.array(answer["estimate"]["point"])
                distances = {other: float(space.dist(point, exact[other])) for other in exact}
                nearest = min(distances, key=lambda other: distances[other])
                means.add_row(
                    f"{epsilon:g}",
                    str(digit),
                    str(len(self._rows[digit])),
                    f"{plan['expected_error']['radius_95']:.2f}",
                    f"{answer['uncertainty']['radius_95']:.2f}",
                    f"{distances[digit]:.2f}",
                    f"{nearest} {'✓' if nearest == digit else '✗'}",
                )
            means.add_section()
        console.print(means)
        console.print(_HOW_TO_READ)


def _query(dataset: str, epsilon: float) -> dict[str, Any]:
    """Return a query for the mean of a dataset; everything else is left to the defaults."""
    return {"dataset": {"id": dataset}, "privacy": {"epsilon": epsilon}}


def show_bill(console: Console, budget: dict[str, Any], refusal: httpx.Response) -> None:
    """Print what the queries cost together, and the refusal of one more."""
    bill = Table(title="The bill")
    for column in ("", "ε", "δ"):
        bill.add_column(column, justify="right")
    rows = (
        ("budget", budget["limit"]),
        (f"spent by {budget['queries']} queries", budget["spent"]),
        ("their ε and δ added up", budget["basic"]),
        ("largest further query", budget["remaining"]),
    )
    for name, amount in rows:
        bill.add_row(name, f"{amount['epsilon']:.3f}", f"{amount['delta']:.2g}")
    console.print(bill)
    console.print(
        "All answers together cost the ε of “spent”. That is less than the sum of\n"
        "their ε, because each answer has noise of its own.\n"
    )
    problem = refusal.json()
    console.print(
        f"One more query, with ε = {BUDGET['epsilon']:g}:  HTTP {refusal.status_code}  {problem['type']}\n"
        f"“{problem['title']}.” Nothing was charged, and no row was read.\n"
    )
