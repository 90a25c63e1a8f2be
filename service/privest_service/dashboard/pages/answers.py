"""A visitor's own questions: where they stand, and pictures of their answers."""

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.data.metadata import DatasetMetadata, LabelledMetadata, PointsMetadata
from privest.data.tables import day_of
from privest.estimators.federation import Part, Plan
from privest_service.dashboard.answer_tables import answer_tables, relative_to, written
from privest_service.dashboard.as_planned import as_planned
from privest_service.dashboard.budget_summary import unit
from privest_service.dashboard.charts import (
    Box,
    boxes,
    ellipse,
    heat_map,
    in_disk,
    intervals,
    loadings,
    on_circle,
    vector_bars,
)
from privest_service.dashboard.entries import places_of
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.page_version import version_for
from privest_service.dashboard.pages.ledger import names_of_datasets
from privest_service.dashboard.refused import Refused, refused_to
from privest_service.dashboard.session_auth import AskerDep, AskingDep, FormDep, Visitor
from privest_service.dashboard.wishes import address_again
from privest_service.datasets import service as datasets
from privest_service.estimates import requests
from privest_service.estimates.intervals import NORMAL_95, scores, standard_errors, towards
from privest_service.estimates.plans import answered_plan, asked_columns, asked_label, stored_plan
from privest_service.estimates.schemas import ApprovalView
from privest_service.estimates.service import require_job
from privest_service.estimates.views import approval_of, read_answer, sites_of
from privest_service.inputs import Id, QuestionTag
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.problems import NotFound
from privest_service.published import service as published
from privest_service.reports.formatting import cell_text, number, told_apart
from privest_service.reports.words import of_columns, title
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/answers", route_class=Page)

_PAGE = 24

_CLASSES, _FEATURES = 10, 30
"""Most classes, and most features, columns or shares that are drawn; tables list all numbers."""


@router.get("")
def read(
    request: Request,
    visitor: AskerDep,
    database: DatabaseDep,
    before: Id = "",
    tag: QuestionTag | None = None,
) -> Response:
    """The visitor's own questions, newest first, all or those of one tag."""
    statement = select(Job).where(Job.submitter_id == visitor.id, Job.part_of.is_(None))
    if tag is not None:
        statement = statement.where(Job.tag == tag)
    with database.read() as session:
        last = session.get(Job, before) if before else None
        if last and last.submitter_id == visitor.id:
            statement = statement.where(jobs.before(last))
        found = session.scalars(statement.order_by(Job.created_at.desc(), Job.id.desc()).limit(_PAGE)).all()
        denials = {job.id: _approval(session, visitor, job) for job in found if job.state == "denied"}
        names, seen = _names(session, visitor), version_for(session, visitor)
        refused = _refused(session, visitor) if visitor.is_analyst and not before else []
    return render(
        request,
        "answers.html",
        tag=tag,
        seen=seen,
        denials=denials,
        refused=refused,
        jobs=found,
        plans={job.id: stored_plan(job.kind, job.plan) for job in found},
        names=names,
        title=title,
        about={job.id: of_columns(job.plan) for job in found},
        further=found[-1].id if len(found) == _PAGE else None,
    )


def _approval(session: Session, visitor: Visitor, job: Job) -> ApprovalView | None:
    """What became of a visitor's own question at its owners."""
    parts = [each.id for each in jobs.parts_of(session, job)]
    return approval_of(session, visitor.principal, job, parts or [job.id])


def _refused(session: Session, visitor: Visitor) -> list[Refused]:
    """The latest questions on what is granted to an analyst now that were refused at once."""
    granted, _ = datasets.visible(session, visitor.principal)
    return refused_to(session, visitor.id, {each.id: each.owner_id for each in granted})


def _names(session: Session, visitor: Visitor) -> dict[str, str]:
    """The datasets that a visitor may be told of, by name: an owner's, or those granted to an analyst."""
    if visitor.is_analyst:
        return told_apart(datasets.visible(session, visitor.principal)[0])
    return names_of_datasets(session, visitor.id)


