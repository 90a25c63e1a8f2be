"""The connector: a thread of a site that offers datasets to its hub and takes the hub's questions.

It calls the hub, and nobody calls it. Any number of replicas may do so at a time: what each step changes is
changed once, whoever comes first.
"""

import json
import threading
import time

import structlog

from privest_service.bounded_http import UnfitAnswerError
from privest_service.jobs.models import Job
from privest_service.problems import Problem, TooManyRequests, Unavailable
from privest_service.sites.link import Hub, Link, OverError, UnreachableError
from privest_service.sites.schemas import (
    MOST_OFFERED,
    KnownDataset,
    KnownDatasets,
    SiteDecided,
    SiteQuestion,
    SiteQuestions,
)
from privest_service.sites.taking import RefusedError, Taking

_PATIENCE = 1.0
"""Seconds between attempts, and for which the hub is asked to wait where nothing is under way."""

_LOOK = 0.1
"""Seconds between two looks at jobs here, of whose next state only the site's database tells."""

_SPACING = 0.1
"""Fewest seconds from one round of calls to the next, also where the hub holds no answer back."""

_PAGE = 200
"""Datasets in one page of the hub's list."""

_LONGEST_REASON = 500
"""Most characters of a reason at the hub."""

_OVER = {
    "denied": "The owner denied it.",
    "expired": "The owner did not decide in time.",
    "withdrawn": "The site gave it back.",
    "voided": "The site gave it back.",
    "failed": "The run failed at the site.",
}
"""Words for the hub, by the state of a job that comes to no answer."""

log = structlog.get_logger()


class Connector:
    """Keeps a site and its hub together.

    Args:
        hub: where the hub is.
        taking: what takes its questions.
    """

    def __init__(self, hub: Hub, taking: Taking) -> None:
        self._hub, self._taking = hub, taking
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="connector", daemon=True)
        self._offered: dict[str, str] | None = None
        self._refused = set[str]()
        self._mark, self._seen = "", dict[str, str]()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the call that is made now."""
        self._stopping.set()
        self._thread.join(_PATIENCE)

    def _keep(self) -> None:
        link = self._hub.link()
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self._offer(link)
                self._answer(link)
                self._stopping.wait(max(0.0, begun + _SPACING - time.monotonic()))
                continue
            except (UnreachableError, Problem):
                pass  # the hub or the database: both may come back
            except OverError as refused:
                log.warning("the hub refuses the site", status=refused.args[0])
            except UnfitAnswerError as unfit:
                log.warning("an answer of the hub is refused", why=str(unfit))
            except Exception:
                log.exception("the connection to the hub failed")
            self._offered = None
            self._stopping.wait(_PATIENCE)
        link.close()

    def _offer(self, link: Link) -> None:
        """Tell the hub of datasets that were granted to it, and withdraw those that are not any more.

        One that the hub refuses, as its name may be none by newer rules, does not keep back the others.
        """
        granted = self._taking.offered()
        if self._offered is None:
            self._offered, self._refused = _at_hub(link), set()
        for dataset_id in self._offered.keys() - granted.keys():
            link.call("DELETE", f"/v1/datasets/{self._offered[dataset_id]}")
            del self._offered[dataset_id]
        self._refused &= granted.keys()
        for dataset_id in granted.keys() - self._offered.keys() - self._refused:
            dataset = granted[dataset_id]
            facts = {"name": dataset.name, "n": dataset.n, "schema": json.loads(dataset.dataset_schema)}
            try:
                made = link.asked(KnownDataset, "PUT", f"/v1/sites/datasets/{dataset_id}", facts)
            except OverError as refused:
                log.warning("the hub refuses a dataset", dataset=dataset_id, status=refused.args[0])
                self._refused.add(dataset_id)
            else:
                self._offered[dataset_id] = made.id

    def _answer(self, link: Link) -> None:
        """Take one step with each question, and wait for further ones: here for our jobs, else at the hub."""
        latest = time.monotonic() + _PATIENCE
        while self._seen and self._taking.states(self._seen) == self._seen and time.monotonic() < latest:
            self._stopping.wait(_LOOK)
        waiting = self._taking.waiting()
        wait = 0.0 if self._seen else _PATIENCE
        listed = link.asked(SiteQuestions, "GET", "/v1/sites/questions", wait=wait, mark=self._mark)
        asked = {question.job for question in listed.questions}
        for job, hub_job in waiting:
            if hub_job not in asked:
                self._taking.give_back(job)
        self._seen.clear()
        for question in listed.questions:
            self._step(link, question)
        self._mark = listed.mark

    def _step(self, link: Link, question: SiteQuestion) -> None:
        job = self._taking.job_of(question.job)
        path = f"/v1/sites/questions/{question.job}"
        try:
            if job is None and question.state == "asked":
                job = self._taken(question)
            if job is None:
                raise RefusedError("The site does not know this question any more.")
            if job.state in _OVER:
                raise RefusedError(_OVER[job.state])
            state = question.state
            if job.state == "reserved" and state == "asked":
                accept = {"decision": "accept"}
                state = link.asked(SiteDecided, "POST", f"{path}/decision", accept).state
            if job.state == "requested" or state == "begun":
                self._seen[job.id] = job.state
            if job.state == "reserved" and state == "begun":
                self._taking.begin(job)
            elif job.state == "committed":
                receipt, result = self._taking.end_of(job)
                link.call("POST", f"{path}/end", json={"receipt": receipt.model_dump(), "result": result})
        except RefusedError as refused:
            log.info("question of the hub refused", question=question.job)
            reason = str(refused)[:_LONGEST_REASON]
            link.call("POST", f"{path}/decision", json={"decision": "refuse", "reason": reason})
        except OverError:
            log.info("question of the hub is over", question=question.job)

    def _taken(self, question: SiteQuestion) -> Job | None:
        """The job that a question becomes here.

        Raises:
            RefusedError: it becomes none.
            Unavailable, TooManyRequests: it may later.
        """
        try:
            self._taking.take(question)
        except (RefusedError, Unavailable, TooManyRequests):
            raise
        except Problem as refused:
            raise RefusedError(refused.detail or refused.title) from None
        except Exception:  # whatever a hub sent, other questions go on
            log.exception("a question of the hub broke off")
            raise RefusedError("The site cannot take this question.") from None
        return self._taking.job_of(question.job)


def _at_hub(link: Link) -> dict[str, str]:
    """Return the hub's ids of the datasets that it knows to be here, by ours.

    Raises:
        UnfitAnswerError: the hub lists more datasets than a site may offer.
    """
    found, count = dict[str, str](), 0
    query: dict[str, str | int] = {"limit": _PAGE}
    while True:
        page = link.asked(KnownDatasets, "GET", "/v1/datasets", **query)
        found |= {each.at_site: each.id for each in page.datasets if each.at_site}
        count += max(1, len(page.datasets))  # a page of nothing counts, or a hub could send these for ever
        if count > MOST_OFFERED:
            raise UnfitAnswerError(f"it lists more than {MOST_OFFERED:,} datasets")
        if page.next is None:
            return found
        query["cursor"] = page.next
