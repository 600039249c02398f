"""Which share of the machine's CPU time went to others than the server and this process."""

import time
from dataclasses import dataclass
from pathlib import Path

from compare.process_tree import TICKS_PER_SECOND, cpu_ticks

# Of /proc/stat's first line: user nice system idle iowait irq softirq steal. Guests are in user.
_NUM_FIELDS = 8
_IDLE = (3, 4)


@dataclass(frozen=True, slots=True)
class CpuClock:
    """CPU time so far, in ticks.

    Attributes:
        total: Of all cores, idle or not.
        busy: Of all cores, with what the machine's host has taken from it.
        own: Of the server and this process.
    """

    total: float
    busy: float
    own: float


def read_clock(server: int | None) -> CpuClock:
    """Return the time of the machine, and of a server's tree, if it runs yet, with this process."""
    line = Path("/proc/stat").read_text().splitlines()[0]
    fields = [int(field) for field in line.split()[1 : 1 + _NUM_FIELDS]]
    idle = sum(fields[place] for place in _IDLE)
    own = time.process_time() * TICKS_PER_SECOND + (cpu_ticks(server) if server else 0)
    return CpuClock(sum(fields), sum(fields) - idle, own)


def foreign_share(before: CpuClock, after: CpuClock) -> float:
    """Return the part of all cores' time that others took, from 0 to 1."""
    total = after.total - before.total
    foreign = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, foreign / total)) if total else 0.0
