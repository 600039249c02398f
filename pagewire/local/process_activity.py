"""Activity of a process according to the kernel: a process that does not answer computes, waits or
sleeps."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

BUSY_SHARE = 0.2
"""Share of a core above which a process counts as computing."""


class Activity(Enum):
    """Activity of a process between two looks."""

    IDLE = "idle"
    """The process sleeps."""
    STOPPED = "stopped"
    """A signal has stopped the process."""
    BUSY = "busy"
    """The process computes."""
    HELD = "held"
    """The process waits for a core or a disk, or is under a debugger."""
    UNKNOWN = "unknown"
    """The system does not report it."""


@dataclass(frozen=True, slots=True)
class _Sample:
    now: float
    cpu_seconds: float


class ActivityMeter:
    """Measures the activity of processes between two calls of `look`."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._samples: dict[int, _Sample] = {}
        self._tick_seconds = 1.0 / os.sysconf("SC_CLK_TCK")

    def look(self, pid: int, now: float) -> Activity:
        """Return the activity of `pid` since the last call; HELD at the first call."""
        try:
            state, cpu_seconds = self._read(self._root / str(pid) / "stat")
            states = {self._read(task / "stat")[0] for task in self._tasks(pid)} | {state}
        except (OSError, ValueError, IndexError):
            return Activity.UNKNOWN
        before = self._samples.get(pid)
        self._samples[pid] = _Sample(now, cpu_seconds)
        if state == "T":
            return Activity.STOPPED
        if before is None or now <= before.now:
            return Activity.HELD
        if cpu_seconds - before.cpu_seconds >= BUSY_SHARE * (now - before.now):
            return Activity.BUSY
        # R: runs or waits for a core. D: waits for a disk. t: stopped by a debugger.
        return Activity.HELD if states & {"R", "D", "t"} else Activity.IDLE

    def forget(self, pid: int) -> None:
        """Drop the last sample of `pid`, which has answered or ended."""
        self._samples.pop(pid, None)

    def _tasks(self, pid: int) -> list[Path]:
        return list((self._root / str(pid) / "task").iterdir())

    def _read(self, path: Path) -> tuple[str, float]:
        """Return state and CPU time. The process name before them may contain brackets."""
        words = path.read_text(errors="replace").rpartition(")")[2].split()
        return words[0], (int(words[11]) + int(words[12])) * self._tick_seconds