@router.get("/{job_id}")
def one(request: Request, job_id: str, visitor: AskerDep, database: DatabaseDep) -> Response:
    """One question: where it stands or, once it is answered, the answer as a picture and as numbers."""
    with database.read() as session:
        job = require_job(session, visitor.principal, job_id)
        if job.submitter_id != visitor.id or job.part_of is not None:
            raise NotFound("answers are for those who asked")
        approval, gone = _approval(session, visitor, job), requests.ended_with(session, job)
        parts = jobs.parts_of(session, job) or [job]
        about = [str(each.dataset_id) for each in parts]
        places = places_of(session, visitor.id, *(each.id for each in parts))
        sites = sites_of(session, job, parts)
        names, seen = _names(session, visitor), version_for(session, visitor)
        shown_as = published.names_of(session, visitor.principal, job) if visitor.may("manage") else None
    plan = stored_plan(job.kind, job.plan)
    name = ", ".join(names[each] for each in about if each in names)
    if job.result is None:
        return render(
            request,
            "question.html",
            seen=seen,
            job=job,
            plan=plan,
            finding=None if plan is None or isinstance(plan, Part) else plan.finding,
            columns=asked_columns(plan),
            label=asked_label(plan),
            name=name,
            title=title(job.kind),
            approval=approval,
            gone=gone,
            places=places,
            sites=sites,
            names=names,
            less=address_again(job, plan, 0.5) if job.dataset_id in names else None,
        )
    return render(
        request,
        "answer.html",
        job=job,
        places=places,
        shown_as=shown_as,
        plan=plan,
        name=name,
        title=title(job.kind),
        unit=unit(job.kind),
        **_answered(job, plan, job.result),
    )


def _answered(job: Job, plan: Plan | Part | None, result: str) -> dict[str, Any]:
    """What the page shows of an answer."""
    told = read_answer(plan, result)
    answer = told.estimate
    shape = None if plan is None or isinstance(plan, Part) else answered_plan(plan, answer or {}).shape
    found = told.uncertainty if told.uncertainty and "of" in told.uncertainty else None
    planned = as_planned(plan, answer or {}, found, unit(job.kind))
    features, fills = getattr(shape, "features", ()), _fills(shape)
    return {
        "pictures": _PICTURES.get(job.kind, _arrays)(answer, shape),
        "tables": answer_tables(job.kind, answer, features, fills) if answer else [],
        "relative": relative_to(answer or {}),
        "bounded": _bounded(shape),
        "found": found,
        "planned": planned,
        "more": address_again(job, plan, planned.times) if planned and not planned.reached else None,
        "foretold": told.forecast,
        "warnings": told.warnings,
        "numbers": json.dumps(answer, indent=2, ensure_ascii=False)[:100_000],
    }


@router.post("/{job_id}/withdraw")
def withdraw(request: Request, job_id: Id, visitor: AskingDep, database: DatabaseDep, _: FormDep) -> Response:
    """End a question of one's own that waits for approval."""
    database.run(lambda session: requests.withdraw(session, visitor.principal, job_id))
    return redirect(request, f"/answers/{job_id}")


def _fills(shape: DatasetMetadata | None) -> dict[str, str]:
    """What gaps count as in a table's columns, by the names of their features."""
    recipe = getattr(shape, "recipe", None)
    if recipe is None:
        return {}
    return {
        f"{feature.name} filled": cell_text(recipe.columns[feature.column], feature.fill)
        for feature in recipe.features
        if feature.fill is not None and not feature.gap
    }


Pictures = list[tuple[str, Markup]]
"""Pictures, each with what it shows."""


