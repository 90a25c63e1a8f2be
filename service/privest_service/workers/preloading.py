"""Loaded first in the process from which workers are forked: what follows is not searched for garbage."""

import gc

gc.disable()
