"""Middleware for a service below a path, or behind proxies whose word about callers counts."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from privest_service.problems import UnsupportedMediaType, blank

Network = IPv4Network | IPv6Network

LONGEST_HEAD = 2**16
"""Most bytes of a request before its body."""


def seen_from_outside(app: ASGIApp, root_path: str, proxies: Sequence[Network]) -> ASGIApp:
    """The application with addresses as its callers know them.

    Callers find it below the root path, whether or not a proxy takes that off. X-Forwarded-For, -Proto and
    -Host are believed of the proxies alone.
    """
    forwarded = ProxyHeadersMiddleware(app, list(map(str, proxies)))  # pyright: ignore[reportArgumentType]

    async def outside(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("x-forwarded-host")
            if host and scope["client"] and any(ip_address(scope["client"][0]) in each for each in proxies):
                MutableHeaders(scope=scope)["host"] = host.rpartition(",")[2].strip()
            if root_path:
                scope["root_path"] = root_path
                if not f"{scope['path']}/".startswith(f"{root_path}/"):
                    scope["path"] = root_path + scope["path"]
        await forwarded(scope, receive, send)  # pyright: ignore[reportArgumentType]

    return outside


def unstored(app: ASGIApp) -> ASGIApp:
    """Have answers that say nothing of caches be kept by none: keys, budgets and estimates are in them."""

    async def passing(scope: Scope, receive: Receive, send: Send) -> None:
        async def said(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"]).setdefault("cache-control", "no-store")
            await send(message)

        await app(scope, receive, said)

    return passing


def proper(app: ASGIApp) -> ASGIApp:
    """Refuse heads that are too long, and bodies that end elsewhere, or are others, for a proxy than here."""

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        answer = _refusal(scope) if scope["type"] == "http" else None
        await (answer or app)(scope, receive, send)

    return refusing


def _refusal(scope: Scope) -> Response | None:
    headers = Headers(scope=scope)
    # uvicorn's own limit is for heads that come in pieces.
    size = sum(len(name) + len(value) + 4 for name, value in headers.raw)
    if len(scope["raw_path"]) + len(scope["query_string"]) + size > LONGEST_HEAD:
        return blank(431, {"Connection": "close"})
    if "content-length" in headers and "transfer-encoding" in headers:
        return blank(400, {"Connection": "close"})
    if headers.get("content-encoding", "identity") != "identity":
        return UnsupportedMediaType("Send the body without Content-Encoding.").response()
    return None
