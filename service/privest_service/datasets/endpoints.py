"""Datasets and grants."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from privest.data.table_metadata import TableMetadata
from privest_service.connections import service as connections
from privest_service.connections.schemas import NewConnection
from privest_service.database import Database
from privest_service.database.tables import CURSOR
from privest_service.datasets import service
from privest_service.datasets.answers import (
    CapView,
    DatasetList,
    DatasetView,
    DummyRows,
    GrantList,
    GrantView,
    Left,
)
from privest_service.datasets.dependencies import RegistrarDep, StoreDep
from privest_service.datasets.dummy_files import DummyMedia, dummy_file, preferred
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.registration import Registered, Registrar, uploaded
from privest_service.datasets.schemas import SCHEMA, NewCap, NewGrant
from privest_service.datasets.submissions import FileForm, NewHandle, NewUpload
from privest_service.datasets.terms import Terms
from privest_service.formats import Format, format_of_name
from privest_service.inputs import checked, either_body, names_of, parsed, require_known
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import Amount
from privest_service.ledger.service import limits_of, owner_account
from privest_service.ledger.units import EPSILON, PROBABILITY, Limits, as_number
from privest_service.ledger.views import budget, largest_single
from privest_service.limits import in_thread
from privest_service.problems import (
    DatasetInvalid,
    Invalid,
    NotFound,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
    documented,
)
from privest_service.security.admission import Route, Uploading
from privest_service.security.dependencies import (
    DatabaseDep,
    DataDep,
    LimiterDep,
    ManageDep,
    ReadDep,
    SettingsDep,
    WorkersDep,
)
from privest_service.security.service import require_analyst

router = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=Route)
grants = APIRouter(prefix="/v1/grants", tags=["datasets"], route_class=Route)
uploads = APIRouter(prefix="/v1/datasets", tags=["datasets"], route_class=Uploading)

_REFUSED = documented(NotFound, DatasetInvalid, TooLarge, UnsupportedMediaType, Unavailable)
"""Problems that a new dataset may meet."""

_FORMATS: dict[str, Format] = {
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/json": "json",
    "application/vnd.apache.arrow.file": "arrow",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "application/x-npy": "npy",
    "application/x-npz": "npz",
}

_JSON = "application/json"

_FIELDS = names_of(NewUpload.model_fields)
"""The fields of the form in which a file comes."""

_MOST_FIELDS = 20
"""Most fields of a form that are read, known or not."""


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def format_of(file: UploadFile) -> Format:
    """Return the format that the content type names, or else the ending of the file's name.

    Raises:
        UnsupportedMediaType: neither names a format that is read.
    """
    form = _FORMATS.get(_media_type(file.content_type)) or format_of_name(file.filename or "")
    if form is None:
        known = ", ".join(get_args(Format))
        raise UnsupportedMediaType(
            f"Upload one of {known}, named by the file's ending or by its content type."
        )
    return form


def dataset_view(dataset: Dataset, caller_id: str, same_rows: Sequence[Dataset] | None = None) -> DatasetView:
    """The public facts of a dataset, and what its owner alone is told."""
    schema, is_owner = SCHEMA.validate_json(dataset.dataset_schema), caller_id == dataset.owner_id
    return DatasetView(
        id=dataset.id,
        name=dataset.name,
        kind=dataset.kind,
        n=dataset.n,
        shape=[dataset.n, *schema.shape(dataset.n).record],
        dataset_schema=schema,
        created_at=dataset.created_at,
        fingerprint=dataset.fingerprint if is_owner else None,
        rows_of=dataset.lineage if is_owner and dataset.lineage != dataset.id else None,
        at_site=dataset.at_site if is_owner else None,
        same_rows=None if same_rows is None else [other.id for other in same_rows],
    )


@uploads.post(
    "",
    status_code=201,
    responses=_REFUSED,
    openapi_extra=either_body({"multipart/form-data": NewUpload, _JSON: NewHandle}),
)
async def create_dataset(
    request: Request,
    caller: DataDep,
    database: DatabaseDep,
    registrar: RegistrarDep,
    limiter: LimiterDep,
    settings: SettingsDep,
) -> DatasetView:
    """Register records: an upload, or what a connection leads to, of which a copy is made now.

    Each is checked against the schema before any of them is stored.
    """
    caller.must_be("owner")
    if _media_type(request.headers.get("content-type")) == _JSON:
        body = parsed(await _short(request, settings.max_request_bytes))
        handle = checked(NewHandle.model_validate, body)
        connection, path = await in_thread(_resolved, database, caller.id, handle.uri, settings.secret)
        made = await registrar.register(
            caller.id,
            registrar.behind(connection, path),
            handle.declared,
            name=handle.name,
            rows_of=handle.rows_of,
            header=handle.header,
        )
    else:
        made = await _uploaded(request, caller.id, registrar, limiter.largest_body)
    return await in_thread(_registered_view, database, made)


@uploads.post(
    "/upload",
    status_code=201,
    responses=_REFUSED,
    openapi_extra=either_body({"multipart/form-data": FileForm}),
)
async def upload_dataset(
    request: Request, caller: DataDep, database: DatabaseDep, registrar: RegistrarDep, limiter: LimiterDep
) -> DatasetView:
    """Register the records of a file, as `POST /v1/datasets` does.

    It takes nothing else, so that generated programs keep the two apart.
    """
    caller.must_be("owner")
    made = await _uploaded(request, caller.id, registrar, limiter.largest_body)
    return await in_thread(_registered_view, database, made)


def _registered_view(database: Database, made: Registered) -> DatasetView:
    """Return the owner's view of a new dataset, with others of the same rows and values outside bounds."""
    dataset = made.dataset
    with database.read() as session:
        view = dataset_view(dataset, dataset.owner_id, service.with_same_rows(session, dataset))
    return view.model_copy(update={"outside_bounds": made.outside_bounds})


