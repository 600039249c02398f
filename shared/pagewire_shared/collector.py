"""The garbage collector of a role's process: what lives as long as the process is not looked at
again."""

import gc


def settle() -> None:
    """Call it once a process has started: modules, models and settings stay until its end.

    The thresholds stay as they are: with larger ones what a broken-off request leaves in cycles
    waits for tens of megabytes (tests/integration/test_many_streams.py).
    """
    gc.collect()
    gc.freeze()
