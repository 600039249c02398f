"""Measures the memory of this process, and gives freed memory back to the system."""

import ctypes
import gc
import sys
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_PARTS: Final = ("RssAnon:", "RssFile:")


def resident_bytes() -> int:
    """Return the bytes of main memory that this process takes up, without those that it shares with
    other processes; 0 where they are not known."""
    if not _STATUS.is_file():
        return 0
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    sizes = {words[0]: int(words[1]) for words in lines if words[0] in _PARTS}
    return sum(sizes.values()) * 1024


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
