"""What a process does at the moment, as the kernel tells: whether one that does not answer
computes, waits for its turn, or does nothing at all."""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

BUSY_SHARE = 0.2
"""Of a core: a process that gets more computes."""


class Activity(Enum):
    """What a process that does not answer does."""

    IDLE = "idle"
    """It sleeps, and gets no time because it asks for none."""
    STOPPED = "stopped"
    """By a signal: it gets no time on any machine."""
    BUSY = "busy"
    """It computes."""
    HELD = "held"
    """It would go on: it waits for a core or a disk, or a debugger holds it."""
    UNKNOWN = "unknown"
    """The system does not tell."""


@dataclass(frozen=True, slots=True)
class _Sample:
    now: float
    cpu_seconds: float


class ActivityMeter:
    """Looks at processes again and again; what one did is seen between two looks."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._samples: dict[int, _Sample] = {}
        self._tick_seconds = 1.0 / os.sysconf("SC_CLK_TCK")

    def look(self, pid: int, now: float) -> Activity:
        """Return what `pid` has done since the look before; HELD at the first."""
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
        # R: wants a core. D: waits for a disk. t: a debugger's.
        return Activity.HELD if states & {"R", "D", "t"} else Activity.IDLE

    def forget(self, pid: int) -> None:
        """Begin anew with `pid`, which has answered or is gone."""
        self._samples.pop(pid, None)

    def _tasks(self, pid: int) -> list[Path]:
        return list((self._root / str(pid) / "task").iterdir())

    def _read(self, path: Path) -> tuple[str, float]:
        """Return state and CPU time. The name before them may hold anything, even brackets."""
        words = path.read_text(errors="replace").rpartition(")")[2].split()
        return words[0], (int(words[11]) + int(words[12])) * self._tick_seconds
