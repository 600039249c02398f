"""Memory limit of a helper process of the frontend."""

import resource
from pathlib import Path


def limit_address_space(num_bytes: int) -> None:
    """Let allocations fail when `num_bytes` more are in use than now, which ends the process; it
    leaves no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[0]) if statm.exists() else 0
    limit = pages * resource.getpagesize() + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
