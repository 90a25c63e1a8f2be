"""The engine: takes reserved jobs, claims them, has them run, stores what comes back.

The claim is committed before a worker is told of the job, and only the process that claimed a job
stores its end. A worker that crashes, hangs or throws leaves a failed job, which stays charged.
What runs jobs may begin one twice: its permit lets one of the runs open the rows, and none after its end.
"""

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import inf

import structlog
from sqlalchemy.orm import Session

from privest_service.database import Database, now
from privest_service.datasets.store import Store
from privest_service.estimates.plans import can_run
from privest_service.estimates.runners import runners
from privest_service.estimates.tasks import run_job
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job, JointRun
from privest_service.ledger import charges
from privest_service.limits import in_thread
from privest_service.problems import DatabaseUnavailable

_PATIENCE = 1.0
"""Seconds between two looks for jobs that another process reserved or left behind."""

_LEASE_MARGIN = 60.0
"""Seconds by which a lease outlives the time that its run may take."""

_DUMMY_SECONDS = 60.0
"""Longest time in seconds for a run on synthetic rows. Such a run is free, but it holds a worker."""

_LAST_WAIT = 25.0
"""Seconds to wait for callers once the service is about to end. The server gives them more."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Run:
    """The function that runs a job, with what it is given.

    Attributes:
        function: takes what is given.
        given: to it.
        again: whether it may be begun once more where it was lost, as it reads no rows and draws no noise.
    """

    function: Callable[..., str]
    given: Sequence[str]
    again: bool = False


@dataclass(frozen=True)
class Claimed:
    """A job whose charge is final, and what runs it."""

    job: Job
    run: Run


JointRuns = Callable[[Session, Job, JointRun, Sequence[str]], Run]
"""Finds what runs a job that a hub and sites have together.

It is told what is noted of that run, with the permit and the paths of the rows.
"""


class Engine:
    """Feeds jobs to the runners, from a thread of its own.

    Args:
        database: where jobs wait.
        store: where rows are.
        workers, job_timeout, engine, memory: as the settings of these names.
        housekeeping: each is called now and then, by the thread that feeds jobs.

    Attributes:
        joint_runs: finds what runs the jobs that a hub and sites have together; to be set before the start.
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
        housekeeping: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._database = database
        self._store = store
        self._job_timeout = job_timeout
        self.joint_runs: JointRuns | None = None
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
        self._feeder = threading.Thread(target=self._feed, name="job-feeder", daemon=True)

    # Life

    def start(self) -> None:
        """Start the workers and take up whatever waits; to be called in the running event loop."""
        self._loop = asyncio.get_running_loop()
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

    def notify(self) -> None:
        """Wake the engine, because a job was reserved."""
        self._wake.set()

    async def wait(self, job_id: str, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait until a job ends or the time is up, holding neither a thread nor a database session.

        As another process may end the job, `is_over` asks the database now and then, in a thread.
        """
        ended = asyncio.Event()
        self._waiters[job_id].add(ended)
        deadline = time.monotonic() + seconds
        try:
            while not await in_thread(is_over):
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
        if time.monotonic() - self._tidied < _PATIENCE:
            return
        for task in self._housekeeping:
            try:
                task()
            except DatabaseUnavailable:
                pass
            except Exception:
                log.exception("tidying up failed")
        self._tidied = time.monotonic()

    def _claim(self, *, able: bool = True) -> Claimed | None:
        """End the jobs that were left behind and, if it can be run now, claim the one that is next.

        One that another version of the program planned in a way that this one does not know is given back.
        """
        if self._database.first(jobs.TO_DO if able else jobs.OVERDUE, now=now()) is None:
            return None

        lost, voided, claimed = self._database.run(partial(self.claim, able=able))
        for job_id in lost:
            self._withdraw(job_id)
            log.warning("job lost", job=job_id)
        if voided:
            log.warning("job given back: another version planned it", job=voided)
            self._wake.set()  # another one may wait
        return claimed

    def claim(self, session: Session, *, able: bool) -> tuple[list[str], str | None, Claimed | None]:
        """Claim the job that is next, whose charge is final from here on.

        Args:
            session: of the transaction.
            able: whether a job can be run now; else only the jobs that were left behind are ended.

        Returns:
            the jobs that were lost with their workers, one that was given back, and the claimed job.
        """
        lost = jobs.fail_overdue(session, now())
        job = jobs.take_ended_at_sites(session) if able else None
        if job is None and able:
            job = jobs.next_waiting(session, self._served())
            if job is not None and not can_run(job.kind, job.plan):
                charges.void(session, job.id)
                return lost, job.id, None
            job = job and jobs.claim(session, job, self.lease)
        # A permit that cannot be made, on a full disk, undoes the claim: nobody pays for that.
        return lost, None, job and self._claimed(session, job)

    @property
    def lease(self) -> timedelta:
        """Time after which a claimed job is lost."""
        return timedelta(seconds=self._job_timeout + _LEASE_MARGIN)

    def _claimed(self, session: Session, job: Job) -> Claimed:
        given = [str(self._store.run_token(job.id)), *self._paths(session, job)]
        joint = jobs.joint_run(session, job.id)
        run = Run(run_job, [job.kind, job.plan, *given])
        if joint is not None and self.joint_runs is not None:
            run = self.joint_runs(session, job, joint, given)
        return Claimed(job, run)

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
        self._begin(job, claimed.run, seconds)

    def _begin(self, job: Job, run: Run, seconds: float) -> None:
        latest = time.monotonic() + seconds
        try:
            future = self._runners.call(seconds, run.function, *run.given)
        except (OSError, RuntimeError):  # the runners broke down
            self._ends.submit(self._over, job, run, latest, None)
            return
        future.add_done_callback(lambda done: self._ends.submit(self._over, job, run, latest, done))

    def _over(self, job: Job, run: Run, latest: float, future: Future[str] | None) -> None:
        """A run is over for us; if it was lost, it may still go on somewhere, or begin."""
        result = None
        if future is not None and not future.cancelled() and future.exception() is None:
            result = future.result()
        left = latest - time.monotonic()
        if result is None and run.again and left > _PATIENCE:
            log.warning("a run is begun again", job=job.id)
            self._begin(job, replace(run, again=False), left)
            return
        with self._counting:
            self._running -= Counter([job.submitter_id])  # which forgets whoever has none
        self._slots.release()
        self._withdraw(job.id)
        self._end(job.id, result)

    def _withdraw(self, job_id: str) -> None:
        try:
            self._store.withdraw(job_id)
        except OSError:
            log.exception("a permit stays", job=job_id)

    def _end(self, job_id: str, result: str | None) -> None:
        """Store the end of a run; None if it failed. Why is not looked at: it may tell of the rows."""
        latest = time.monotonic() + _LEASE_MARGIN
        while not self._stored(job_id, result) and time.monotonic() < latest:
            time.sleep(_PATIENCE)  # the database may come back before the lease ends
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._announce, job_id)
        self._wake.set()

    def _stored(self, job_id: str, result: str | None) -> bool:
        """Try to end a job; false if the database was not to be had."""
        try:
            ended = self._database.run(lambda session: finish(session, job_id, result))
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


def finish(session: Session, job_id: str, result: str | None) -> bool:
    """End a claimed job with its answer and receipts, or without any; false if it had ended before."""
    return jobs.fail(session, job_id) if result is None else charges.commit(session, job_id, result)
