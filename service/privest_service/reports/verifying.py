"""The verifier's word on an owner's ledger as it is now, and what else is to be read of that moment."""

from asyncio import Task, create_task
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from tempfile import NamedTemporaryFile
from typing import IO, TypeVar

from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.exports.export import write_out
from privest_service.exports.keys import Trusted, trusted
from privest_service.exports.verify import Report, verify_file
from privest_service.limits import EXPORTS, VERIFICATIONS, Limiter, in_thread
from privest_service.problems import Fault, Invalid
from privest_service.signing import Signer
from privest_service.telemetry import metrics
from privest_service.workers.service import Workers

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """What the verifier found.

    Attributes:
        found: the numbers of what was read, and all faults.
        keys: that signatures were checked with; the first is the service's present one.
        key_id: the name of the present one in entries.
        at: when it had read all.
    """

    found: Report
    keys: list[Trusted]
    key_id: str
    at: datetime


@dataclass(frozen=True)
class Verifier:
    """What it takes to verify an owner's ledger.

    Attributes:
        database: that has it.
        limiter: of what callers may hold.
        workers: that read all of it.
        signer: that signs now.
        who: asks for it.
    """

    database: Database
    limiter: Limiter
    workers: Workers
    signer: Signer
    who: str

    def begin(
        self, owner_id: str, earlier_keys: list[str], beside: Callable[[Session], T]
    ) -> tuple[Task[T], Task[Verdict]]:
        """Export a ledger, read what else is wanted of the same moment, and verify the export in a worker.

        No session is held while the worker reads.

        Returns:
            what was read besides, as soon as it is, and the verdict; who cancels that ends all of it. It
            raises Unavailable, or TooLarge, where the worker came to no end.

        Raises:
            Invalid: an earlier key is none, or has no end.
            TooManyRequests: the caller has another verification, or too many exports, under way.
            Unavailable: all callers have too many.
        """
        keys = [self.signer.public_key, *earlier_keys]
        try:
            known = trusted(keys)
        except ValueError as error:
            raise Invalid(faults=[Fault(location="keys", rule=str(error))]) from None

        def write(file: IO[bytes]) -> T:
            with self.database.read(snapshot=True) as session:
                write_out(session, owner_id, file)
                found = beside(session)
            file.flush()
            return found

        async def verdict(reading: Task[T], path: str) -> Verdict:
            await reading
            report = await self.workers.in_worker("verify", verify_file, path, keys)
            metrics.verified(report.entries, len(report.faulty), whole=not report.faults)
            return Verdict(report, list(known.values()), self.signer.id, now())

        with ExitStack() as stack:
            stack.enter_context(self.limiter.hold(VERIFICATIONS, self.who))
            file = stack.enter_context(NamedTemporaryFile(prefix="verify-"))
            exporting = stack.enter_context(ExitStack())
            exporting.enter_context(self.limiter.hold(EXPORTS, self.who))
            held = stack.pop_all()
        # Given back whatever becomes of the tasks: one that is cancelled too soon does nothing itself.
        reading = create_task(in_thread(write, file.file))
        reading.add_done_callback(lambda _: exporting.close())
        verifying = create_task(verdict(reading, file.name))
        verifying.add_done_callback(lambda _: held.close())
        return reading, verifying
