"""Idempotency keys: each is bound for ever to one request and the job that answers it."""

from sqlalchemy.orm import Session

from privest_service.jobs.models import IdempotencyKey
from privest_service.problems import IdempotencyKeyReused


def find(session: Session, principal_id: str, key: str, body_digest: str) -> IdempotencyKey | None:
    """What a principal's key is bound to; None if the key is new.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    bound = session.get(IdempotencyKey, (principal_id, key))
    if bound is not None and bound.body_digest != body_digest:
        raise IdempotencyKeyReused
    return bound
