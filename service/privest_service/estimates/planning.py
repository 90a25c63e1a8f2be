"""Plans of queries: light plans are made here; what planning processes make is cached."""

import json
import threading
from collections.abc import Callable, Sequence

from cachetools import FIFOCache

from privest.estimators.federation import Federated, Plan
from privest.privacy.cost import Cost
from privest.privacy.mechanisms import Release, SubsampledSum
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.schemas import SecondOpinion
from privest_service.estimates.tasks import joint_job, opinion_job, plan_job
from privest_service.problems import Invalid, TooManyRequests, Unavailable

_ROOM = 2**25
"""Most characters of the cache: of all plans and second opinions, with their names."""

_MOST_FREE_WORK = 24
"""Most certificates of a plan that is not charged: about 5 s on an idle processor."""


class Planner:
    """Makes plans and caches, as text, what planning processes made; the oldest entry is dropped first.

    Names of entries contain the caller's id, so that no caller's plan is faster because of another's.

    Args:
        call_worker: calls a function in a planning process; that of `Workers`.
    """

    def __init__(self, call_worker: Callable[..., str]) -> None:
        self._call_worker = call_worker
        self._kept = FIFOCache[str, tuple[str, str]](_ROOM, getsizeof=lambda entry: sum(map(len, entry)))
        self._lock = threading.Lock()

    def plan(self, question: ResolvedQuery, *, free: bool = True) -> Plan:
        """Return the plan of a question.

        Args:
            question: to be planned.
            free: whether nothing will be charged for it. Such plans come after others, and their work is
                limited.

        Raises:
            Invalid: an option is out of range, or a free plan takes too much work.
            TooManyRequests: too many plans of the caller's are being made.
            Unavailable: the worker did not come to an end, or too many plans are being made.
        """
        kind, options = question.kind, question.options
        about = [(subject.shape, subject.target) for subject in question.about]
        try:
            certificates = kind.certificates(options)
            if not certificates:
                return kind.plan_for(options, about)
            if free:
                _require_little_work(certificates, len(about))
            priority = "free" if free else "charged"
            made = self._cached(
                f"plan {question.name}",
                lambda: self._call_worker(
                    question.caller_id, plan_job, kind.name, options, about, priority=priority
                ),
            )
        except ValueError as error:
            raise Invalid(str(error)) from None
        return kind.plans.validate_json(made)

    def second_opinion(self, question: ResolvedQuery, planned: Plan) -> SecondOpinion | None:
        """Return the ε of a plan by another accountant, which a planning process asks.

        Return None if the process is lost, or if any plan is being made or waits.

        Only the plan route asks for it. Nothing that is charged or stored depends on it. For several datasets
        it is that of the dataset with the largest privacy loss.
        """
        asked = planned.most if isinstance(planned, Federated) else planned
        try:
            made = self._cached(
                f"opinion {question.name}",
                lambda: self._call_worker(
                    question.caller_id, opinion_job, asked.releases, asked.target.delta, priority="idle"
                ),
            )
        except (TooManyRequests, Unavailable):
            return None
        return SecondOpinion.model_validate_json(made)

    def joint_cost(self, caller_id: str, runs: Sequence[Sequence[Release]], most: Cost) -> Cost | None:
        """What runs over the same records cost by one certificate; None if no worker can be asked for it.

        Args:
            caller_id: who asks.
            runs: the releases of each.
            most: what they cost one after another.
        """
        batched = (isinstance(each, SubsampledSum) for releases in runs for each in releases)
        if len(runs) < 2 or not any(batched):
            return most
        try:
            told = self._call_worker(caller_id, joint_job, runs, most.slack)
        except (TooManyRequests, Unavailable):
            return None
        mu_squared, slack = json.loads(told)
        return min(Cost(mu_squared, slack), most, key=lambda cost: cost.mu_squared)

    def _cached(self, name: str, make: Callable[[], str]) -> str:
        """Return the text cached under a name; make and cache it if there is none."""
        with self._lock:
            entry = self._kept.get(name)
        if entry is not None:
            return entry[1]
        text = make()
        with self._lock:
            if len(name) + len(text) <= _ROOM:
                self._kept[name] = name, text
        return text


def _require_little_work(certificates: int, datasets: int) -> None:
    """Refuse a free plan that takes too much work.

    Raises:
        Invalid: so many certificates for each of so many datasets are too many.
    """
    if certificates * datasets > _MOST_FREE_WORK:
        raise Invalid(
            f"This query samples random batches from {datasets} datasets. With these options a plan that is "
            f"not charged covers at most {_MOST_FREE_WORK // certificates}. Plan it for fewer datasets, "
            "choose a solver that reads all records in each step, or submit the query without planning it "
            "first."
        )
