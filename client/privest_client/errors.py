"""What can go wrong, as exceptions that say what to do."""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])


class PrivestError(Exception):
    """Base of all that this client raises."""


class Unreachable(PrivestError):
    """No answer came, however often it was asked. Nothing is charged twice: ask again with the same key."""


class UnexpectedAnswer(PrivestError):
    """What answered is no Privest service of this version, or an error that it does not document."""


class JobFailed(PrivestError):
    """The run came to no end; why is not told, as that may depend on the records. Its charge stays.

    Attributes:
        job: as it stands.
    """

    def __init__(self, message: str, job: Any) -> None:
        super().__init__(message)
        self.job = job


class NotApproved(PrivestError):
    """The question was denied, withdrawn or not decided in time; nothing was charged.

    Attributes:
        job: as it stands; `job.approval.reason` is what an owner gave as the reason of a denial.
    """

    def __init__(self, message: str, job: Any) -> None:
        super().__init__(message)
        self.job = job


class StillRunning(PrivestError):
    """The time to wait is over, and the job is not done. `client.wait(job)` waits on and charges nothing.

    Attributes:
        job: its id.
    """

    def __init__(self, message: str, job: str) -> None:
        super().__init__(message)
        self.job = job


class AnswerWithheld(PrivestError):
    """Somebody else asked the question, so the owner of the data sees what it cost, but not the answer.

    Attributes:
        job: as it stands.
    """

    def __init__(self, message: str, job: Any) -> None:
        super().__init__(message)
        self.job = job


class SchemaMismatch(PrivestError):
    """The data do not fit their schema, or the service counted other records than there are."""


class Problem(PrivestError):
    """A refusal of the service (RFC 9457).

    Attributes:
        status: of HTTP.
        slug: the kind of problem.
        detail: what the service says of it.
        faults: where a request or an upload is wrong: dicts of location, record, field and rule.
        retry_after: seconds after which to ask again, if the service says so.
        room: of a question that a limit of the caller's own refuses, what it takes and what is left: a dict
            with the fields of a plan's `room`.
    """

    advice = "see the detail"

    def __init__(
        self,
        status: int,
        slug: str,
        title: str,
        detail: str | None = None,
        faults: Sequence[dict[str, Any]] = (),
        retry_after: float | None = None,
        room: dict[str, Any] | None = None,
    ) -> None:
        told = [f"{title}: {detail}" if detail else title]
        told += [f"  {_place(fault)}{fault['rule']}" for fault in faults]
        told.append(f"({self.advice})")
        super().__init__("\n".join(told))
        self.status, self.slug, self.detail = status, slug, detail
        self.faults, self.retry_after, self.room = tuple(faults), retry_after, room


class Unauthenticated(Problem):
    """The key opens nothing."""

    advice = "the key is wrong, has ended or was revoked: ask whoever gave it for another"


class Forbidden(Problem):
    """The key opens this to others."""

    advice = "this key may not do that: use the key of the dataset's owner, or ask the owner for a grant"


class NotFound(Problem):
    """No such thing, or somebody else's: the service does not tell which."""

    advice = "check the id; what is somebody else's needs a grant of its owner"


class InvalidRequest(Problem):
    """A choice that is out of range or does not belong there."""

    advice = "change what is named and ask again; nothing was charged"


class DatasetInvalid(Problem):
    """Records that break a rule of their schema."""

    advice = "mend the records, or the schema, and upload again; nothing was stored"


class BudgetExceeded(Problem):
    """A query costs more than is left of the budget."""

    advice = "ask for a smaller ε (`plan` is free), or the owner for a higher limit; nothing was charged"


class PaceExceeded(BudgetExceeded):
    """A query costs more than the budget's pace leaves for these seven days."""

    advice = "ask again in some days, or for a smaller ε; nothing was charged"


class AccountFrozen(Problem):
    """The budget is frozen, so no query can be charged."""

    advice = "only the owner or an administrator can end that; nothing was charged"


class GrantRefuses(Problem):
    """The caller's own grant does not allow this question."""

    advice = "ask for what your grant allows, or ask the owner for another; nothing was charged"


class ApprovalRefused(Problem):
    """A question that waits for approval cannot be charged at present."""

    advice = "the question goes on waiting: approve it later, or deny it"


class TooLarge(Problem):
    """More than the service takes."""

    advice = "send less, or have the owner register it by a connection"


class TooManyRequests(Problem):
    """The caller asks too often."""

    advice = "ask again later, with the same idempotency key"


class Unavailable(Problem):
    """The service cannot answer now."""

    advice = "ask again later, with the same idempotency key: nothing is charged twice"


KNOWN: dict[str, type[Problem]] = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "method-not-allowed": InvalidRequest,
    "idempotency-key-missing": InvalidRequest,
    "idempotency-key-reused": InvalidRequest,
    "invalid": InvalidRequest,
    "dataset-invalid": DatasetInvalid,
    "budget-exceeded": BudgetExceeded,
    "pace-exceeded": PaceExceeded,
    "account-frozen": AccountFrozen,
    "grant-refuses": GrantRefuses,
    "not-requested": InvalidRequest,
    "approval-refused": ApprovalRefused,
    "name-taken": InvalidRequest,
    "window-replaced": InvalidRequest,
    "window-not-allowed": InvalidRequest,
    "session-over": InvalidRequest,
    "too-large": TooLarge,
    "unsupported-media-type": InvalidRequest,
    "too-many-requests": TooManyRequests,
    "unavailable": Unavailable,
}
"""Errors by the last part of a problem document's type."""


def _place(fault: dict[str, Any]) -> str:
    parts = [f"record {fault['record']}"] if fault.get("record") is not None else []
    location, name = fault.get("location"), fault.get("field")
    if name and (column := _COLUMN.search(location or "")):
        place = int(column[1]) + 1
        parts += [f"column {name!r} ({place}{_ordinal(place)})", *filter(None, [column[2]])]
    else:
        parts += [str(each) for each in (location, name) if each]
    return f"{', '.join(parts)}: " if parts else ""


_COLUMN = re.compile(r"\bcolumns\.(\d+)\.?(.*)$")
"""The place of a column of a schema, and of a part of it."""


def _ordinal(place: int) -> str:
    return "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")


def surfaced(owner: C) -> C:
    """Have errors of a class's public methods end where these were called: they say what to do."""
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        if not name.startswith("_") and inspect.isfunction(found):
            setattr(owner, name, _surface(found))
    return owner


def _surface(call: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(call):

        @wraps(call)
        async def later(*args: Any, **choices: Any) -> Any:
            __tracebackhide__ = True
            try:
                return await call(*args, **choices)
            except PrivestError as error:
                raise error.with_traceback(None) from None

        return later

    @wraps(call)
    def now(*args: Any, **choices: Any) -> Any:
        __tracebackhide__ = True
        try:
            return call(*args, **choices)
        except PrivestError as error:
            raise error.with_traceback(None) from None

    return now
