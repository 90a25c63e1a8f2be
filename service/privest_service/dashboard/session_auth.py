"""Who looks at a page: the cookie of a session, and the token in forms that shows where they come from."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from fastapi import Depends, Request, Security
from fastapi.responses import Response
from starlette.datastructures import FormData

from privest_service.acts import because, readable
from privest_service.estimates import requests
from privest_service.problems import Fault, Forbidden, Invalid, Unauthenticated
from privest_service.security import sessions
from privest_service.security.admission import address_of, identified
from privest_service.security.authentication import Authenticator
from privest_service.security.models import Analyst, Owner
from privest_service.security.principals import Credential, Principal
from privest_service.security.sessions import LASTS, OpenSession

_FIELDS = 50
"""Most fields of a form, which is kept in memory until it is whole."""

_PLAIN = "privest-session"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Visitor:
    """The person who is signed in.

    Attributes:
        session: that its browser holds.
        name: to greet it by.
        waiting: how many questions wait for an owner's decision; None of others.
    """

    session: OpenSession
    name: str
    waiting: int | None = None

    @property
    def principal(self) -> Principal:
        """The caller, as the interface knows it."""
        return self.session.principal

    @property
    def id(self) -> str:
        """The id of the owner or analyst who is signed in, or `admin`."""
        return self.principal.id

    @property
    def is_admin(self) -> bool:
        """Whether this is the administrator."""
        return self.principal.role == "admin"

    @property
    def is_analyst(self) -> bool:
        """Whether this is an analyst, who asks about the data of others."""
        return self.principal.role == "analyst"

    def may(self, scope: str) -> bool:
        """Whether the key that opened the session is for this: what it is not for, pages need not offer."""
        return scope in self.session.credential.scopes


def _split(address: str) -> SplitResult:
    """The parts of an address; of what is none they are empty, so that it is of no site."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def on_this_machine(request: Request) -> bool:
    """Whether the browser looks at this machine itself, over plain HTTP.

    Proxies may put their own idea of a host in place of the browser's: what that says of itself goes before.
    """
    seen = _split(request.headers.get("origin", str(request.url)))
    return seen.scheme == "http" and seen.hostname in _LOOPBACK


def _path(request: Request) -> str:
    """Below which a browser sends the cookie."""
    return request.scope.get("root_path") or "/"


def _over_tls(request: Request) -> str:
    """The cookie's name, by which browsers know what may set it.

    The first no other site can set, but it goes to all paths of this one: others may share those with it.
    """
    return f"__Host-{_PLAIN}" if _path(request) == "/" else f"__Secure-{_PLAIN}"


def held(request: Request) -> str:
    """The session id that a browser holds; empty if none."""
    found = request.cookies.get(_over_tls(request))
    if found is None and on_this_machine(request):
        found = request.cookies.get(_PLAIN)
    return found or ""


def enter(request: Request, response: Response, opened: OpenSession) -> None:
    """Hand a session to its browser. Over TLS, which this machine can do without, by a name that needs it."""
    plain = on_this_machine(request)
    response.set_cookie(
        _PLAIN if plain else _over_tls(request),
        opened.id,
        max_age=int(LASTS.total_seconds()),
        path=_path(request),
        secure=not plain,
        httponly=True,
        samesite="lax",
    )


def leave(request: Request, response: Response) -> None:
    """Delete the cookie of the session."""
    for name in (_PLAIN, _over_tls(request)):
        response.delete_cookie(
            name, path=_path(request), secure=name != _PLAIN, httponly=True, samesite="lax"
        )


def same_origin(request: Request) -> None:
    """Refuse what another site had this browser send.

    Raises:
        Forbidden: it did.
    """
    origin = request.headers.get("origin")
    # Browsers that do not say where a request comes from say at least which site it is of.
    alike = "same-origin" if origin is None or _split(origin).netloc == request.url.netloc else "cross-site"
    if request.headers.get("sec-fetch-site", alike) not in ("same-origin", "none"):
        raise Forbidden("this was sent from another site")


def recognised(authenticator: Authenticator, request: Request) -> Visitor:
    """Whoever is signed in, by the head of a request alone.

    Raises:
        Unauthenticated: nobody is, or not any more.
    """
    found = sessions.find(authenticator, held(request)) or _vouched(authenticator, request)
    if found is None:
        raise Unauthenticated
    name, waiting = "Administrator", None
    if found.principal.role != "admin":
        table = Owner if found.principal.role == "owner" else Analyst
        with authenticator.database.read() as session:
            name = session.get_one(table, found.principal.id).name
            if found.principal.role == "owner":
                waiting = requests.number_waiting_for(session, found.principal.id)
    return Visitor(found, name, waiting)


def _vouched(authenticator: Authenticator, request: Request) -> OpenSession | None:
    """A session for whom the platform lets through to a page with a token of its own, as its proxies do."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if request.method != "GET" or scheme.lower() != "bearer" or authenticator.tokens is None:
        return None
    request.state.entered = sessions.sign_in(authenticator, token, address_of(request))
    return request.state.entered


async def visitor(request: Request, _: Annotated[Credential, Depends(identified)]) -> Visitor:
    """Whoever is signed in, with a key or token that is for what the page declares."""
    return request.state.visitor


SignedInDep = Annotated[Visitor, Depends(visitor)]
VisitorDep = Annotated[Visitor, Security(visitor, scopes=["read"])]


async def owner(found: SignedInDep) -> Visitor:
    """An owner who is signed in.

    Raises:
        Forbidden: it is somebody who has no datasets or budget.
    """
    found.principal.must_be("owner")
    return found


async def asker(found: SignedInDep) -> Visitor:
    """An owner or an analyst who is signed in.

    Raises:
        Forbidden: it is the administrator, who asks nothing.
    """
    found.principal.must_be("owner", "analyst")
    return found


async def analyst(found: SignedInDep) -> Visitor:
    """An analyst who is signed in.

    Raises:
        Forbidden: it is somebody else.
    """
    found.principal.must_be("analyst")
    return found


AskerDep = Annotated[Visitor, Security(asker, scopes=["read"])]
AskingDep = Annotated[Visitor, Security(asker, scopes=["estimate"])]
KeyHolderDep = Annotated[Visitor, Security(asker, scopes=["manage"])]
AnalystDep = Annotated[Visitor, Security(analyst, scopes=["read"])]
OwnerDep = Annotated[Visitor, Security(owner, scopes=["read"])]
OwnerOfDataDep = Annotated[Visitor, Security(owner, scopes=["data"])]
ManagingOwnerDep = Annotated[Visitor, Security(owner, scopes=["manage"])]


async def admin(found: Annotated[Visitor, Security(visitor, scopes=["manage"])]) -> Visitor:
    """The administrator who is signed in.

    Raises:
        Forbidden: it is somebody else.
    """
    found.principal.must_be("admin")
    return found


AdminDep = Annotated[Visitor, Depends(admin)]


async def submitted(request: Request, found: SignedInDep) -> FormData:
    """A form, which must have come with a page of the same session.

    Raises:
        Forbidden: it did not.
    """
    same_origin(request)
    form = await request.form(max_files=1, max_fields=_FIELDS)
    token = form.get("token")
    if not isinstance(token, str) or not found.session.accepts(token):
        await form.close()
        raise Forbidden("this form is not of your present session: go back, reload the page and try again")
    if isinstance(reason := form.get("reason"), str):
        try:
            because(readable(" ".join(reason.split())))  # of several lines one
        except ValueError as error:
            raise Invalid(faults=[Fault(location="reason", rule=str(error))]) from None
    return form


FormDep = Annotated[FormData, Depends(submitted)]
