"""The audit from the command line, in a checkout: `python -m audit --help`; see `audit.report`."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # BLAS reads it when numpy is first imported

from audit.report import main

sys.exit(main())
