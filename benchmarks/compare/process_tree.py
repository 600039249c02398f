"""A server's processes: which they are, what CPU time and memory they take, and their end."""

import contextlib
import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.05
_POLL_SECONDS = 0.05


def members(root: int) -> list[int]:
    """Return the process `root`, all that descend from it, and all of the session that it leads."""
    in_session = {pid for pid, _, session in _relations() if session == root}
    return sorted(in_session | set(descendants(root)) | {root})


def descendants(root: int) -> list[int]:
    """Return all processes that descend from `root`, without it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, parent, _ in _relations():
        children[parent].append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        born = children[waiting.pop()]
        found += born
        waiting += born
    return sorted(found)


def _relations() -> Iterator[tuple[int, int, int]]:
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            yield int(folder.name), int(fields[1]), int(fields[3])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may hold anything; None if gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def cpu_ticks(root: int) -> int:
    """Return the CPU time of a tree, with that of children that have ended."""
    stats = [_stat(pid) for pid in members(root)]
    return sum(int(field) for fields in stats if fields for field in fields[11:15])


def memory_bytes(pids: list[int]) -> int:
    """Return the memory of processes; what several share counts once, where the system tells."""
    return sum(_memory_kib(pid) for pid in pids) * 1024


def _memory_kib(pid: int) -> int:
    for name, pattern in (("smaps_rollup", r"^Pss:\s+(\d+)"), ("status", r"^VmRSS:\s+(\d+)")):
        with contextlib.suppress(OSError):
            found = re.search(pattern, (_PROC / str(pid) / name).read_text(), re.MULTILINE)
            if found:
                return int(found[1])
    return 0


class MemoryPeak:
    """Samples the memory of all that this process has started, in a thread, while the block runs.

    Attributes:
        bytes: The most so far.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "MemoryPeak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self.bytes = max(self.bytes, memory_bytes(descendants(os.getpid())))


def stop(root: int, patience_seconds: float = 30.0) -> None:
    """End a tree: asked first, then killed."""
    pids = members(root)
    for ask in (signal.SIGTERM, signal.SIGKILL):
        for pid in [root] if ask == signal.SIGTERM else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, ask)
        deadline = time.monotonic() + patience_seconds
        while any(lives(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended but was not waited for does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] != "Z"
