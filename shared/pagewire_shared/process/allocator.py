"""Settings of glibc's allocator for processes that move KV; they must stand before a start."""

from collections.abc import Mapping
from typing import Final

# Roles through which KV passes.
_ROLES: Final = frozenset({"worker", "kvstore"})
# glibc takes memory of this size and above from the kernel and gives it back at once, so a message
# of 1 MiB would cost 256 page faults on each side; and it gives back the top of its heap beyond the
# second. Far above a message of KV, and the most that glibc allows for the first.
# (https://sourceware.org/glibc/manual/latest/html_node/Malloc-Tunable-Parameters.html)
_SETTINGS: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
_TUNABLES: Final = ("glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold")


def with_allocator_settings(environ: Mapping[str, str], role: str) -> dict[str, str]:
    """Return the environment to start `role` in.

    Whoever has set one of these, or another allocator, knows better: then nothing is added.
    """
    is_set = any(name in environ for name in (*_SETTINGS, "LD_PRELOAD"))
    is_set |= any(name in environ.get("GLIBC_TUNABLES", "") for name in _TUNABLES)
    added = {} if is_set or role not in _ROLES else _SETTINGS
    return {**environ, **added}
