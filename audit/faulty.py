"""`privest`, with the faults of `audit.faults` in its workers."""

import sys

from privest_service.cli import main
from privest_service.estimates.runners import local

if __name__ == "__main__":
    local._PRELOADED.append("audit.faults")
    sys.exit(main())