def _mean(answer: dict[str, Any], shape: DatasetMetadata | None) -> Pictures:
    point, space = np.array(answer["point"]), shape.space.name if isinstance(shape, PointsMetadata) else ""
    if space == "spd" and point.shape == (2, 2):
        (a, b), (_, d) = point
        told = "The mean P as the ellipse of all x with xᵀP⁻¹x = 1; σ is the length of half an axis. "
        told += f"P has {number(a)} and {number(d)} on its diagonal, and {number(b)} off it."
        return [(told, ellipse("mean", point))]
    if point.ndim == 2:
        return [("The entries of the mean.", heat_map("mean", point))]
    if space == "sphere" and point.shape == (2,):
        return [("The mean on the unit circle.", on_circle("mean", point.tolist()))]
    if space == "poincare-ball" and point.shape == (2,):
        return [("The mean in the Poincaré disk.", in_disk("mean", point.tolist()))]
    if answer.get("columns"):
        return _means(answer, shape)
    return [("The coordinates of the mean.", vector_bars("mean", point))]


def _bounded(shape: DatasetMetadata | None) -> set[str] | None:
    """The features of a table that have public bounds; None where all have."""
    recipe = shape.recipe if isinstance(shape, PointsMetadata) else None
    features = () if recipe is None else recipe.features
    found = {each.name for each in features if each.is_bounded}
    return None if len(found) == len(features) else found


def _means(answer: dict[str, Any], shape: DatasetMetadata | None) -> Pictures:
    """Draw means between their bounds, and shares; a column without bounds has no place beside the others."""
    pictures: Pictures = []
    recipe = shape.recipe if shape is not None else None
    features = {} if recipe is None else {each.name: each for each in recipe.features if each.is_bounded}
    means = {
        each["name"]: _between(each["value"], *features[each["name"]].ends)
        for each in answer["columns"]
        if each["kind"] == "mean" and each["name"] in features
    }
    if means:
        names, values = list(means), np.array(list(means.values()))
        shown = _furthest(values)
        said = (
            f"Where each mean lies between its bounds, −1 and 1.{_rest(shown, len(names), 'from the middle')}"
        )
        pictures.append((said, vector_bars("mean", values[shown], [names[i] for i in shown])))
    shares = [each for each in answer["columns"] if each["kind"] == "share"]
    if shares:
        shown = _furthest(np.array([each["value"] for each in shares]))
        said = f"Shares of the records, with intervals of 95 %.{_rest(shown, len(shares), 'from zero')}"
        names = [shares[i]["name"] for i in shown]
        parts = ([shares[i][part] for i in shown] for part in ("value", "low", "high"))
        pictures.append((said, intervals("shares", names, *parts)))
    return pictures


def _between(value: float | str, low: float, high: float) -> float:
    """Return where a value lies between its bounds, as −1 to 1; a date counts by its days."""
    number = float(day_of(date.fromisoformat(value))) if isinstance(value, str) else value
    return (2 * number - low - high) / (high - low)


def _furthest(values: NDArray[np.float64]) -> list[int]:
    """The places of what is drawn: the rows with the largest absolute values, in their order."""
    largest = np.abs(values.reshape(len(values), -1)).max(axis=1)
    return sorted(np.argsort(-largest, kind="stable")[:_FEATURES].tolist())


def _rest(shown: Sequence[int], count: int, whence: str) -> str:
    """A word on what is not drawn, if anything is not."""
    if len(shown) == count:
        return ""
    return f" Of {count}, the {len(shown)} that are furthest {whence}; the numbers below are of all."


