"""Reads cores, memory and processor type from the tables of the operating system."""

import math
import os
from pathlib import Path

_CPU_FOLDER = Path("/sys/devices/system/cpu")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_MEMORY = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def num_physical_cores() -> int:
    """Return the number of available physical cores, within the quota of a container."""
    cpus = (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )
    cores = len({_siblings(cpu) for cpu in cpus})
    return max(1, min(cores, _quota(cores)))


def free_memory_bytes() -> int:
    """Return memory that could be allocated now, within the machine and the container."""
    free = [_meminfo_available()]
    limit, current = _CGROUP_MEMORY
    if limit.is_file() and current.is_file() and limit.read_text().strip() != "max":
        free.append(int(limit.read_text()) - int(current.read_text()))
    return max(0, min(free))


def _meminfo_available() -> int:
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _siblings(cpu: int) -> str:
    path = _CPU_FOLDER / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    return path.read_text().strip() if path.is_file() else str(cpu)


def _quota(default: int) -> int:
    if not _CGROUP_LIMIT.is_file():
        return default
    quota, period = _CGROUP_LIMIT.read_text().split()
    return default if quota == "max" else math.ceil(int(quota) / int(period))


def processor_identity() -> str:
    """Return a text that identifies this type of processor; empty if nothing is known.

    Names alone are not enough, because a virtual machine may hide them.
    """
    facts = _processor_facts()
    return "; ".join(f"{name} {facts[name]}" for name in _IDENTITY if name in facts)


def has_amx() -> bool:
    """Return whether the processor multiplies bfloat16 matrices by AMX."""
    return "amx_bf16" in _processor_facts().get("flags", "").split()


_IDENTITY = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    # The same of arm64.
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


def _processor_facts() -> dict[str, str]:
    """Return the facts that Linux lists for the first processor."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
