"""`privest`, with the faults of `audit.faults` in its workers."""

import sys

from privest_service.cli import main
from privest_service.estimates.runners import local

NOISE = "AUDIT_NOISE"
"""Variable of the environment: the factor of all noise."""

TRIPWIRE = 7.0625
"""With which the first record begins if its second number is the seconds that it takes to open the rows.

Below zero it cannot be done.
"""

if __name__ == "__main__":
    local._PRELOADED.append("audit.faults")
    sys.exit(main())
