"""Metrics for Prometheus: of this process, but for the queue, which is that of all replicas.

No label holds an id or a name. Left out is what client libraries tell of their process: its processor time
and the moments at which counters began would tell how long runs took.
"""

import platform
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, start_http_server
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Queue = Callable[[], tuple[int, float] | None]
"""Returns how many jobs wait and for how many seconds the oldest has; None if it cannot be known in time."""

disable_created_metrics()

_own = CollectorRegistry()

REQUESTS = Counter(
    "privest_requests", "Requests answered by this replica.", ["route", "method", "status"], registry=_own
)
DURATIONS = Histogram(
    "privest_request_duration_seconds",
    "Until a request is answered, planned or charged by this replica, where no row has a part in that.",
    ["route", "method"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=_own,
)
REFUSALS = Counter(
    "privest_refusals", "Problems that this replica answered, by their type.", ["reason"], registry=_own
)
CHARGES = Counter("privest_charges", "Requests charged by this replica.", ["kind"], registry=_own)
JOBS = Counter(
    "privest_jobs", "Jobs ended by this replica, on dummies too.", ["kind", "state"], registry=_own
)
RENEWALS = Counter(
    "privest_worker_pools_renewed", "Broken pools of workers replaced by this replica.", registry=_own
)
_VERIFICATIONS = Counter(
    "privest_ledger_verifications", "Owners' ledgers verified by this replica.", ["outcome"], registry=_own
)
_VERIFIED = Counter("privest_ledger_entries_verified", "Entries read for that.", registry=_own)
_FAULTY = Counter("privest_ledger_accounts_faulty", "Accounts that failed in that.", registry=_own)
_LAST = Gauge(
    "privest_ledger_last_verification_timestamp_seconds", "When the last of them ended.", registry=_own
)
Info("privest_build", "What runs here.", registry=_own).info(
    {"version": version("privest"), "python": platform.python_version()}
)


def verified(entries: int, faulty_accounts: int, *, whole: bool) -> None:
    """A ledger was verified."""
    _VERIFICATIONS.labels("whole" if whole else "faulty").inc()
    _VERIFIED.inc(entries)
    _FAULTY.inc(faulty_accounts)
    _LAST.set(int(time.time()))


class _OfQueue(Collector):
    """Jobs that wait, as the database knows them: asked for at each look."""

    def __init__(self) -> None:
        self.queue: Queue | None = None

    def collect(self) -> Iterator[Metric]:
        """Nothing where the database does not answer."""
        if self.queue and (found := self.queue()):
            count, oldest = found
            yield GaugeMetricFamily(
                "privest_jobs_waiting", "Jobs that wait for a worker, in the whole service.", count
            )
            yield GaugeMetricFamily(
                "privest_oldest_waiting_job_seconds",
                "For how long the oldest of them has waited, in the whole service.",
                int(oldest),
            )


class _BySeconds(Collector):
    """All of it as it was when first looked at in a second: often looks tell no finer moments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._second = 0
        self._seen: list[Metric] = []

    def collect(self) -> list[Metric]:
        """Return the same metrics to all who look within one second."""
        with self._lock:
            if (second := int(time.time())) != self._second:
                self._seen, self._second = [*_own.collect()], second
            return self._seen


_of_queue = _OfQueue()
_own.register(_of_queue)
_served = CollectorRegistry(support_collectors_without_names=True)
_served.register(_BySeconds())


def watch(queue: Queue | None) -> None:
    """Tell of this queue from now on, or of none."""
    _of_queue.queue = queue


def exposition(accept: str) -> tuple[bytes, str]:
    """All metrics in the format that is preferred, and its media type."""
    encode, media_type = choose_encoder(accept)
    return encode(_served), media_type


def serve(address: str) -> None:
    """Answer on an address of its own, `host:port`, until this process ends.

    Raises:
        ValueError: it cannot be had.
    """
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host.strip("[]"), _served)
    except OSError as error:
        raise ValueError(
            f"PRIVEST_METRICS_ADDRESS cannot be listened on: {error.strerror}. Choose another one."
        ) from None
