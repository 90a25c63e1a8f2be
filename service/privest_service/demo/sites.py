"""`privest demo --sites`: three schools keep their pupils' digits; a hub estimates over all three."""

import io
import json
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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

SCHOOLS = ("North School", "South School", "West School")
BUDGET = {"epsilon": 8.0, "delta": 1e-3, "composition": "gdp"}
DELTA = 1e-5

_PIXELS = descriptors.SIDE**2
_TRIES, _PAUSE = 600, 0.1
"""Looks for what a site is to tell its hub, and seconds between them."""


@dataclass(frozen=True)
class Question:
    """What is asked of the schools, alone and together.

    Attributes:
        kind: of estimate.
        title: in words.
        epsilon: of each school's records.
        schema: of the rows, declared before any of them is seen.
        rows: of (n, 8, 8) images with their (n,) digits.
        quality: of an estimate, in words, where all images and digits are known.
        options: of the estimate.
    """

    kind: str
    title: str
    epsilon: float
    schema: dict[str, Any]
    rows: Callable[[Array, Array], Array]
    quality: Callable[[dict[str, Any], Array, Array], str]
    options: dict[str, Any] = field(default_factory=dict)


def _off_by(estimate: dict[str, Any], images: Array, _: Array) -> str:
    exact = descriptors.frechet_mean(descriptors.covariance_descriptors(images))
    space = manifolds.get(**descriptors.schema()["manifold"])
    return f"{float(space.dist(np.array(estimate['point']), exact)):.2f} from the exact mean"


def _held(estimate: dict[str, Any], images: Array, _: Array) -> str:
    rows, basis = images.reshape(-1, _PIXELS), np.array(estimate["basis"]).reshape(_PIXELS, -1)
    best = np.linalg.svd(rows, compute_uv=False)[: basis.shape[1]]
    lost = 1 - np.linalg.norm(rows @ basis) ** 2 / np.linalg.norm(best) ** 2
    return f"{lost:.1%} of the variance lost"


def _told_right(estimate: dict[str, Any], images: Array, digits: Array) -> str:
    scores = images.reshape(-1, _PIXELS) @ np.array(estimate["coefficients"]).T + estimate["intercept"]
    return f"{np.mean(scores.argmax(axis=1) == digits):.0%} of digits told right"


QUESTIONS = (
    Question(
        "frechet-mean",
        "Fréchet mean of descriptors",
        1.0,
        descriptors.schema(),
        lambda images, _: descriptors.covariance_descriptors(images),
        _off_by,
    ),
    Question(
        "robust-pca",
        "robust PCA of 64 pixels",
        2.0,
        {"kind": "vectors", "dim": _PIXELS},
        lambda images, _: images.reshape(-1, _PIXELS),
        _held,
        {"rank": 2},
    ),
    Question(
        "logistic-regression",
        "logistic regression",
        2.0,
        {
            "kind": "labelled",
            "features": [f"pixel {number}" for number in range(_PIXELS)],
            "label": "digit",
            "classes": [str(digit) for digit in range(10)],
            "mean": [5.0] * _PIXELS,
            "scale": [6.0] * _PIXELS,
        },
        lambda images, digits: np.column_stack([images.reshape(-1, _PIXELS), digits]),
        _told_right,
    ),
)


@dataclass
class School:
    """A school with a site of its own.

    Attributes:
        name: of the school.
        service: the site.
        owner: the school, at its site, where it has this id.
        hub: id of the hub there, as an analyst.
        at_hub: the school, at the hub, where it has another id.
        datasets: ids at the hub, in the order of the questions.
    """

    name: str
    service: Service
    owner: httpx.Client
    owner_id: str
    hub: str
    at_hub: httpx.Client
    at_hub_id: str
    datasets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """The job at the hub, and how long it took there in seconds."""

    question: Question
    schools: int
    job: dict[str, Any]
    seconds: float


def main() -> int:
    """Tell the story on services of its own; returns the exit status."""
    console = Console(highlight=False, markup=False)
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
    )
    images, digits = _digits()
    shares = np.array_split(np.arange(len(digits)), len(SCHOOLS))
    with progress, services(1 + len(SCHOOLS)) as (hub, *sites), ThreadPoolExecutor() as at_once:
        step = progress.add_task("starting a hub and three sites, each its own processes, ledger and key")
        list(at_once.map(lambda service: service.start(workers="1"), (hub, *sites)))
        made = ok(hub.caller().post("/v1/analysts", json={"name": "Analyst"}))
        analyst, analyst_id = hub.caller(made["key"]), made["id"]
        schools = [_school(name, site, hub) for name, site in zip(SCHOOLS, sites, strict=True)]
        progress.update(step, description="the sites connect to the hub, and offer their digits")
        list(at_once.map(lambda school: _connect(school, hub), schools))
        for school, share in zip(schools, shares, strict=True):
            for question in QUESTIONS:
                _offer(school, question, question.rows(images[share], digits[share]))
            for dataset in school.datasets:
                ok(school.at_hub.put(f"/v1/datasets/{dataset}/grants/{analyst_id}", json={}))
        answers = list[Answer]()
        for number, question in enumerate(QUESTIONS):
            for asked in (schools[:1], schools):
                who = asked[0].name if len(asked) == 1 else "all three"
                progress.update(step, description=f"{question.title}: {who}")
                about = [school.datasets[number] for school in asked]
                answers.append(
                    _ask(analyst, question, about, lambda told: progress.update(step, description=told))
                )
        progress.update(
            step, description="verifying all ledgers, and the receipts that the hub's answers hold"
        )
        bills = [_bill(school, place, answers) for place, school in enumerate(schools)]
        report = hub.run("verify-ledger")
    _show(console, answers, bills, report, images, digits)
    return 0


