"""Settings of glibc's allocator for processes that move KV, and the return of free heap memory."""

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Final

# Roles that move KV.
_ROLES: Final = frozenset({"worker", "kvstore"})
# glibc maps allocations above the first threshold and unmaps them when freed, so a message of 1 MiB
# would cost 256 page faults on each side. It trims the top of its heap above the second. The values
# are far above a message of KV; the first is the most that glibc allows.
# (https://sourceware.org/glibc/manual/latest/html_node/Malloc-Tunable-Parameters.html)
_SETTINGS: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
_TUNABLES: Final = ("glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold")


def with_allocator_settings(environ: Mapping[str, str], role: str) -> dict[str, str]:
    """Return the environment to start `role` in.

    Nothing is added when `environ` has one of these settings, or another allocator in LD_PRELOAD.
    """
    is_set = any(name in environ for name in (*_SETTINGS, "LD_PRELOAD"))
    is_set |= any(name in environ.get("GLIBC_TUNABLES", "") for name in _TUNABLES)
    added = {} if is_set or role not in _ROLES else _SETTINGS
    return {**environ, **added}


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
