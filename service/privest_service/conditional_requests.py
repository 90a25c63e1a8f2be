"""Entity tags: whoever sends back that of an answer learns whether it changed, and gets it only then."""

from hashlib import sha256

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_JSON = "application/json"


def _names(given: str, tag: str) -> bool:
    """Whether an If-None-Match names a tag, or any (RFC 9110, 13.1.2: weak tags are compared as others)."""
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in given.split(","))


def tagged(inner: ASGIApp) -> ASGIApp:
    """Give what is read in one piece of JSON its digest as a tag, and answer 304 to whoever has it."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await inner(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def said(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                if (
                    message["status"] == 200
                    and "etag" not in headers
                    and headers.get("content-type") == _JSON
                ):
                    start = message  # until its body is known
                    return
            elif start is not None:
                first, start = start, None
                if not message.get("more_body"):
                    tag = f'"{sha256(message.get("body", b"")).hexdigest()[:32]}"'
                    headers = MutableHeaders(raw=first["headers"])
                    headers["etag"] = tag
                    if _names(known, tag):
                        del headers["content-length"], headers["content-type"]
                        first["status"], message = 304, {**message, "body": b""}
                await send(first)
            await send(message)

        await inner(scope, receive, said)

    return answering
