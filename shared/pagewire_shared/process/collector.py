"""Settings of the garbage collector once a role's process has started."""

import gc
from typing import Final

_RARE: Final = 50
"""Factor by which full collections become rarer."""


def freeze_gc(*, is_full_rare: bool = False) -> None:
    """Exclude all present objects from collection: modules, models and settings live until the end.

    Call it once, when the process has started. The thresholds stay: with larger ones, cycles of
    broken-off requests would hold tens of megabytes
    (tests/integration/faults/test_many_streams.py).

    Args:
        is_full_rare: Make full collections 50 times rarer. For a process with many long-lived
            objects and few cycles among the others, which a full collection would stall.
    """
    gc.collect()
    gc.freeze()
    if is_full_rare:
        young, middle, full = gc.get_threshold()
        gc.set_threshold(young, middle, _RARE * full)
