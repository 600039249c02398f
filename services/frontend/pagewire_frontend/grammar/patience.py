"""Decides how long a process is waited for: by its processor time, since a busy machine makes a
good question slow, too."""

import os
import time
from pathlib import Path
from typing import Final

MOST_WAITS: Final = 10
"""Times the limit after which no process is waited for, however little it computed."""

_LEAST_WAIT: Final = 0.01
_USER_TIME: Final = 11
"""Place of the user's ticks in /proc/PID/stat behind the name, those of the system follow
(proc_pid_stat(5))."""


class Patience:
    """The time that is left for one answer of a process.

    Args:
        pid: The process.
        seconds: Processor time that it may take; where that is not known, time of the clock.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._began_at = time.monotonic()
        self._spent_before = _processor_seconds(pid)

    def left(self) -> float:
        """Return the seconds to wait before asking again; 0 when the time is over."""
        left = self._seconds - (time.monotonic() - self._began_at)
        if left > 0:
            return left
        spent = _processor_seconds(self._pid)
        is_known = spent is not None and self._spent_before is not None
        if not is_known or left < -(MOST_WAITS - 1) * self._seconds:
            return 0.0
        assert spent is not None
        assert self._spent_before is not None
        left = self._seconds - (spent - self._spent_before)
        return max(_LEAST_WAIT, left) if left > 0 else 0.0


def _processor_seconds(pid: int) -> float | None:
    """Return the processor time of a process; None where the system does not tell."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, ticks[_USER_TIME : _USER_TIME + 2])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
