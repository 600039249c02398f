"""The garbage collector of a role's process: what lives as long as the process is not looked at
again, and what a step makes and drops does not start a collection."""

import gc

YOUNG_OBJECTS = 20_000
"""New objects that start a collection. A step of some hundred streams makes a few thousand that
live until the next one; with the default of 700 every step scans them several times."""


def settle() -> None:
    """Call it once a process has started: modules, models and settings stay until its end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 4, 2)
