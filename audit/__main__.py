"""The audit from the command line: see `audit.report`."""

import sys

from audit.report import main

sys.exit(main())
