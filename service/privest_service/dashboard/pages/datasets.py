"""Datasets: public facts, what was spent on each, upload, deletion."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.data.metadata import DatasetMetadata
from privest.data.table_metadata import TableMetadata
from privest.data.tables import Column
from privest.estimators.registry import ESTIMATORS
from privest.manifolds import MANIFOLDS, parameters
from privest_service.dashboard.forms import from_json, texts
from privest_service.dashboard.outside_bounds import hand_over, handed_over
from privest_service.dashboard.page import FilePage, Page, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.session_auth import FormDep, OwnerDep, OwnerOfDataDep, Visitor
from privest_service.database import Database
from privest_service.database.tables import CURSOR
from privest_service.datasets import service
from privest_service.datasets.dependencies import RegistrarDep, StoreDep
from privest_service.datasets.endpoints import format_of
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.registration import uploaded
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.datasets.submissions import NewUpload
from privest_service.formats import ENDINGS, Format
from privest_service.inputs import checked, parsed
from privest_service.ledger import service as ledger
from privest_service.limits import in_thread
from privest_service.problems import DatasetInvalid, Fault, Invalid, Problem
from privest_service.reports.formatting import cell_text
from privest_service.reports.shares import by_dataset
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep
from privest_service.security.models import Analyst

router = APIRouter(prefix="/dashboard/datasets", route_class=Page)
uploads = APIRouter(prefix="/dashboard/datasets", route_class=FilePage)

_PAGE = 100

SchemaKind = Literal["table", "points", "vectors", "partial-vectors", "labelled", "json"]

_TABLE = """{"kind": "table", "columns": [
  {"name": "age", "type": "integer", "low": 0, "high": 110},
  {"name": "sex", "type": "category", "categories": ["female", "male"], "missing": "category"}]}"""
"""What the form begins with where a table is declared as JSON."""

_LABELS = {"dim": "Dimension"}
"""Labels for parameters of manifolds whose name alone says too little."""


def _parameters() -> list[dict[str, Any]]:
    """What the form asks of manifolds: each parameter once, with what it means on which of them."""
    fields: dict[str, dict[str, Any]] = {}
    for manifold in MANIFOLDS:
        for name, (hint, doc) in parameters(manifold).items():
            field = fields.setdefault(
                name, {"of": [], "meanings": defaultdict(list), "values": [], "mode": "numeric"}
            )
            field["of"].append(manifold)
            if hint is float:
                field["mode"] = "decimal"
            field["meanings"][doc.description].append(manifold)
            field["values"] += get_args(hint) if get_origin(hint) is Literal else ()
    found = list[dict[str, Any]]()
    for name, field in fields.items():
        of_all = len(field["of"]) == len(MANIFOLDS)
        label = _LABELS.get(name, name.capitalize()) + ("" if of_all else f" ({', '.join(field['of'])})")
        meanings = [f"{meaning} ({', '.join(of)})" for meaning, of in field["meanings"].items()]
        hint = "; ".join(meanings)
        told = {"name": name, "label": label, "hint": hint, "required": of_all}
        found.append(told | {key: field[key] for key in ("values", "mode")})
    return found


_PARAMETERS = _parameters()


@router.get("")
def read(
    request: Request,
    visitor: OwnerDep,
    database: DatabaseDep,
    after: Annotated[str, Query(pattern=f"^({CURSOR})?$")] = "",
) -> Response:
    """The datasets of the owner, newest first."""
    with database.read() as session:
        seen = page_version(session, visitor.id)
        own, further = service.visible(session, visitor.principal, limit=_PAGE, cursor=after)
        parts = by_dataset(session, ledger.owner_account(session, visitor.id), own)
    spent = {part.id: part for part in parts}
    first: dict[str, str] = {}
    for dataset in own:
        first.setdefault(dataset.lineage, dataset.id)
    lineages = defaultdict[str, set[str]](set)
    for dataset in own:
        lineages[dataset.fingerprint].add(dataset.lineage)
    return render(
        request,
        "datasets.html",
        seen=seen,
        datasets=[(dataset, spent.get(first[dataset.lineage])) for dataset in own],
        further=further,
        joined={dataset.id for dataset in own if first[dataset.lineage] != dataset.id},
        apart={dataset.id for dataset in own if len(lineages[dataset.fingerprint]) > 1},
    )


@router.get("/new")
def form(
    request: Request, visitor: OwnerOfDataDep, database: DatabaseDep, kind: SchemaKind = "table"
) -> Response:
    """Where a file becomes a dataset."""
    return _form(request, visitor, database, kind, {}, None)


def _form(
    request: Request,
    visitor: Visitor,
    database: Database,
    kind: str,
    given: Mapping[str, str],
    problem: Problem | None,
) -> Response:
    with database.read() as session:
        registered, _ = service.visible(session, visitor.principal)
    return render(
        request,
        "upload.html",
        status=problem.status if problem else 200,
        kind=kind,
        kinds=get_args(SchemaKind),
        manifolds=list(MANIFOLDS),
        parameters=_PARAMETERS,
        uses=[title(name) for name, each in ESTIMATORS.items() if each.metadata.kind == kind],
        formats=get_args(Format),
        endings=ENDINGS,
        given=given,
        table=_TABLE,
        problem=problem,
        registered=registered,
    )


@uploads.post("/new")
async def upload(
    request: Request, visitor: OwnerOfDataDep, database: DatabaseDep, registrar: RegistrarDep, form: FormDep
) -> Response:
    """Register a file, as `POST /v1/datasets` does; or say what is wrong with it, record by record."""
    given = texts(form)
    kind = given.get("kind", "")
    try:
        schema = _schema(kind, given)
        file = form.get("file")
        if file is None or isinstance(file, str) or not file.filename:
            raise DatasetInvalid(faults=[Fault(location="file", rule="choose a file")])
        optional = {name: given.get(name) or None for name in ("name", "header", "rows_of")}
        new = checked(NewUpload.model_validate, {"file": file, "schema": "", **optional})
        form_of_file = format_of(file)
        made = await registrar.register(
            visitor.id,
            uploaded(file.file, form_of_file),
            schema,
            name=new.name,
            rows_of=new.rows_of,
            header=new.has_header,
        )
    except Problem as problem:
        known = kind if kind in get_args(SchemaKind) else "table"
        return await in_thread(_form, request, visitor, database, known, given, problem)
    finally:
        await form.close()
    # A csv file was taken: its first line was a header unless the form said otherwise, and always of a table.
    first = (
        ""
        if form_of_file != "csv" or kind == "table"
        else "&first=record"
        if new.has_header is False
        else "&first=header"
    )
    answer = redirect(request, f"/datasets/{made.dataset.id}?done=uploaded{first}")
    hand_over(request, answer, made, _names_of_columns(schema.shape(made.dataset.n)))
    return answer


def _schema(kind: str, given: Mapping[str, str]) -> DatasetSchema:
    """What the fields of a form declare.

    Raises:
        Invalid: a field holds no JSON or no number, or they break a rule.
    """
    if kind in ("table", "json"):
        return checked(SCHEMA.validate_python, parsed(given.get("schema", ""), "schema"))
    fields = {name: value for name, value in given.items() if value}
    declared: dict[str, Any] = {"kind": kind}
    if kind == "points":
        declared |= {"manifold": _manifold(fields), **_numbers(fields, "center", "radius")}
    elif kind == "vectors":
        declared |= _numbers(fields, "dim", "norm_bound")
    elif kind == "partial-vectors":
        declared |= _numbers(fields, "dim", "known")
    else:
        declared |= {name: _names(fields.get(name, "")) for name in ("features", "classes")}
        declared |= {"label": fields.get("label", "")}
        for name in ("mean", "scale"):
            if name in fields:
                declared |= _numbers({name: f"[{fields[name]}]"}, name)
        declared |= _numbers(fields, "norm_bound")
    return checked(SCHEMA.validate_python, declared)


def _manifold(fields: Mapping[str, str]) -> dict[str, Any]:
    """The manifold of a form, with those of the given parameters that it has.

    Raises:
        Invalid: a parameter is no number.
    """
    name = fields.get("manifold", "")
    known = parameters(name) if name in MANIFOLDS else {}
    words = [param for param, (hint, _) in known.items() if get_origin(hint) is Literal]
    numbers = _numbers(fields, *(param for param in known if param not in words))
    return {"name": name, **numbers, **{param: fields[param] for param in words if param in fields}}


def _numbers(fields: Mapping[str, str], *names: str) -> dict[str, Any]:
    """Numbers and lists of them, as JSON has them.

    Raises:
        Invalid: a field holds something else.
    """
    rule = "must be a number, or a list like [1, 0]"
    return {name: from_json(fields[name], name, rule) for name in names if name in fields}


def _names(text: str) -> list[str]:
    """Names between commas; one that has a comma in it stands between quotes."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


