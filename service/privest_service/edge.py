"""Where the service stands: below a path, and behind proxies whose word about callers counts."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from privest_service.problems import UnsupportedMediaType, blank

Network = IPv4Network | IPv6Network


def seen_from_outside(app: ASGIApp, root_path: str, proxies: Sequence[Network]) -> ASGIApp:
    """The application with addresses as its callers know them.

    Args:
        app: itself.
        root_path: below which callers find it, whether or not a proxy takes that off.
        proxies: whose X-Forwarded-For, -Proto and -Host are believed.
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


def one_reading(app: ASGIApp) -> ASGIApp:
    """Refuse bodies that end elsewhere, or hold something else, for a proxy than for this service."""

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if "content-length" in headers and "transfer-encoding" in headers:
                return await blank(400, {"Connection": "close"})(scope, receive, send)
            if headers.get("content-encoding", "identity") != "identity":
                problem = UnsupportedMediaType("send it without Content-Encoding")
                return await problem.response()(scope, receive, send)
        return await app(scope, receive, send)

    return refusing
