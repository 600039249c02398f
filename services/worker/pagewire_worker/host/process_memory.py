"""Measures the memory of this process, and gives freed memory back to the system."""

import ctypes
import gc
import sys
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")


def resident_bytes() -> int:
    """Return the bytes of main memory that this process takes up; 0 where it is not known."""
    if not _STATUS.is_file():
        return 0
    line = next(one for one in _STATUS.read_text().splitlines() if one.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def give_back() -> None:
    """Free cycles without references, those frozen at the start included, and return free
    memory of the allocator to the system."""
    # A replica is frozen when it is loaded: see collector.freeze_gc.
    gc.unfreeze()
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(ctypes.c_size_t(0))
    gc.freeze()