async def _uploaded(request: Request, owner_id: str, registrar: Registrar, largest_body: int) -> Registered:
    """The file that a request brings, as a dataset."""
    # What is no file is kept in memory.
    async with request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=largest_body) as form:
        require_known([name for name, _ in form.multi_items()], _FIELDS, "form field")
        upload = checked(NewUpload.model_validate, dict(form))
        schema = checked(SCHEMA.validate_python, parsed(upload.declared, "schema"))
        return await registrar.register(
            owner_id,
            uploaded(upload.file.file, format_of(upload.file), upload.sha256),
            schema,
            name=upload.name,
            rows_of=upload.rows_of,
            header=upload.has_header,
        )


async def _short(request: Request, limit: int) -> bytes:
    """A body that holds no rows. Raises TooLarge: it is longer than such a body may be."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise TooLarge
    return bytes(body)


def _resolved(database: Database, owner_id: str, uri: str, secret: bytes) -> tuple[NewConnection, str]:
    with database.read() as session:
        return connections.resolve(session, owner_id, uri, secret)


@router.get("", responses=documented())
def list_datasets(
    caller: ReadDep,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=service.MOST_LISTED)] = service.MOST_LISTED,
    cursor: Annotated[str, Query(pattern=f"^({CURSOR})?$", description="`next` of the page before")] = "",
) -> DatasetList:
    """The datasets that the caller owns or was granted, newest first, in pages."""
    with database.read() as session:
        found, further = service.visible(session, caller, limit=limit, cursor=cursor)
        return DatasetList(datasets=[dataset_view(dataset, caller.id) for dataset in found], next=further)


@router.get("/{dataset_id}", responses=documented(NotFound))
def read_dataset(dataset_id: str, caller: ReadDep, database: DatabaseDep) -> DatasetView:
    """Public facts of a dataset."""
    with database.read() as session:
        dataset = service.require(session, caller, dataset_id)
        same = service.with_same_rows(session, dataset) if dataset.owner_id == caller.id else None
        return dataset_view(dataset, caller.id, same)


@router.delete("/{dataset_id}", status_code=204, responses=documented(NotFound))
def delete_dataset(dataset_id: str, caller: DataDep, store: StoreDep, database: DatabaseDep) -> Response:
    """Delete the rows. What was spent on them stays spent, and the ledger keeps its entries."""

    def delete(session: Session) -> Dataset:
        dataset = service.require_own(session, caller, dataset_id)
        service.delete(session, dataset)
        return dataset

    service.remove_rows(store, database.run(delete))
    return Response(status_code=204)


@router.get(
    "/{dataset_id}/dummy",
    response_model=DummyRows,
    responses=documented(NotFound, Unavailable)
    | {200: {"content": {media: {} for media in get_args(DummyMedia)}}},
)
def read_dummy(
    dataset_id: str,
    request: Request,
    caller: ReadDep,
    database: DatabaseDep,
    workers: WorkersDep,
    n: Annotated[int, Query(ge=1, le=10_000, description="most rows")] = service.DUMMY_ROWS,
) -> Any:
    """Synthetic records from the schema alone, to try code on: free, and private by construction.

    Those of a table come as csv or Arrow where `Accept` names one of these first; all others are JSON.
    """
    with database.read() as session:
        dataset = service.require(session, caller, dataset_id)
    shape = SCHEMA.validate_json(dataset.dataset_schema).shape(dataset.n)
    media = preferred(request.headers.get("accept", ""))
    # Elsewhere: wide records take seconds and memory to make.
    if media and isinstance(shape, TableMetadata):
        return Response(workers.call_worker(caller.id, dummy_file, shape, n, media), media_type=media)
    return DummyRows(rows=workers.call_worker(caller.id, service.dummy_rows, shape, n))


@router.put("/{dataset_id}/grants/{analyst_id}", responses=documented(NotFound))
def put_grant(
    dataset_id: str, analyst_id: str, body: NewGrant, caller: ManageDep, database: DatabaseDep
) -> GrantView:
    """Let an analyst ask about a dataset, up to a cap or, without one, as far as the budget goes.

    This replaces all that the grant said before.
    """

    def grant(session: Session) -> GrantView:
        dataset = service.require_own(session, caller, dataset_id)
        require_analyst(session, analyst_id)
        cap = cap_of(session, dataset, body)
        service.put_grant(session, dataset, analyst_id, cap, body.terms())
        return grant_view(*service.require_grant(session, caller, dataset_id, analyst_id))

    return database.run(grant)


@router.get("/{dataset_id}/grants/{analyst_id}", responses=documented(NotFound))
def read_grant(dataset_id: str, analyst_id: str, caller: ReadDep, database: DatabaseDep) -> GrantView:
    """A grant in force, as its owner and its analyst may read it."""
    with database.read() as session:
        return grant_view(*service.require_grant(session, caller, dataset_id, analyst_id))


@grants.get("", responses=documented())
def list_grants(
    caller: ReadDep,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=service.MOST_LISTED)] = 100,
    cursor: Annotated[
        str, Query(pattern=f"^({service.GRANT_CURSOR})?$", description="`next` of the page before")
    ] = "",
) -> GrantList:
    """An analyst's grants, or those on an owner's datasets, each with what is left of its cap, in pages."""
    caller.must_be("owner", "analyst")
    with database.read() as session:
        found, further = service.grants(session, caller, limit=limit, cursor=cursor)
        accounts = service.accounts_of(session, found)
        views = [
            grant_view(each, accounts[service.grant_subject(each.dataset_id, each.analyst_id)])
            for each in found
        ]
        return GrantList(grants=views, next=further)


def grant_view(grant: Grant, account: Account) -> GrantView:
    """A grant as it is shown, by what the account of its cap counts: nothing of other accounts."""
    terms, cap = Terms.of(grant), limits_of(account)
    return GrantView(
        dataset=grant.dataset_id,
        analyst=grant.analyst_id,
        cap=_amount(cap) if cap.capped else None,
        left=_left(account) if cap.capped else None,
        approval="required" if terms.approval else None,
        purpose=terms.purpose,
        kinds=None if terms.kinds is None else list(terms.kinds),
        max_epsilon=None if terms.max_epsilon is None else as_number(terms.max_epsilon, EPSILON),
        expires=terms.expires_at,
        decide_within=terms.decide_within,
        publish="allowed" if terms.publish else None,
    )


def _left(account: Account) -> Left:
    state = budget(account)
    return Left(
        epsilon=state.remaining.epsilon,
        delta=state.remaining.delta,
        largest_query=state.largest_query,
        share=max(0.0, 1 - state.share),
        queries=state.queries,
    )


@router.put("/{dataset_id}/cap", responses=documented(NotFound))
def put_cap(dataset_id: str, body: NewCap, caller: ManageDep, database: DatabaseDep) -> CapView:
    """Cap what may be spent on a dataset and on those declared to hold its rows, or lift the cap."""

    def cap(session: Session) -> CapView:
        dataset = service.require_own(session, caller, dataset_id)
        limits = cap_of(session, dataset, body)
        service.put_cap(session, dataset, limits)
        if not limits.capped:
            return CapView(dataset=dataset_id, cap=None)
        return CapView(dataset=dataset_id, cap=_amount(limits), largest_query=largest_single(limits))

    return database.run(cap)


def cap_of(session: Session, dataset: Dataset, body: NewCap) -> Limits:
    """The limits of a cap, in the composition of the owner's budget.

    Raises:
        Invalid: there is no room for any query in it.
    """
    composition = limits_of(owner_account(session, dataset.owner_id)).composition
    if body.epsilon is None or body.delta is None:
        return Limits.none(composition)
    try:
        return Limits.of(body.epsilon, body.delta, composition)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _amount(cap: Limits) -> Amount:
    return Amount(epsilon=as_number(cap.epsilon, EPSILON), delta=as_number(cap.delta, PROBABILITY))


@router.delete("/{dataset_id}/grants/{analyst_id}", status_code=204, responses=documented(NotFound))
def delete_grant(dataset_id: str, analyst_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Revoke a grant at once."""

    def revoke(session: Session) -> None:
        service.require_own(session, caller, dataset_id)
        service.revoke_grant(session, dataset_id, analyst_id)

    database.run(revoke)
    return Response(status_code=204)
