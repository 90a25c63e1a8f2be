"""Pictures of answers that an owner may see: those to its own questions."""

import json
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup
from sqlalchemy import and_, or_, select

from privest.estimators.federation import Part
from privest.metadata import DatasetMetadata, LabelledMetadata, PointsMetadata
from privest_service.dashboard.budget_summary import title, unit
from privest_service.dashboard.charts import (
    ellipse,
    heat_map,
    in_disk,
    intervals,
    loadings,
    on_circle,
    vector_bars,
)
from privest_service.dashboard.formatting import number, numbers
from privest_service.dashboard.page import Page, render
from privest_service.dashboard.pages.ledger import names_of_datasets
from privest_service.dashboard.session_auth import OwnerDep
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.service import require_job
from privest_service.estimates.views import read_answer
from privest_service.inputs import Id
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.problems import NotFound
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/answers", route_class=Page)

_PAGE = 24

_NORMAL_95 = 1.96

_CLASSES, _FEATURES = 10, 30
"""Most classes and features of a classifier that are drawn; a table below lists all numbers."""


@router.get("")
def read(request: Request, visitor: OwnerDep, database: DatabaseDep, before: Id = "") -> Response:
    """The owner's own questions that were answered, newest first."""
    statement = select(Job).where(Job.submitter_id == visitor.id, Job.result.is_not(None))
    with database.read() as session:
        last = session.get(Job, before) if before else None
        if last and last.submitter_id == visitor.id:
            statement = statement.where(
                or_(
                    Job.created_at < last.created_at,
                    and_(Job.created_at == last.created_at, Job.id < last.id),
                )
            )
        jobs = session.scalars(statement.order_by(Job.created_at.desc(), Job.id.desc()).limit(_PAGE)).all()
        names = names_of_datasets(session, visitor.id)
    return render(
        request,
        "answers.html",
        jobs=jobs,
        plans={job.id: stored_plan(job.kind, job.plan) for job in jobs},
        names=names,
        title=title,
        further=jobs[-1].id if len(jobs) == _PAGE else None,
    )


@router.get("/{job_id}")
def one(request: Request, job_id: str, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """One answer, as a picture and as numbers."""
    with database.read() as session:
        job = require_job(session, visitor.principal, job_id)
        if job.submitter_id != visitor.id or job.result is None:
            raise NotFound("answers are for those who asked")
        about = [str(each.dataset_id) for each in jobs.parts_of(session, job) or [job]]
        names = names_of_datasets(session, visitor.id)
    plan = stored_plan(job.kind, job.plan)
    told = read_answer(plan, job.result)
    answer = told.estimate
    picture = _PICTURES.get(job.kind, _arrays)
    return render(
        request,
        "answer.html",
        job=job,
        plan=plan,
        name=", ".join(names[each] for each in about if each in names),
        title=title(job.kind),
        pictures=picture(answer, None if plan is None or isinstance(plan, Part) else plan.shape),
        columns=_columns(answer) if answer and job.kind == "frechet-mean" else [],
        found=told.uncertainty if told.uncertainty and "of" in told.uncertainty else None,
        foretold=told.forecast,
        unit=unit(job.kind),
        warnings=told.warnings,
        numbers=json.dumps(answer, indent=2, ensure_ascii=False)[:100_000],
    )


def _columns(answer: dict[str, Any]) -> list[tuple[str, bool, str, str, str]]:
    """The means of a table's columns: name, whether it is a share, value, and both ends of the interval."""
    found = list[tuple[str, bool, str, str, str]]()
    for each in answer.get("columns") or ():
        told = [each[part] for part in ("low", "value", "high")]  # of dates texts
        low, value, high = told if isinstance(told[0], str) else numbers(told)
        found.append((each["name"], each["kind"] == "share", value, low, high))
    return found


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
    if names := [each["name"] for each in answer.get("columns") or ()]:
        return [("Where each mean lies between its bounds, −1 and 1.", vector_bars("mean", point, names))]
    return [("The coordinates of the mean.", vector_bars("mean", point))]


def _subspace(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    basis = np.array(answer["basis"])
    told = "Loadings: how each feature points along each direction of the subspace."
    names = answer.get("columns") or [f"x{i + 1}" for i in range(len(basis))]
    pictures = [(told, loadings("basis", basis, names))]
    if answer.get("center") is not None:
        named = answer.get("columns")
        told = "The centre of the subspace" + (", between the bounds −1 and 1." if named else ".")
        pictures.append((told, vector_bars("center", np.array(answer["center"]), named)))
    if answer.get("explained") is not None:
        told = "Shares of the rows' variance along each direction."
        pictures.append((told, vector_bars("explained", np.array(answer["explained"]))))
    return pictures


def _classifier(answer: dict[str, Any], shape: DatasetMetadata | None) -> Pictures:
    assert isinstance(shape, LabelledMetadata)  # noqa: S101 - no other is asked for a classifier
    # By the public scales, else features in small units would dwarf all others.
    scale = np.ones(len(shape.features)) if shape.scale is None else np.array(shape.scale)
    rows = np.atleast_2d(answer["coefficients"]) * scale
    spreads = [answer["noise"], *([answer["sampling"]] if answer["sampling"] else [])]
    variances = [np.atleast_2d(each["standard_errors"])[:, :-1] ** 2 for each in spreads]
    errors = _NORMAL_95 * np.sqrt(np.sum(variances, axis=0)) * scale
    of = "Coefficients" if shape.scale is None else "Coefficients times the features' public scales,"
    by = "the noise and the sampling of rows" if answer["sampling"] else "the noise alone"
    classes = answer["classes"] if len(rows) > 1 else answer["classes"][1:]
    starts = np.atleast_1d(answer["intercept"])
    pictures: Pictures = []
    for name, row, start, error in list(zip(classes, rows, starts, errors, strict=True))[:_CLASSES]:
        shown = np.sort(np.argsort(-np.abs(row), kind="stable")[:_FEATURES])
        told = f"{of} towards “{name}”, with intervals of 95 % by {by}. The intercept is {number(start)}."
        if len(shown) < len(row):
            told += f" Of {len(row)}, the {_FEATURES} that are furthest from zero."
        names = [shape.features[i] for i in shown]
        parts = (values[shown].tolist() for values in (row, row - error, row + error))
        pictures.append((told, intervals(f"class-{len(pictures)}", names, *parts)))
    return pictures


def _score(answer: dict[str, Any], _: DatasetMetadata | None) -> Pictures:
    names, values, errors = list[str](), list[float](), list[float]()
    for name, score in ((answer["metric"], answer), ("accuracy", answer["accuracy"])):
        if score:
            names.append(name)
            values.append(score["value"])
            errors.append(_NORMAL_95 * float(np.hypot(score["standard_error"], score["sampling_error"])))
    lows, highs = (np.clip(np.array(values) + sign * np.array(errors), 0, 1).tolist() for sign in (-1, 1))
    told = "The score, with an interval of 95 % by the noise and the sampling of rows."
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
}
"""How answers of some estimators are drawn. All other answers are drawn as plain arrays."""