def _bounds(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    places = answer["places"]
    drawn = list[Box]()
    for each in places[:_FEATURES]:
        low, center, high = written([each[part] for part in ("low", "center", "high")])
        levels = {quantile["level"]: quantile["value"] for quantile in each["quantiles"]}
        at = [levels[level] for level in (0.01, 0.25, 0.5, 0.75, 0.99)]
        a, b, c, d, e = (float(date.fromisoformat(x).toordinal()) if isinstance(x, str) else x for x in at)
        drawn.append(Box(each["name"], (low, high), center, (a, b, c, d, e)))
    told = "From bound to bound, in each column's own units. A box holds the middle half, a mark the median."
    if len(places) > _FEATURES:
        told += f" The first {_FEATURES} of {len(places)}."
    return [(told, boxes("bounds", drawn))]


def _subspace(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    basis, columns = np.array(answer["basis"]), answer.get("columns")
    # What has no names is shown whole.
    shown = _furthest(basis) if columns else list(range(len(basis)))
    names = [columns[i] if columns else f"x{i + 1}" for i in shown]
    told = "Loadings: how each feature points along each direction of the subspace."
    told += _rest(shown, len(basis), "from zero")
    pictures = [(told, loadings("basis", basis[shown], names))]
    if answer.get("center") is not None:
        told = "The centre of the subspace" + (
            ", in standardised columns; the same are shown." if columns else "."
        )
        center = np.array(answer["center"])[shown]
        pictures.append((told, vector_bars("center", center, names if columns else None)))
    if answer.get("explained") is not None:
        told = "Shares of the rows' variance along each direction."
        pictures.append((told, vector_bars("explained", np.array(answer["explained"]))))
    return pictures


def _classifier(answer: dict[str, Any], shape: DatasetMetadata | None) -> Pictures:
    assert isinstance(shape, LabelledMetadata)  # noqa: S101 - no other is asked for a classifier
    # By the public scales, else features in small units would dwarf all others.
    scale = np.ones(len(shape.features)) if shape.scale is None else np.array(shape.scale)
    rows = np.atleast_2d(answer["coefficients"]) * scale
    errors = NORMAL_95 * standard_errors(answer)[:, :-1] * scale
    of = "Coefficients" if shape.scale is None else "Coefficients times the features' public scales,"
    by = "the noise and the sampling of rows" if answer["sampling"] else "the noise alone"
    starts = np.atleast_1d(answer["intercept"])
    pictures: Pictures = []
    for name, row, start, error in list(zip(towards(answer), rows, starts, errors, strict=True))[:_CLASSES]:
        shown = _furthest(row)
        told = f"{of} towards “{name}”, with intervals of 95 % by {by}. The intercept is {number(start)}."
        told += _rest(shown, len(row), "from zero")
        names = [shape.features[i] for i in shown]
        parts = (values[shown].tolist() for values in (row, row - error, row + error))
        pictures.append((told, intervals(f"class-{len(pictures)}", names, *parts)))
    return pictures


def _selected(answer: dict[str, Any], shape: DatasetMetadata | None) -> Pictures:
    pictures = _classifier(answer, shape)
    if not answer["scores"]:
        return pictures
    reach = NORMAL_95 * answer["score_error"]
    names = [
        f"candidate {place}" + ", chosen" * (place == answer["winner"])
        for place in range(len(answer["scores"]))
    ]
    told = (
        "Share of right answers of each candidate’s small fit, with intervals of 95 % by the noise, among "
        "the records that it was fitted to: good for the choice, and flattering as an estimate."
    )
    ends = ([score + way * reach for score in answer["scores"]] for way in (-1, 1))
    return [*pictures, (told, intervals("scores", names, answer["scores"], *ends))]


def _score(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    named = [(f"{name}, {records}", *numbers) for name, records, *numbers in scores(answer)]
    names, lows, values, highs = zip(*named, strict=True)
    told = "The score, with intervals of 95 %: on new records like these, and on these records."
    return [(told, intervals("score", names, values, lows, highs))]


def _arrays(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    """The numbers, vectors and matrices of any answer."""
    pictures: Pictures = []
    for name, value in answer.items():
        try:
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):  # it is none
            continue
        told = f"{name[:1].upper()}{name[1:].replace('_', ' ')}."
        if array.size and array.ndim in (1, 2):
            draw = vector_bars if array.ndim == 1 else heat_map
            pictures.append((told, draw(name, array)))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            pictures.append((told, Markup('<p class="big center">{}</p>').format(number(value))))
    return pictures


_PICTURES = {
    "frechet-mean": _mean,
    "robust-pca": _subspace,
    "matrix-completion": _subspace,
    "logistic-regression": _classifier,
    "classifier-score": _score,
    "classifier-selection": _selected,
    "bounds": _bounds,
}
"""How answers of some estimators are drawn. All other answers are drawn as plain arrays."""
