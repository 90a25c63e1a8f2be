"""`privest demo`: an owner, real data, private answers over HTTP, the bill, and a query that is refused."""

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
from privest_service.demo import descriptors
from privest_service.demo.server import Service, ok, services

EPSILONS = (0.1, 0.5, 2.0)
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "composition": "gdp"}


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
            for digit in descriptors.DIGITS:
                progress.update(step, description=f"uploading the images of digit {digit}")
                story.upload(digit)
            for epsilon in EPSILONS:
                for digit in descriptors.DIGITS:
                    progress.update(step, description=f"private mean of digit {digit} at ε = {epsilon}")
                    story.ask(digit, epsilon)
            progress.update(step, description="reading the bill, and asking once more")
            budget, refusal = story.budget(), story.ask_too_much()
    story.show(console, budget, refusal)
    return 0


class Story:
    """One owner's visit, with what it learned."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._owner = service.caller()
        self._owner_id = ""
        self._datasets: dict[int, str] = {}
        self._rows: dict[int, Array] = {}
        self._plans: dict[tuple[int, float], dict[str, Any]] = {}
        self._answers: dict[tuple[int, float], dict[str, Any]] = {}

    def register_owner(self) -> None:
        """Make the owner and take up its key."""
        made = ok(self._owner.post("/v1/owners", json={"name": "digit archive", "budget": BUDGET}))
        self._owner_id = made["id"]
        self._owner = self._service.caller(made["key"])

    def upload(self, digit: int) -> None:
        """Upload one class as a dataset, with what is public about it."""
        self._rows[digit] = descriptors.digit_descriptors(digit)
        file = io.BytesIO()
        np.save(file, self._rows[digit])
        made = ok(
            self._owner.post(
                "/v1/datasets",
                files={"file": ("digits.npy", file.getvalue())},
                data={"schema": json.dumps(descriptors.schema())},
            )
        )
        self._datasets[digit] = made["id"]

    def _request(self, digit: int, epsilon: float) -> dict[str, Any]:
        return {
            "dataset": {"id": self._datasets[digit]},
            "privacy": {"epsilon": epsilon},
            "clip": descriptors.PUBLIC_CLIP,
        }

    def _estimate(self, digit: int, epsilon: float) -> httpx.Response:
        return self._owner.post(
            "/v1/estimates/frechet-mean",
            json=self._request(digit, epsilon),
            headers={"Idempotency-Key": str(uuid.uuid4()), "Prefer": "wait=60"},
        )

    def ask(self, digit: int, epsilon: float) -> None:
        """One private mean, after a look at its plan."""
        plan = self._owner.post("/v1/estimates/frechet-mean/plan", json=self._request(digit, epsilon))
        self._plans[digit, epsilon] = ok(plan)
        self._answers[digit, epsilon] = ok(self._estimate(digit, epsilon))

    def ask_too_much(self) -> httpx.Response:
        """One query more than the budget covers."""
        return self._estimate(descriptors.DIGITS[0], BUDGET["epsilon"])

    def budget(self) -> dict[str, Any]:
        """The bill."""
        return ok(self._owner.get(f"/v1/owners/{self._owner_id}/budget"))

    def show(self, console: Console, budget: dict[str, Any], refusal: httpx.Response) -> None:
        """Print what came of it."""
        first, second = descriptors.DIGITS
        space = manifolds.get(**descriptors.schema()["manifold"])
        exact = {digit: descriptors.frechet_mean(rows) for digit, rows in self._rows.items()}
        apart = float(space.dist(exact[first], exact[second]))

        means = Table(
            title=f"\nPrivate Fréchet means of handwritten digits {first} and {second} "
            f"(covariance descriptors, SPD {space.shape[0]}×{space.shape[1]})",
            caption=f"The two classes' own means are {apart:.2f} apart.",
        )
        for column in ("ε", "digit", "records", "steps", "foretold", "told", "off by", "nearest class mean"):
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
                    str(plan["steps"]),
                    f"{plan['expected_error']['radius_95']:.2f}",
                    f"{answer['uncertainty']['radius_95']:.2f}",
                    f"{distances[digit]:.2f}",
                    f"{nearest} {'✓' if nearest == digit else '✗'}",
                )
            means.add_section()
        console.print(means)
        console.print(
            "“foretold” is how far off the answer is at most, in 95 of 100 runs, by the plan alone; “told” "
            "is the same by what the run found out, clipping included; “off by” is the true distance, which "
            "only the owner can know. The larger ε, the closer the answer, and the less it protects. At "
            "ε = 0.1 so few records give next to nothing: which mean is nearest is chance.\n"
        )

        bill = Table(title="The bill")
        for column in ("", "ε", "δ"):
            bill.add_column(column, justify="right")
        rows = (
            ("budget", budget["limit"]),
            (f"spent by {budget['queries']} queries", budget["spent"]),
            ("the same, by adding ε and δ", budget["basic"]),
            ("largest further query", budget["remaining"]),
        )
        for name, amount in rows:
            bill.add_row(name, f"{amount['epsilon']:.3f}", f"{amount['delta']:.2g}")
        console.print(bill)

        problem = refusal.json()
        console.print(
            f"\nOne more query, at ε = {BUDGET['epsilon']:g}:  "
            f"HTTP {refusal.status_code}  {problem['type']}\n  “{problem['title']}.”  "
            "Nothing was charged, and no record was read.\n"
        )
