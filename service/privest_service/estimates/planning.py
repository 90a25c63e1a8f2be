"""Plans of questions: light ones are made here, heavy ones by a worker, and what took long is kept."""

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
"""Most characters of all plans that are remembered."""


class Planner:
    """Makes plans and keeps those that took long, as text; what was kept first is forgotten first.

    Heavy plans are made by `call_worker`, which is that of `Workers`.
    """

    def __init__(self, call_worker: Callable[..., str]) -> None:
        self._call_worker = call_worker
        self._kept = FIFOCache[str, str](_ROOM, getsizeof=len)
        self._lock = threading.Lock()

    def plan(self, question: ResolvedQuery, *, free: bool = True) -> Plan:
        """The plan of a question.

        A plan that is only looked at is `free`. One that is to be charged finds a place where a free one
        finds none.

        Raises:
            Invalid: a choice is out of range.
            TooManyRequests: too many plans of the caller's are being made.
            Unavailable: the worker did not come to an end, or too many plans are being made.
        """
        kind, options = question.kind, question.options
        about = [(subject.shape, subject.target) for subject in question.about]
        try:
            if not kind.is_heavy(options):
                return kind.plan_for(options, about)
            name = f"plan {question.name}"
            if (made := self.kept(name)) is None:
                made = self._call_worker(question.caller_id, plan_job, kind.name, options, about, free=free)
                self.keep(name, made)
        except ValueError as error:
            raise Invalid(str(error)) from None
        return kind.plans.validate_json(made)

    def second_opinion(self, question: ResolvedQuery, planned: Plan) -> SecondOpinion | None:
        """Ask another accountant about a plan, in a worker.

        Returns None if the worker is lost, or if too many wait for one.

        Only looks at plans ask for it. What is charged and stored knows nothing of it. Of several datasets it
        is on the one that gives most.
        """
        asked = planned.most if isinstance(planned, Federated) else planned
        try:
            told = self._call_worker(question.caller_id, opinion_job, asked.releases, asked.target.delta)
        except (TooManyRequests, Unavailable):
            return None
        return SecondOpinion.model_validate_json(told)

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

    def kept(self, name: str) -> str | None:
        """The text that was kept under a name, if it still is."""
        with self._lock:
            return self._kept.get(name)

    def keep(self, name: str, text: str) -> None:
        """Keep a text, unless it is longer than all that may be kept."""
        with self._lock:
            if len(text) <= _ROOM:
                self._kept[name] = text
