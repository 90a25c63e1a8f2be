"""Channels to owners and analysts."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from sqlalchemy.orm import Session

from privest_service.notices import service
from privest_service.notices.schemas import (
    ChannelList,
    CreatedChannel,
    NewAnalystChannel,
    NewChannel,
    NewWebhook,
)
from privest_service.notices.sending import ways_out
from privest_service.problems import Invalid, NotFound, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep, ReadDep, SettingsDep
from privest_service.security.keys import Role
from privest_service.security.service import require_analyst, require_owner

router = APIRouter(prefix="/v1", tags=["notices"], route_class=Route)

_MADE = {
    "owner": "Say where notices of this owner go, and signed heads; the secret of a webhook is shown once.",
    "analyst": "Have a webhook told when a question of this analyst ends; its secret is shown once.",
}


def _path(role: Role) -> str:
    return f"/{role}s/{{{role}_id}}/channels"


def _name(verb: str, role: Role) -> str:
    return f"{verb}_channel" if role == "owner" else f"{verb}_{role}_channel"


def _create_route(role: Role) -> None:
    """Add the call that makes a channel of an owner or an analyst."""
    require: Any = require_owner if role == "owner" else require_analyst
    holder: Any = Annotated[str, Path(alias=f"{role}_id")]
    new: Any = NewChannel if role == "owner" else NewAnalystChannel

    @router.post(
        _path(role),
        status_code=201,
        name=_name("create", role),
        description=_MADE[role],
        responses=documented(NotFound),
    )
    def create(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        body: new,  # pyright: ignore[reportInvalidTypeForm]
        caller: ManageDep,
        database: DatabaseDep,
        settings: SettingsDep,
    ) -> CreatedChannel:
        caller.must_be_holder(role, holder_id)
        asked = NewWebhook(**body.model_dump(), events=["question.ended"]) if role == "analyst" else body
        if asked.kind not in ways_out(settings):
            raise Invalid("This service has no way out of this kind. Ask the operator, or choose another.")

        def add(session: Session) -> CreatedChannel:
            require(session, holder_id)
            return service.add(session, holder_id, asked, settings.secret, role)

        return database.run(add)


def _list_route(role: Role) -> None:
    """Add the call that lists the channels of an owner or an analyst."""
    require: Any = require_owner if role == "owner" else require_analyst
    holder: Any = Annotated[str, Path(alias=f"{role}_id")]

    @router.get(
        _path(role),
        name=_name("list", role) + "s",
        description=f"The channels of this {role} and how their deliveries fare; where they lead is not "
        "shown.",
        responses=documented(NotFound),
    )
    def list_all(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        caller: ReadDep,
        database: DatabaseDep,
    ) -> ChannelList:
        caller.must_be_holder(role, holder_id)
        with database.read() as session:
            require(session, holder_id)
            return ChannelList(channels=service.channels(session, holder_id))


def _channel_routes(role: Role) -> None:
    """Add the calls about one channel of an owner or an analyst."""
    holder: Any = Annotated[str, Path(alias=f"{role}_id")]

    @router.post(
        f"{_path(role)}/{{channel_id}}/test",
        status_code=204,
        name=_name("test", role),
        description="Have a notice sent that tells nothing, now.",
        responses=documented(NotFound),
    )
    def test(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        channel_id: str,
        caller: ManageDep,
        database: DatabaseDep,
    ) -> Response:
        caller.must_be_holder(role, holder_id)
        database.run(lambda session: service.test(session, holder_id, channel_id))
        return Response(status_code=204)

    @router.delete(
        f"{_path(role)}/{{channel_id}}",
        status_code=204,
        name=_name("delete", role),
        description="Delete a channel, with all that waits on it.",
        responses=documented(NotFound),
    )
    def delete(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        channel_id: str,
        caller: ManageDep,
        database: DatabaseDep,
    ) -> Response:
        caller.must_be_holder(role, holder_id)
        database.run(lambda session: service.remove(session, holder_id, channel_id))
        return Response(status_code=204)


for _role in ("owner", "analyst"):
    _create_route(_role)
    _list_route(_role)
    _channel_routes(_role)
