"""Objects of a bucket or a web server, read and written by obstore."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies_environment

from pydantic import SecretStr

from privest_service.connections.schemas import NewObjectStore
from privest_service.connections.sources.copying import copy, format_of, parts_of, refused, too_large
from privest_service.connections.sources.one_host import OneHost
from privest_service.formats import Format
from privest_service.upload_errors import RefusedUploadError

_OF_THE_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
"""Options of the HTTP client. obstore wants them apart, and panics if they are among the other options."""

_PROXY, _EXCLUDES = "proxy_url", "proxy_excludes"
"""Proxy options of the HTTP client. obstore never sees them: `OneHost` stands in their place."""

_UNSIGNED = "skip_signature"
"""Option for requests without credentials. All stores but web servers have it."""

_TIMES = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "1d"}
"""Longest waits on an object store.

A connection may take 10 seconds and a read may be silent for 60 seconds. One request may take a day,
because the time limit of the worker ends a fetch that is too long.
"""

_OVERHEAD = 2**20
"""Bytes for heads and encryption, and for an answer that brings no object: a store's error is read whole."""

_PIECE = 4 * 2**20


def check(connection: NewObjectStore) -> None:
    """Refuse what obstore cannot make a store of.

    Raises:
        RefusedUploadError: an option is unknown or missing, or the URL is not one.
    """
    options = _sorted(connection)
    _proxies(options)
    _open(connection, options)


def fetch(connection: NewObjectStore, path: str, target: str, limit: int) -> Format:
    """Copy one object, as it was at one moment; see `sources.fetch`.

    No redirect is followed to another host: it could lead into the service's own network.
    """
    import obstore  # noqa: PLC0415 - in workers alone

    key, form = "/".join(parts_of(path)), format_of(path)
    options = _sorted(connection)
    with OneHost(_proxies(options), limit + limit // 8 + _OVERHEAD) as way:
        # Each request on a connection of its own, as the way takes one for each.
        options.client.update({_PROXY: way.url, "pool_max_idle_per_host": "0"})
        # Without signatures no credentials are looked for: the first that is asked for is the store itself.
        with suppress(obstore.exceptions.BaseError, OSError, ValueError):
            obstore.head(_open(connection, options, signed=False), key)
        if not way.let_out():
            raise _not_given()
        copy(_pieces(_open(connection, options), key, limit), target, limit)
    return form


def put(connection: NewObjectStore, key: str, content: bytes) -> None:
    """Write a new object, to the store itself and nowhere else, as `fetch` reads from it alone.

    Raises:
        RefusedUploadError: the store did not take it.
    """
    import obstore  # noqa: PLC0415 - in workers alone

    options = _sorted(connection)
    with OneHost(_proxies(options), _OVERHEAD) as way:
        options.client.update({_PROXY: way.url, "pool_max_idle_per_host": "0"})
        with suppress(obstore.exceptions.BaseError, OSError, ValueError):
            obstore.head(_open(connection, options, signed=False), key)
        if not way.let_out():
            raise _not_taken()
        try:
            obstore.put(_open(connection, options), key, content)
        except (obstore.exceptions.BaseError, OSError, ValueError):
            raise _not_taken() from None


def _not_taken() -> RefusedUploadError:
    return refused("could not be written: the object store did not take this object")


def _pieces(store: Any, key: str, limit: int) -> Iterator[bytes]:
    import obstore  # noqa: PLC0415 - in workers alone

    try:
        if obstore.head(store, key)["size"] > limit:
            raise too_large(limit)
        stream = iter(obstore.get(store, key).stream(min_chunk_size=_PIECE))
        while (piece := next(stream, None)) is not None:
            yield bytes(piece)
    except FileNotFoundError:
        raise refused("must name an object that exists") from None
    except (obstore.exceptions.BaseError, OSError, ValueError):
        raise _not_given() from None


def _not_given() -> RefusedUploadError:
    return refused("could not be read: the object store did not give this object")


@dataclass(frozen=True)
class _Options:
    """An object store's options, as obstore takes them: apart."""

    client: dict[str, Any]
    store: dict[str, Any]


def _sorted(connection: NewObjectStore) -> _Options:
    options = _Options(dict(_TIMES), {})
    for name, given in connection.options.items():
        value = given.get_secret_value() if isinstance(given, SecretStr) else str(given).lower()
        plain = _plain(name)
        if plain in _OF_THE_CLIENT:
            options.client[plain] = value
        else:
            options.store[plain if plain in (_PROXY, _EXCLUDES) else name] = value
    return options


def _plain(name: str) -> str:
    return name.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")


def _proxies(options: _Options) -> dict[str, str]:
    """Take the proxy out of the options, as `urllib.request` has proxies; by default the environment's.

    Raises:
        RefusedUploadError: it is reached in another way than by plain HTTP.
    """
    url, excludes = options.store.pop(_PROXY, None), options.store.pop(_EXCLUDES, "")
    found = {"all": url, "no": excludes} if url else getproxies_environment()
    for scheme in found.keys() & {"http", "https", "all"}:
        if "://" not in found[scheme]:
            found[scheme] = f"http://{found[scheme]}"
        if not found[scheme].startswith("http://"):
            raise refused("must have a proxy that looks like http://host:port")
    return found


def _open(connection: NewObjectStore, options: _Options, *, signed: bool = True) -> Any:
    from obstore.store import HTTPStore, from_url  # noqa: PLC0415 - in workers alone

    make: Any = from_url  # its overloads know each store's options; here they are the administrator's
    url, client, named = connection.url.get_secret_value(), options.client, options.store
    try:
        store = make(url, client_options=client, **named)
        if signed or isinstance(store, HTTPStore):
            return store
        unsigned = {name: value for name, value in named.items() if _plain(name) != _UNSIGNED}
        return make(
            url, client_options=client, retry_config={"max_retries": 0}, **unsigned, **{_UNSIGNED: "true"}
        )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # it panics where one option is another's
        raise refused("must have a URL and options of an object store that fit together") from None
