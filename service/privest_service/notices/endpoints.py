"""Channels to owners."""

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from privest_service.notices import service
from privest_service.notices.schemas import ChannelList, CreatedChannel, NewChannel
from privest_service.notices.sending import ways_out
from privest_service.problems import Invalid, NotFound, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep, ReadDep, SettingsDep
from privest_service.security.service import require_owner

router = APIRouter(prefix="/v1/owners/{owner_id}/channels", tags=["notices"], route_class=Route)


@router.post("", status_code=201, responses=documented(NotFound))
def create_channel(
    owner_id: str, body: NewChannel, caller: ManageDep, database: DatabaseDep, settings: SettingsDep
) -> CreatedChannel:
    """Say where notices of this owner go, and signed heads; the secret of a webhook is shown once."""
    caller.must_be_owner(owner_id)
    if body.kind not in ways_out(settings):
        raise Invalid("This service has no way out of this kind. Ask the operator, or choose another.")

    def add(session: Session) -> CreatedChannel:
        require_owner(session, owner_id)
        return service.add(session, owner_id, body, settings.secret)

    return database.run(add)


@router.get("", responses=documented(NotFound))
def list_channels(owner_id: str, caller: ReadDep, database: DatabaseDep) -> ChannelList:
    """The channels of this owner and how their deliveries fare; where they lead is not shown."""
    caller.must_be_owner(owner_id)
    with database.read() as session:
        require_owner(session, owner_id)
        return ChannelList(channels=service.channels(session, owner_id))


@router.post("/{channel_id}/test", status_code=204, responses=documented(NotFound))
def test_channel(owner_id: str, channel_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Have a notice sent that tells nothing, now."""
    caller.must_be_owner(owner_id)
    database.run(lambda session: service.test(session, owner_id, channel_id))
    return Response(status_code=204)


@router.delete("/{channel_id}", status_code=204, responses=documented(NotFound))
def delete_channel(owner_id: str, channel_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Delete a channel, with all that waits on it."""
    caller.must_be_owner(owner_id)
    database.run(lambda session: service.remove(session, owner_id, channel_id))
    return Response(status_code=204)
