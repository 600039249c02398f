"""Limits the memory of helper processes of the frontend, and waits for their end."""

import contextlib
import resource
import threading
from collections.abc import Callable
from pathlib import Path


def reap_later(wait: Callable[[], object]) -> None:
    """Wait for a process that was killed, beside all else: the kernel may take a while to free its
    memory. Where no thread can be started, the next process that starts finds it."""
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=wait, daemon=True).start()


def limit_address_space(num_bytes: int) -> None:
    """Let allocations fail when `num_bytes` more are in use than now, which ends the process; it
    leaves no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[0]) if statm.exists() else 0
    limit = pages * resource.getpagesize() + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
