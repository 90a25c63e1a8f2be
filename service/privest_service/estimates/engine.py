"""The engine: takes reserved jobs, claims them, has them run, stores what comes back.

The claim is committed before a worker is told of the job, and only the process that claimed a job
stores its end. A worker that crashes, hangs or throws leaves a failed job, which stays charged.
What runs jobs may begin one twice: its permit lets one of the runs open the rows, and none after its end.
"""

import asyncio
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WorkerTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any, Literal, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import structlog
from pebble import ProcessExpired, ProcessFuture
from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.datasets.confinement import missing
from privest_service.datasets.parsing import prepare
from privest_service.datasets.store import Store
from privest_service.estimates.runners import runners
from privest_service.estimates.runners.local import Processes
from privest_service.estimates.tasks import run_job
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.limits import FREE_PLANS, PLANS, Limiter, in_thread
from privest_service.problems import DatabaseUnavailable, TooLarge, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE = 1.0
"""Seconds between looks for jobs that another process reserved or left behind."""

_LEASE_MARGIN = 60.0
"""Seconds by which a lease outlives the time that its run may take."""

_DUMMY_SECONDS = 60.0
"""That a run on synthetic rows may take at most: it is free, and holds a worker as others do."""

Work = Literal["intake", "fetch", "plan", "verify"]
"""What workers do beside jobs: uploads, sources elsewhere, heavy plans, whole ledgers."""

_LAST_WAIT = 25.0
"""Seconds that callers are waited for once the service is about to end: less than the server gives them."""

_PLAN_SECONDS = 60.0
"""That somebody waits for a plan."""

_LOST = (WorkerTimeoutError, ProcessExpired, BrokenProcessPool, CancelledError, OSError)
"""What a call of a worker that came to no end raises."""

log = structlog.get_logger()


