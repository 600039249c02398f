"""Triton's interpreter with the faults of a device that it hides.

`poisoned()` is on for the whole suite of the kernels and of captured decodes; PAGEWIRE_POISON=0
turns it off, to debug. What it adds:

- `launches`: each pointer that is loaded, stored or added to lies in the tensor it came from, and
  whole numbers have the widths they have on a device.
- memory that nobody has written is NaN, or the largest whole number (`uninitialised`).
- `recorded`: a stand-in for CUDA graphs that starts what was recorded, by address, and no Python.
- `far`: tensors with elements beyond 2**31, of which few take memory.
- `planted`: bugs that the suite must find with all this; `hunt` plants them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def is_on() -> bool:
    """Return whether tests run poisoned."""
    return os.environ.get("PAGEWIRE_POISON", "1") != "0"


@contextmanager
def poisoned() -> Iterator[None]:
    """Have kernels run poisoned meanwhile, unless that is off."""
    if not is_on():
        yield
        return
    # Triton asks the environment when it is imported, which is not yet.
    from support.kernels.uninitialised import filled_with_nan
    from support.poison.launches import checked_launches

    with filled_with_nan(), checked_launches():
        yield
