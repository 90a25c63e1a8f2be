"""`privest`, whose health checks stand for a fiftieth of a second, so that tests need not wait for the next.

`python -m testing.quick_checks serve`.
"""

import sys

from privest_service.cached_probe import CachedProbe
from privest_service.cli import main


def prepare() -> None:
    """Have each result of a health check be outdated at once."""
    defaults = CachedProbe.__init__.__kwdefaults__
    assert defaults is not None
    defaults["kept"] = 0.02


if __name__ == "__main__":
    prepare()
    sys.exit(main())