def _of_drivers() -> dict[str, str]:
    """The environment, in which drivers of sources may look, without the service's own part of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}


@dataclass(frozen=True)
class Claimed:
    """A job whose charge is final, and all that its run needs.

    Attributes:
        job: the job.
        run_token: to read rows, once.
        paths: of the rows, dataset by dataset; a dummy reads none.
    """

    job: Job
    run_token: str
    paths: list[str]


class Engine:
    """What runs jobs, the thread that feeds it, and worker processes for uploads, sources and heavy plans.

    Args:
        database: where jobs wait.
        store: where rows are.
        workers: jobs that run at a time.
        job_timeout: seconds that one run may take.
        engine: what runs them, as the settings name it.
        memory: bytes that a worker process may take.
        intake_workers: uploads that are parsed at a time, and sources that are fetched.
        intake_timeout: seconds that parsing one may take.
        housekeeping: called now and then, by the thread that feeds jobs.
        limiter: of what callers may hold.
    """

    def __init__(
        self,
        database: Database,
        store: Store,
        *,
        workers: int,
        job_timeout: float,
        engine: str = "local",
        memory: int = 2**31,
        intake_workers: int = 2,
        intake_timeout: float = 300.0,
        housekeeping: Callable[[], None] | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._database = database
        self._store = store
        self._job_timeout = job_timeout
        self._memory, self._intake_workers = memory, intake_workers
        self._intake_timeout = min(intake_timeout, job_timeout)
        self._runners = runners(engine, workers=workers, memory=memory)
        self._slots = threading.Semaphore(self._runners.slots)
        self._running, self._counting = Counter[str](), threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._last_wait_ends = inf
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        # Runs end in this thread: never in one of the runners' own, which must go on to watch them.
        self._ends = ThreadPoolExecutor(1, thread_name_prefix="job-ends")
        self._housekeeping, self._tidied = housekeeping, 0.0
        self._pools: dict[Work, Processes] = {}
        self._limiter = limiter or Limiter()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._feeder = threading.Thread(target=self._feed, name="job-feeder", daemon=True)

    # Life

    def start(self) -> None:
        """Start the workers and take up whatever waits; to be called in the running event loop."""
        self._loop = asyncio.get_running_loop()
        # Each kind of work has workers of its own, so that none waits behind another, and no claimed job
        # behind any of them while its lease runs. No process starts before it is needed. Of what an owner
        # sends one thing at a time is worked on (`turn`), so that no owner ever has all of two workers.
        several = self._intake_workers
        self._pools = {
            "intake": Processes(several, self._memory, prepare),
            "fetch": Processes(several, self._memory, environment=_of_drivers()),
            "plan": Processes(1, self._memory),
            "verify": Processes(1, self._memory),
        }
        if left_out := missing(self._store.incoming):
            log.warning("uploads are parsed with less confinement than could be", missing=left_out)
        self._runners.start()
        self._feeder.start()

    def drain(self) -> None:
        """Claim nothing more, and let callers wait no longer than the process may still take."""
        self._last_wait_ends = min(self._last_wait_ends, time.monotonic() + _LAST_WAIT)
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """Claim nothing more, let claimed runs end, and stop the workers."""
        self.drain()
        self._feeder.join()
        self._runners.stop()
        for pool in self._pools.values():
            pool.stop()
        self._ends.shutdown()

    @property
    def draining(self) -> bool:
        """Whether nothing more is claimed, as the service is about to end."""
        return self._stopping.is_set()

    @property
    def slots(self) -> int:
        """Jobs that may run at a time."""
        return self._runners.slots

    @property
    def healthy(self) -> bool:
        """Whether jobs are being taken up."""
        return self._feeder.is_alive() and self._runners.healthy

    # For requests

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what blocks in a thread of the web process, of which the present caller has a share."""
        return await in_thread(function, *args, **kwargs)

    @asynccontextmanager
    async def turn(self, owner_id: str) -> AsyncIterator[None]:
        """Hold the turn of an owner, who has one: others wait behind one upload of theirs at most."""
        lock = self._turns.setdefault(owner_id, asyncio.Lock())
        async with lock:
            yield

    def _start(self, work: Work, function: Callable[..., T], *args: Any) -> ProcessFuture[T]:
        try:
            seconds = self._intake_timeout if work == "intake" else self._job_timeout
            return self._pools[work].call(seconds, function, *args)
        except (KeyError, RuntimeError):  # not started yet, or no more
            raise Unavailable(retry_after=1) from None

    async def in_worker(self, work: Work, function: Callable[..., T], *args: Any) -> T:
        """Run in a worker process what a hostile caller may make crash, hang or slow; no thread waits for it.

        Raises:
            TooLarge: it needs more memory than a worker may take.
            Unavailable: it came to no end.
        """
        try:
            return await asyncio.wrap_future(self._start(work, function, *args))
        except MemoryError:
            raise TooLarge("this needs more memory than there is for it; nothing was stored") from None
        except _LOST:
            raise Unavailable("this could not be processed; nothing was stored") from None

    def call_worker(self, caller_id: str, function: Callable[..., T], *args: Any, free: bool = True) -> T:
        """Run in a worker process what is too heavy for this one, and wait in this thread.

        Args:
            caller_id: for whom.
            function: to run.
            args: its arguments.
            free: whether nothing is to be charged for it.

        Raises:
            TooManyRequests: too many of this caller's are being made.
            Unavailable: it came to no end in time, or too many are being made.
        """
        hold = self._limiter.hold
        with hold(PLANS, caller_id), hold(FREE_PLANS, caller_id) if free else nullcontext():
            future = self._start("plan", function, *args)
            try:
                return future.result(_PLAN_SECONDS)
            except (*_LOST, MemoryError):
                future.cancel()
                raise Unavailable("this could not be processed; nothing was charged") from None

    def notify(self) -> None:
        """A job was reserved."""
        self._wake.set()

    async def wait(self, job_id: str, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait until a job ends or the time is up, holding neither a thread nor a database session.

        Args:
            job_id: the job.
            seconds: to wait at most.
            is_over: asks the database; called in a thread, now and then, as another process may end it.
        """
        ended = asyncio.Event()
        self._waiters[job_id].add(ended)
        deadline = time.monotonic() + seconds
        try:
            while not await self.in_thread(is_over):
                left = min(deadline, self._last_wait_ends) - time.monotonic()
                if left <= 0:
                    return
                try:
                    await asyncio.wait_for(ended.wait(), min(left, _PATIENCE))
                except TimeoutError:
                    continue
        finally:
            self._waiters[job_id].discard(ended)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    # For jobs

    def _feed(self) -> None:
        """Claim jobs one by one, as workers become free."""
        while not self._stopping.is_set():
            self._look_after()  # never after a claim, whose lease runs
            able = self._runners.healthy
            if not self._slots.acquire(timeout=_PATIENCE):
                continue
            try:
                claimed = None if self._stopping.is_set() else self._claim(able=able)
            except DatabaseUnavailable:
                claimed = None
            except Exception:
                log.exception("claiming failed")  # on a full disk, say; no rows were read yet
                claimed = None
            if claimed is None:
                self._slots.release()
                self._wake.wait(_PATIENCE)
                self._wake.clear()
            else:
                self._run(claimed)

    def _look_after(self) -> None:
        for pool in self._pools.values():
            pool.restart_if_broken()
        if self._housekeeping is None or time.monotonic() - self._tidied < _PATIENCE:
            return
        try:
            self._housekeeping()
        except DatabaseUnavailable:
            pass
        except Exception:
            log.exception("tidying up failed")
        self._tidied = time.monotonic()

    def _claim(self, *, able: bool = True) -> Claimed | None:
        """End the jobs that were left behind and, if it can be run now, claim the one that is next."""
        with self._database.read() as session:
            quiet = not (able and jobs.waiting(session)) and not jobs.overdue(session, now())
        if quiet:
            return None
        lease = timedelta(seconds=self._job_timeout + _LEASE_MARGIN)

        def claim(session: Session) -> tuple[list[str], Claimed | None]:
            lost = jobs.fail_overdue(session, now())
            job = jobs.claim_next(session, lease, self._served()) if able else None
            # A permit that cannot be made, on a full disk, undoes the claim: nobody pays for that.
            return lost, job and Claimed(job, str(self._store.run_token(job.id)), self._paths(session, job))

        lost, claimed = self._database.run(claim)
        for job_id in lost:
            self._withdraw(job_id)
            log.warning("job lost", job=job_id)
        return claimed

    def _served(self) -> list[str]:
        """Submitters whose jobs run on all workers but one, which is left to whoever else comes."""
        most = max(1, self._runners.slots - 1)
        with self._counting:
            return [submitter for submitter, jobs in self._running.items() if jobs >= most]

    def _paths(self, session: Session, job: Job) -> list[str]:
        if job.dummy:
            return []
        about = jobs.parts_of(session, job) or [job]
        return [str(self._store.path(str(each.owner_id), str(each.dataset_id))) for each in about]

    def _run(self, claimed: Claimed) -> None:
        """Have a claimed job run; the claim is committed."""
        job = claimed.job
        with self._counting:
            self._running[job.submitter_id] += 1
        seconds = min(self._job_timeout, _DUMMY_SECONDS) if job.dummy else self._job_timeout
        try:
            future = self._runners.run(
                seconds, run_job, job.kind, job.plan, claimed.run_token, *claimed.paths
            )
        except (OSError, RuntimeError):  # the runners broke down
            self._ends.submit(self._over, job, None)
            return
        future.add_done_callback(lambda done: self._ends.submit(self._over, job, done))

    def _over(self, job: Job, run: Future[str] | None) -> None:
        """A run is over for us; if it was lost, it may still go on somewhere, or begin."""
        with self._counting:
            self._running -= Counter([job.submitter_id])  # which forgets whoever has none
        self._slots.release()
        self._withdraw(job.id)
        self._end(job.id, run)

    def _withdraw(self, job_id: str) -> None:
        try:
            self._store.withdraw(job_id)
        except OSError:
            log.exception("a permit stays", job=job_id)

    def _end(self, job_id: str, run: Future[str] | None) -> None:
        """Store the end of a run. Why one failed is not looked at: it may tell of the rows."""
        result = None
        if run is not None and not run.cancelled() and run.exception() is None:
            result = run.result()
        latest = time.monotonic() + _LEASE_MARGIN
        while not self._stored(job_id, result) and time.monotonic() < latest:
            time.sleep(_PATIENCE)  # the database may come back before the lease ends
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._announce, job_id)
        self._wake.set()

    def _stored(self, job_id: str, result: str | None) -> bool:
        """Try to end a job; false if the database was not to be had."""
        try:
            ended = self._database.run(
                lambda session: (
                    jobs.fail(session, job_id) if result is None else charges.commit(session, job_id, result)
                )
            )
        except DatabaseUnavailable:
            log.warning("the end of a job waits for the database", job=job_id)
            return False
        except Exception:
            # The lease will end the job; the answer is dropped with this line.
            log.exception("storing the end of a job failed", job=job_id)
            return True
        state = "failed" if result is None else "committed"
        log.info("job ended" if ended else "job had ended before", job=job_id, state=state)
        return True

    def _announce(self, job_id: str) -> None:
        for waiter in self._waiters.get(job_id, ()):
            waiter.set()