def _digits() -> tuple[Array, Array]:
    """All images, (n, 8, 8), and their digits, as the people who wrote them came, one after the other."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - of the demo group, not of the service

    rows, digits = map(np.asarray, load_digits(return_X_y=True))
    return rows.reshape(-1, descriptors.SIDE, descriptors.SIDE), digits


def _school(name: str, site: Service, hub: Service) -> School:
    """A school at its own site and at the hub, and the hub at that site."""
    owner, at_hub = (
        ok(service.caller().post("/v1/owners", json={"name": name, "budget": BUDGET}))
        for service in (site, hub)
    )
    analyst = ok(site.caller().post("/v1/analysts", json={"name": "The hub"}))
    keys = site.caller(owner["key"]), hub.caller(at_hub["key"])
    return School(name, site, keys[0], owner["id"], analyst["id"], keys[1], at_hub["id"])


def _connect(school: School, hub: Service) -> None:
    """Start the site once more, with the three settings that make a service one."""
    asked = school.at_hub.post(f"/v1/owners/{school.at_hub_id}/keys", json={"scopes": ["read", "data"]})
    key = ok(asked)["key"]
    school.service.stop()
    school.service.start(hub_url=hub.address, hub_key=key, hub_analyst=school.hub)


def _offer(school: School, question: Question, rows: Array) -> None:
    """Upload rows at the site and grant them to the hub, which is the offer; wait until it is there."""
    file = io.BytesIO()
    np.save(file, rows)
    declared = {"schema": json.dumps(question.schema), "name": f"{school.name}: {question.kind}"}
    here = ok(
        school.owner.post("/v1/datasets", files={"file": ("digits.npy", file.getvalue())}, data=declared)
    )["id"]
    ok(school.owner.put(f"/v1/datasets/{here}/grants/{school.hub}", json={}))
    for _ in range(_TRIES):
        listed = ok(school.at_hub.get("/v1/datasets"))["datasets"]
        if found := [each["id"] for each in listed if each["at_site"] == here]:
            school.datasets += found
            return
        time.sleep(_PAUSE)
    raise RuntimeError(f"{school.name} did not offer its dataset")


def _ask(
    analyst: httpx.Client, question: Question, about: Sequence[str], tell: Callable[[str], None]
) -> Answer:
    """Ask at the hub and wait, telling how far the sites are."""
    since = time.monotonic()
    made = ok(
        analyst.post(
            f"/v1/estimates/{question.kind}",
            json={
                "dataset": [{"id": dataset} for dataset in about],
                "privacy": {"epsilon": question.epsilon, "delta": DELTA},
            }
            | question.options,
            headers={"Idempotency-Key": str(uuid.uuid4())},
        )
    )
    while (job := ok(analyst.get(f"/v1/jobs/{made['id']}")))["state"] in ("reserved", "claimed"):
        tell(f"{question.title}: sites {', '.join(each['state'] for each in job['sites'])}")
        time.sleep(_PAUSE)
    if job["state"] != "committed":
        raise RuntimeError(f"the hub did not answer: {job['state']}, {job['sites']}")
    return Answer(question, len(about), job, time.monotonic() - since)


def _bill(school: School, place: int, answers: Sequence[Answer]) -> tuple[str, ...]:
    """What a school's own ledger says, and whether it holds each receipt that the hub has of it."""
    receipts = list[str]()
    for answer in answers:
        if place < answer.schools:
            file = school.service.folder / f"receipt-{len(receipts)}.json"
            file.write_text(json.dumps(answer.job["sites"][place]["receipt"]))
            receipts += ["--receipt", str(file)]
    report = school.service.run("verify-ledger", *receipts)
    budget = ok(school.owner.get(f"/v1/owners/{school.owner_id}/budget"))
    spent, limit = (budget[name]["epsilon"] for name in ("spent", "limit"))
    return school.name, f"{spent:.2f} of {limit:g}", str(len(receipts) // 2), report


def _show(
    console: Console,
    answers: Sequence[Answer],
    bills: Sequence[tuple[str, ...]],
    report: str,
    images: Array,
    digits: Array,
) -> None:
    console.print(
        f"\n{len(SCHOOLS)} schools have {len(digits):,} pictures of handwritten digits between them, which "
        "different people wrote.\nEach school keeps its own, on a service of its own, a site. A hub takes "
        "questions, and has no picture.\n"
    )
    told = Table(title="One question, asked about one school and about all three")
    for column in ("question", "ε", "asked about", "seconds", "held against all pictures"):
        told.add_column(column)
    for answer in answers:
        alone = answer.schools == 1
        told.add_row(
            answer.question.title if alone else "",
            f"{answer.question.epsilon:g}" if alone else "",
            SCHOOLS[0] if alone else "all three",
            f"{answer.seconds:.1f}",
            answer.question.quality(answer.job["estimate"], images, digits),
            end_section=not alone,
        )
    console.print(told)
    console.print(
        "No picture left its school. A site sends noisy sums alone, and its own ledger is charged before. "
        "“Held against all pictures” is what only someone could know who had all of them.\n"
    )
    bill = Table(title="Four ledgers, each signed with a key of its own")
    for column in ("ledger of", "ε spent", "its receipts at the hub", "what privest verify-ledger finds"):
        bill.add_column(column)
    for row in bills:
        bill.add_row(*row)
    bill.add_row("the hub", "", "", report)
    console.print(bill)
    console.print("Each receipt that the hub got was found in the ledger of the site that signed it.\n")
