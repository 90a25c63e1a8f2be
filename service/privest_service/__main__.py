"""`python -m privest_service` is `privest`."""

import sys

from privest_service.cli import main

sys.exit(main())
