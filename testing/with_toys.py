"""The service with one estimator and one manifold more: `python -m testing.with_toys` in place of `privest`.

Workers load this module too before they do anything, as they load whatever was started.
"""

import sys

from privest.estimators.registry import ESTIMATORS
from privest.manifolds import MANIFOLDS
from testing.toy_estimator import TOY_MEAN
from testing.toy_manifold import Stretched

ESTIMATORS[TOY_MEAN.name] = TOY_MEAN
MANIFOLDS[Stretched.name] = Stretched

if __name__ == "__main__":
    from privest_service.cli import main

    sys.exit(main())
