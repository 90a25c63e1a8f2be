"""What workers do of a run that a hub and sites have together: a site's part, and the hub's answer."""

import json
import time
from base64 import b64decode
from typing import Any

import numpy as np

from privest.estimators.federation import Federated
from privest.estimators.registry import ESTIMATORS
from privest_service.estimates.plans import join_plan, replay_plan, stored_plans
from privest_service.estimates.views import WITHOUT


def join_job(kind: str, plan: str, terms: str, hub: str, run_token: str, path: str) -> str:
    """Take a site's part in a run: the rows in a file are summed here, and noisy answers exchanged.

    Args:
        kind: name of the estimator.
        plan: the whole plan as JSON.
        terms: what is noted of the run, as JSON: the place of this site, the seed, the id at the hub.
        hub: a `Hub`, as JSON.
        run_token: path of the permission to read the rows, which this run uses up.
        path: of the rows.

    Returns:
        the answer as JSON, which all sites come to alike.
    """
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone
    from privest_service.sites.link import Exchange, Hub  # noqa: PLC0415 - likewise

    estimator, told = ESTIMATORS[kind], json.loads(terms)
    planned: Any = stored_plans(estimator).validate_json(plan)
    assert isinstance(planned, Federated)  # noqa: S101 - others are run by the site alone

    def leave(since: float) -> None:
        took = time.monotonic() - since
        time.sleep(worker.public_end(took) - took)

    link = Hub(**json.loads(hub)).link()
    exchange = Exchange(link, told["hub_job"], leave)
    try:
        worker.use_up(run_token)
        gate = worker.gate_of(path, planned, told["place"])
        return _text(join_plan(estimator, planned, gate, told["place"], exchange, told["seed"]))
    finally:
        # Not at one of the whole run, as elsewhere: the hub has seen when each answer left, and what is
        # computed after the last one is of sums that all have.
        exchange.end()
        link.close()


def replay_job(kind: str, plan: str, record: str, seed: str, left: str) -> str:
    """The hub's answer, computed of the answers that the sites exchanged: no row is anywhere near.

    Args:
        kind: name of the estimator.
        plan: the whole plan as JSON.
        record: what was asked and the pooled answers, in order, as JSON.
        seed: of choices that the sites made alike.
        left: places of the sites that left before the end, as JSON.
    """
    estimator = ESTIMATORS[kind]
    planned: Any = stored_plans(estimator).validate_json(plan)
    answers = [(label, np.frombuffer(b64decode(numbers), "<f8")) for label, numbers in json.loads(record)]
    places = json.loads(left)
    return _text(replay_plan(estimator, planned, answers, int(seed)) | ({WITHOUT: places} if places else {}))


def result_job(result: str) -> str:
    """The answer of a site that ran a question alone, as it is."""
    return result


def _text(answer: Any) -> str:
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))
