"""Admission: callers are recognised, counted and limited before a request's body is read."""

import json
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from privest.memo import fresh_memo
from privest_service.acts import Actor, acting
from privest_service.inputs import from_json, names_of, require_known, validate_path_params
from privest_service.limits import LONG, REQUESTS, UPLOADS, Limit, Limiter, in_thread
from privest_service.problems import Invalid, Unauthenticated
from privest_service.security.authentication import Authenticator
from privest_service.security.principals import Credential, Principal


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else ""


async def identified(request: Request) -> Credential:
    """Return the credential of a request. Routes that ask for it need one."""
    return request.state.credential


class Bearer(HTTPBearer):
    """The credential of a request, which its route has found to be for what the endpoint declares."""

    def __init__(self) -> None:
        super().__init__(
            scheme_name="HTTPBearer",
            description="an API key, or a token of the platform; beside the key of a service account, the "
            "header `Privest-On-Behalf-Of` brings the token of the person for whom it asks",
        )

    async def __call__(self, request: Request) -> Credential:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing is read or refused here any more."""
        return request.state.credential


class Holder(Bearer):
    """Whoever holds it: one dependency, as each costs a request as much as two looks at the database."""

    async def __call__(self, request: Request) -> Principal:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing is read or refused here any more."""
        return request.state.credential.principal


def _parts(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _parts(each)


def _query_names(dependant: Dependant) -> dict[str, bool]:
    """Return the query parameters of an endpoint by name, each with whether it may be sent several times."""
    found = dict[str, bool]()
    for param in (param for part in _parts(dependant) for param in part.query_params):
        model = param.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            found |= names_of(model.model_fields)
        else:
            found |= names_of({param.alias: param.field_info})
    return found


class Strict(APIRoute):
    """A route that refuses query parameters which its endpoint does not declare."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, called once the names in the query string are known ones."""
        handle, known = super().get_route_handler(), _query_names(self.dependant)

        async def route(request: Request) -> Response:
            if request.scope["query_string"]:
                sent = (name for name, _ in request.query_params.multi_items())
                require_known(sent, known, "query parameter")
            return await handle(request)

        return route


def _in_its_share(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """An endpoint that blocks, in a thread of its caller's share; others as they are."""
    if iscoroutinefunction(endpoint) or isasyncgenfunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(**given: Any) -> Any:
        return await in_thread(endpoint, **given)

    return run


class Admitting(APIRoute):
    """A route that knows its caller before it reads what they send.

    Attributes:
        needs: the scopes that its endpoint declares.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        super().__init__(path, _in_its_share(endpoint), **given)
        parts = list(_parts(self.dependant))
        self.needs = sorted({scope for part in parts for scope in part.own_oauth_scopes or ()})
        self._for_known = any(part.call is identified or isinstance(part.call, Bearer) for part in parts)

    def identify(self, authenticator: Authenticator, request: Request) -> Credential:
        """Find out who calls, in a thread. Raises Problem: nobody who is let in."""
        raise NotImplementedError

    def excuses(self, found: Credential, request: Request) -> bool:  # noqa: ARG002
        """Whether this may be done without the scopes that are declared: nothing is, but by some routes."""
        return False

    def brings(self, limiter: Limiter, request: Request) -> tuple[Limit, int]:
        """Return the limit on a body, and its length: the most that is allowed where the head tells none."""
        told = request.headers.get("content-length", "0")
        length = int(told) if told.isdecimal() and "transfer-encoding" not in request.headers else None
        most = limiter.largest_body
        return limiter.bodies, most if length is None else min(length, most)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, once the caller is known, has the scopes, and has room for what comes.

        Raises:
            Unauthenticated, Forbidden: nobody who may do this.
            NotFound: a name in the path is none that anything has.
            TooManyRequests: not so often, or not so much at a time.
            Unavailable: all callers together hold what there is.
        """
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # which refuses it
            return
        request, parts = Request(scope), scope["app"].state.parts
        actor = Actor("service")
        limiter: Limiter = parts[Limiter]
        who = f"address {address_of(request)}"
        if self._for_known:
            authenticator: Authenticator = parts[Authenticator]
            found = await limiter.recognise(self.identify, authenticator, request)
            request.state.credential, who = found, found.principal.id
            actor = found.actor
            authenticator.rates.count(found.principal)
            if not self.excuses(found, request):
                found.must_be_for(*self.needs)
        validate_path_params(request.path_params)
        what, amount = self.brings(limiter, request)
        held = limiter.hold(REQUESTS, who), limiter.hold(what, who, amount)
        with held[0], held[1], limiter.on_behalf_of(who, amount), acting(actor), fresh_memo():
            await super().handle(scope, receive, send)


def _is_json(request: Request) -> bool:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


class _Once(Request):
    """A request whose body is read so that each field is named once."""

    read: Any = None

    async def json(self) -> Any:
        """Read the request's body as JSON."""
        return from_json(await self.body()) if self.read is None else self.read


def _bearer(request: Request) -> str:
    """The key or token in the Authorization header; empty where there is none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else ""


def _nobody() -> Unauthenticated:
    return Unauthenticated(headers={"WWW-Authenticate": "Bearer"})


class Route(Strict, Admitting):
    """A route of the interface, for whoever has a key or a token."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        super().__init__(path, endpoint, **given)
        if self._for_known and not self.needs:
            raise RuntimeError("an endpoint declares no scope")

    def identify(self, authenticator: Authenticator, request: Request) -> Credential:
        """Find out who calls from the key, or the platform's token, in the Authorization header.

        A service account may add the token of the person for whom it asks (`Privest-On-Behalf-Of`).

        Raises:
            Forbidden: the key may not ask for this person.
            Unauthenticated: there is none, or one that opens nothing.
            TooManyRequests: too many from this address opened nothing.
        """
        given = _bearer(request)
        found = authenticator.identify(given, address_of(request)) if given else None
        if found is None:
            raise _nobody()
        tokens = request.headers.getlist("privest-on-behalf-of")
        return authenticator.on_behalf_of(found, ",".join(tokens)) if tokens else found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, except that JSON is read strictly, and in a thread if it is long."""
        handle = super().get_route_handler()

        async def route(request: Request) -> Response:
            asked = _Once(request.scope, request.receive)
            if self.body_field and _is_json(asked):
                body = await asked.body()
                if len(body) >= LONG:
                    asked.read = await in_thread(self._read, body)
            return await handle(asked)

        return route

    def _read(self, body: bytes) -> Any:
        """A long document, checked: FastAPI takes what is of the right model as it is.

        Raises:
            Invalid: it is no text, or too deep.
            RequestValidationError: it is no JSON, or breaks a rule.
        """
        assert self.body_field  # noqa: S101 - else nothing is read
        try:
            given = from_json(body)
        except json.JSONDecodeError as error:
            fault = {"type": "json_invalid", "loc": ("body", error.pos)}
            raise RequestValidationError([fault], body=error.doc) from None
        except (ValueError, RecursionError):
            raise Invalid from None
        read, errors = self.body_field.validate(given, {}, loc=("body",))
        if errors:
            raise RequestValidationError(errors, body=given)
        return read


class Uploading(Route):
    """A route that takes files, which spill over to the disk as they arrive."""

    def brings(self, limiter: Limiter, request: Request) -> tuple[Limit, int]:  # noqa: ARG002
        """One upload, whatever its length."""
        return UPLOADS, 1


class Revoking(Route):
    """A route that ends the key in its path, which any key may do to itself."""

    def excuses(self, found: Credential, request: Request) -> bool:
        """Whether a key asks for its own end."""
        return found.key_id is not None and found.key_id == request.path_params["key_id"]
