"""Credentials of keys: each is looked up when it comes, and one that has ended opens nothing."""

from datetime import timedelta

import pytest

from privest_service.database import Database, now
from privest_service.problems import TooManyRequests
from privest_service.security.authentication import Authenticator
from privest_service.security.rate_limit import RateLimiter
from privest_service.security.service import issue_key, revoke_key
from testing.server import ADMIN_KEY

HERE = "203.0.113.7"


def authenticator(database: Database) -> Authenticator:
    return Authenticator(database, RateLimiter("1000/minute"), ADMIN_KEY, b"")


@pytest.mark.either
def test_a_key_opens_nothing_once_it_is_revoked_or_over(database: Database) -> None:
    with database.write() as session:
        record, key = issue_key(session, "owner", "own_1", ["read"])
        _, ended = issue_key(session, "owner", "own_1", expires_at=now() - timedelta(seconds=1))
    callers = authenticator(database)
    found = callers.identify(key, HERE)
    assert found is not None
    assert (found.principal.id, found.scopes, found.key_id) == ("own_1", {"read"}, record.id)
    assert callers.identify(ended, HERE) is None
    with database.write() as session:
        revoke_key(session, "own_1", record.id)
    assert callers.identify(key, HERE) is None


@pytest.mark.parametrize("backend", ["sqlite"])
def test_guesses_are_limited_and_keys_of_ours_are_not_refused_for_them(database: Database) -> None:
    with database.write() as session:
        _, key = issue_key(session, "analyst", "anl_1")
    callers = authenticator(database)
    for _ in range(60):
        assert callers.identify("a guess", HERE) is None
    for guess in ("a guess", ADMIN_KEY):
        with pytest.raises(TooManyRequests):
            callers.identify(guess, HERE)
    assert callers.identify(key, HERE) is not None
    assert callers.identify(ADMIN_KEY, "203.0.113.8") is not None
