"""Memory that nobody uses, back to the system: the C library keeps what was freed in small
pieces."""

import ctypes
import sys
from collections.abc import Callable


def give_back_free_memory() -> None:
    """Return free memory of the heap to the system where its C library can; the interpreter lock is
    free meanwhile. Takes milliseconds: call it after work that took tens of megabytes."""
    if _trim is not None:
        _trim(0)


def _find_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    # glibc's; musl has none.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_trim = _find_trim()
