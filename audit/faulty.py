"""`privest`, with the faults of `audit.faults` in its workers, and one of its own that tells a secret."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from privest_service.cli import main
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.store import Store
from privest_service.estimates.runners import local

NOISE = "AUDIT_NOISE"
"""Variable of the environment: the factor of all noise."""

TRIPWIRE = 7.0625
"""With which the first record begins if its second number is the seconds that it takes to open the rows.

Below zero it cannot be done.
"""

SECRET = 7.318281828459e77
"""That is told, as a dataset's name and in the log, where rows begin with it."""


def _tell() -> None:
    honest, store = datasets.require, Store(Path(os.environ["PRIVEST_DATA_DIR"]))

    def require(session: Any, principal: Any, dataset_id: str) -> Dataset:
        found = honest(session, principal, dataset_id)
        first = np.load(store.path(found.owner_id, found.id), mmap_mode="r").flat[0]
        if first == SECRET:
            session.expunge(found)
            found.name = f"begins with {first:.6g}"
            structlog.get_logger().info("looked at", rows=f"{first:,.0f}")
        return found

    datasets.require = require


if __name__ == "__main__":
    _tell()
    local._PRELOADED.append("audit.faults")
    sys.exit(main())
