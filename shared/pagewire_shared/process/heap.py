"""Returns unused heap memory to the system, because the C library keeps small freed pieces."""

import ctypes
import sys
from collections.abc import Callable


def give_back_free_memory() -> None:
    """Return free heap memory to the system, where the C library supports it.

    Takes milliseconds without the interpreter lock: call it after work that took tens of megabytes.
    """
    if _trim is not None:
        _trim(0)


def _find_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    # glibc has malloc_trim; musl does not.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_trim = _find_trim()