@router.get("/{dataset_id}")
def one(request: Request, dataset_id: str, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """Public facts of one, who may ask about it, and what was spent on its rows."""
    return _one(request, dataset_id, visitor, database, "dataset.html")


@router.get("/{dataset_id}/delete")
def confirm(request: Request, dataset_id: str, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """What deletion means, before it is done."""
    return _one(request, dataset_id, visitor, database, "delete.html")


def _one(
    request: Request,
    dataset_id: str,
    visitor: Visitor,
    database: Database,
    template: str,
    problem: Problem | None = None,
) -> Response:
    with database.read() as session:
        dataset = service.require_own(session, visitor.principal, dataset_id)
        account = ledger.owner_account(session, visitor.id)
        parts = by_dataset(session, account, [dataset])
        same = service.with_same_rows(session, dataset)
        granted = session.execute(
            select(Grant, Analyst.name)
            .join(Analyst, Analyst.id == Grant.analyst_id)
            .where(Grant.dataset_id == dataset_id, Grant.revoked_at.is_(None))
        )
        grants = list(granted)
    schema = SCHEMA.validate_json(dataset.dataset_schema)
    shape = schema.shape(dataset.n)
    return render(
        request,
        template,
        status=problem.status if problem else 200,
        problem=problem,
        dataset=dataset,
        spent=next((part for part in parts if part.id == dataset.id), None),
        joined=[each for each in same if each.lineage == dataset.lineage],
        apart=[each for each in same if each.lineage != dataset.lineage],
        grants=grants,
        shape=shape.record,
        columns=columns_of(shape),
        schema=schema.model_dump(mode="json", exclude_none=True),
        done=request.query_params.get("done") == "uploaded",
        outside_bounds=handed_over(request, _names_of_columns(shape)),
        first=request.query_params.get("first"),
    )


def _names_of_columns(shape: DatasetMetadata) -> list[str]:
    return [column.name for column in shape.columns] if isinstance(shape, TableMetadata) else []


def columns_of(shape: DatasetMetadata) -> list[tuple[str, str, str, str]]:
    """Name, type, values and gaps of a table's columns."""
    return [
        (column.name, column.type, _values(column), _gap(column))
        for column in (shape.columns if isinstance(shape, TableMetadata) else ())
    ]


def _values(column: Column) -> str:
    if not column.is_ordered:
        return ", ".join(column.values)
    low, high = ("…" if end is None else cell_text(column, end) for end in (column.low, column.high))
    return f"{low} to {high}"


def _gap(column: Column) -> str:
    return f"{cell_text(column, column.fill)} in its place" if column.fill is not None else column.missing


@router.post("/{dataset_id}/delete")
def delete(
    request: Request,
    dataset_id: str,
    visitor: OwnerOfDataDep,
    store: StoreDep,
    database: DatabaseDep,
    form: FormDep,
) -> Response:
    """Delete the rows, if their name was written; what was spent on them stays spent."""
    given = texts(form).get("name")

    def change(session: Session) -> Dataset:
        dataset = service.require_own(session, visitor.principal, dataset_id)
        if given != (dataset.name or dataset.id):
            raise Invalid(faults=[Fault(location="name", rule="must be the name of this dataset")])
        service.delete(session, dataset)
        return dataset

    try:
        deleted = database.run(change)
    except Invalid as problem:
        return _one(request, dataset_id, visitor, database, "delete.html", problem)
    service.remove_rows(store, deleted)
    return redirect(request, "/datasets")
