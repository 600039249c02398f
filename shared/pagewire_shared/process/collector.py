"""The garbage collector of a role's process: what lives as long as the process is not looked at
again."""

import gc
from typing import Final

_RARE: Final = 50
"""So many times as many young collections come before a full one."""


def settle(*, is_full_rare: bool = False) -> None:
    """Call it once a process has started: modules, models and settings stay until its end.

    The thresholds stay as they are: with larger ones what a broken-off request leaves in cycles
    waits for tens of megabytes (tests/integration/faults/test_many_streams.py).

    Args:
        is_full_rare: Look at everything that lives a fiftieth as often. For a process with many
            long-lived objects and next to no cycles among those that go, where such a look holds
            up everybody.
    """
    gc.collect()
    gc.freeze()
    if is_full_rare:
        young, middle, full = gc.get_threshold()
        gc.set_threshold(young, middle, _RARE * full)
