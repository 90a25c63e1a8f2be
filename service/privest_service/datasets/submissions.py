"""The two bodies by which a dataset is registered."""

from typing import Annotated, Literal

from fastapi import UploadFile
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from privest_service.datasets.schemas import DatasetSchema
from privest_service.inputs import Id, Input, Name

RowsOf = Annotated[
    Id | None,
    Field(
        description="a dataset of yours, deleted or not, that holds the same rows, under whatever schema:"
        " caps on either hold for both. Nothing else joins two datasets"
    ),
]
"""The declaration that two datasets hold the same rows."""


def _file(given: object) -> object:
    if isinstance(given, str):
        raise ValueError("must be a file with a name, as `curl -F file=@rows.csv` sends it")
    return given


_HEADER = "of csv: whether the first line names the columns; needed where it holds numbers"


class NewUpload(BaseModel):
    """A form with a file of records."""

    model_config = ConfigDict(extra="forbid")

    file: Annotated[
        UploadFile,
        BeforeValidator(_file),
        # Some generators know a file by its media type, others by its format.
        Field(description="npy, npz, csv, parquet, arrow or json", json_schema_extra={"format": "binary"}),
    ]
    declared: Annotated[str, Field(alias="schema", description="JSON of a dataset schema")]
    name: Annotated[Name | None, Field(description="by which people know it; public")] = None
    rows_of: RowsOf = None
    header: Annotated[
        Literal["true", "false"] | None,
        Field(description=_HEADER),
    ] = None
    sha256: Annotated[
        str | None,
        StringConstraints(pattern=r"^[0-9a-fA-F]{64}$"),
        Field(description="of the file, checked when it has arrived"),
    ] = None

    @property
    def has_header(self) -> bool | None:
        """Whether the first line names the columns; None where nobody said so."""
        return None if self.header is None else self.header == "true"


class FileForm(NewUpload):
    """A form with a file of records and a schema of them."""

    # Read as that of `NewUpload` is; programs that are made of the interface see what a schema may hold.
    declared: Annotated[
        str,
        BeforeValidator(lambda given: given, json_schema_input_type=DatasetSchema),
        Field(alias="schema", description="a dataset schema, as JSON"),
    ]


class NewHandle(Input):
    """A handle of data behind a connection that was assigned to the owner. The rows are copied now."""

    uri: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9-]{1,63}:[^\x00-\x1f\x7f]{1,1000}$"),
        Field(description="connection:path of a file or object, connection:table or connection:schema.table"),
    ]
    name: Annotated[Name | None, Field(description="by which people know it; public")] = None
    rows_of: RowsOf = None
    header: Annotated[
        bool | None,
        Field(description=_HEADER),
    ] = None
    declared: Annotated[DatasetSchema, Field(alias="schema")]
