"""Objects of a bucket or a web server, by obstore."""

from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr

from privest_service.connections.schemas import NewObjectStore
from privest_service.connections.sources.copying import copy, format_of, parts_of, refused, too_large
from privest_service.datasets.readers import Format

_OF_THE_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
"""Options of the HTTP client. obstore wants them apart, and panics where it meets them among the others."""

_TIMES = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "1d"}
"""Of silence, so that a large object may take its time: what ends a fetch is the limit on the worker."""

_PIECE = 4 * 2**20


def check(connection: NewObjectStore) -> None:
    """Refuse what obstore cannot make a store of.

    Raises:
        RefusedUploadError: an option is unknown or missing, or the URL is not one.
    """
    _open(connection)


def fetch(connection: NewObjectStore, path: str, target: str, limit: int) -> Format:
    """Copy one object, as it was at one moment; see `sources.fetch`."""
    key, form = "/".join(parts_of(path)), format_of(path)
    copy(_pieces(_open(connection), key, limit), target, limit)
    return form


def _pieces(store: Any, key: str, limit: int) -> Iterator[bytes]:
    import obstore  # noqa: PLC0415 - in workers alone

    try:
        if obstore.head(store, key)["size"] > limit:
            raise too_large(limit)
        stream = iter(obstore.get(store, key).stream(min_chunk_size=_PIECE))
        while (piece := next(stream, None)) is not None:
            yield bytes(piece)
    except FileNotFoundError:
        raise refused("there is no object of this name") from None
    except (obstore.exceptions.BaseError, OSError, ValueError):
        raise refused("the object store did not give this object") from None


def _open(connection: NewObjectStore) -> Any:
    from obstore.store import from_url  # noqa: PLC0415 - in workers alone

    options: dict[str, Any] = {}
    client: dict[str, Any] = dict(_TIMES)
    for name, given in connection.options.items():
        value = given.get_secret_value() if isinstance(given, SecretStr) else str(given).lower()
        plain = name.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if plain in _OF_THE_CLIENT:
            client[plain] = value
        else:
            options[name] = value
    make: Any = from_url  # its overloads know each store's options; here they are the administrator's
    try:
        return make(connection.url.get_secret_value(), client_options=client, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # it panics where one option is another's
        raise refused("the object store's URL and options do not fit together") from None
