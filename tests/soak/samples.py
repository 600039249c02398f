"""Reads what a process holds, and how fast that grows."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOUR: Final = 3600.0
MIB: Final = 2**20
WARM_SHARE: Final = 0.25
"""Of the samples of a process, left out of slopes at its start: caches fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process holds at a time, in seconds since the start."""

    at: float
    memory: int
    files: int
    threads: int


def read_sample(pid: int, at: float) -> Sample | None:
    """Return a sample of a process; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in facts:
        return None  # it has ended and waits to be collected
    memory = int(facts["VmRSS"].split()[0]) * 1024
    return Sample(at, memory, files, int(facts["Threads"]))


def shared_bytes() -> int:
    """Return the bytes that files in /dev/shm take."""
    folder = Path("/dev/shm")
    return sum(one.stat().st_blocks * 512 for one in folder.rglob("*") if one.is_file())


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth per second of the line through some points; 0 for fewer than three."""
    if len(points) < 3:
        return 0.0
    middle = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    return sum((at - middle) * (value - mean) for at, value in points) / spread if spread else 0.0


def warmed(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples behind the start of a process."""
    return samples[int(len(samples) * WARM_SHARE) :]


def growth_per_hour(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Return the growth of memory in MiB, of files and of threads."""
    kept = warmed(samples)
    return (
        slope([(one.at, one.memory / MIB) for one in kept]) * HOUR,
        slope([(one.at, float(one.files)) for one in kept]) * HOUR,
        slope([(one.at, float(one.threads)) for one in kept]) * HOUR,
    )
