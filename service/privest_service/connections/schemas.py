"""Requests and answers about connections. What opens one comes in and never goes out."""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    TypeAdapter,
)
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from privest_service.inputs import Input

_STORES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https")

Hidden = Annotated[SecretStr, PlainSerializer(SecretStr.get_secret_value, return_type=str, when_used="json")]
"""A secret that nothing shows but the JSON that is encrypted for the database."""


def _absolute(root: str) -> str:
    if not root.startswith("/"):
        raise ValueError("must be an absolute path")
    return root


def _store(url: SecretStr) -> SecretStr:
    scheme, separator, _ = url.get_secret_value().partition("://")
    if not separator or scheme not in _STORES:
        raise ValueError(f"must be the URL of an object store: {', '.join(_STORES)}")
    return url


def _database(url: SecretStr) -> SecretStr:
    try:
        backend = make_url(url.get_secret_value()).get_backend_name()
    except (ArgumentError, ValueError):
        raise ValueError("must be the URL of a database") from None
    if backend == "sqlite":
        raise ValueError(
            "must not be SQLite, which is a file: export its tables and register a connection of kind files"
        )
    return url


ConnectionName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")]
"""The name that owners use for a connection."""


class _New(Input):
    name: ConnectionName


class NewFiles(_New):
    """A directory of this machine, or mounted on it; links below it are not followed."""

    kind: Literal["files"]
    root: Annotated[
        str, StringConstraints(max_length=4000, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(_absolute)
    ]


class NewObjectStore(_New):
    """A bucket or a folder in one; options are those of obstore for this kind of URL."""

    kind: Literal["object-store"]
    url: Annotated[Hidden, Field(max_length=4000), AfterValidator(_store)]
    options: dict[str, Hidden | bool] = Field(default={}, max_length=50)


class NewDatabase(_New):
    """A database, by an SQLAlchemy URL with a role that may only read."""

    kind: Literal["database"]
    url: Annotated[Hidden, Field(max_length=4000), AfterValidator(_database)]


NewConnection = Annotated[NewFiles | NewObjectStore | NewDatabase, Field(discriminator="kind")]
"""What an administrator registers."""

NEW_CONNECTION: TypeAdapter[NewConnection] = TypeAdapter(NewConnection)
"""Reads a new connection from JSON."""


class ConnectionView(BaseModel):
    """A connection by its name."""

    name: str
    kind: str
    owners: Annotated[list[str] | None, Field(description="to whom it is assigned; for administrators")] = (
        None
    )


class ConnectionList(BaseModel):
    """All connections, or those of an owner, by name."""

    connections: list[ConnectionView]
    next: Annotated[str | None, Field(description="`cursor` of the next page, where one follows")] = None
