"""Reads where the code of a rank is, also where it hangs in a kernel or holds the interpreter.

A rank has no event loop. Its handler of SIGUSR2, which is C code of the interpreter (faulthandler),
writes files, lines and functions into a file without a name that rank 0 has open, too.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_shared.inspection.stacks import CodePlace, ThreadPlaces
from pagewire_worker.parallel.memory_file import new_file

WAIT_SECONDS: Final = 1.0
"""Longest wait for what a rank writes; one that was stopped writes nothing."""
MAX_FILE_BYTES: Final = 256 * 1024

_SETTLED_SECONDS: Final = 0.03
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ (?:\[(.*)\] )?\(most recent")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


@dataclass(frozen=True, slots=True)
class RankStacks:
    """The threads of one rank; none if it wrote nothing."""

    rank: int
    pid: int
    threads: tuple[ThreadPlaces, ...]


class StackFile:
    """The file of one rank; its process inherits `fd`."""

    def __init__(self) -> None:
        self.fd = new_file("pagewire-stacks", 0)
        self._lock = threading.Lock()

    def read(self, pid: int) -> tuple[ThreadPlaces, ...]:
        """Have a process write, and return its threads."""
        with self._lock:
            # The place in the file is that of the process, too.
            os.lseek(self.fd, 0, os.SEEK_SET)
            os.ftruncate(self.fd, 0)
            os.kill(pid, signal.SIGUSR2)
            return tuple(parse_stacks(self._settled()))

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def _settled(self) -> str:
        """Return what was written, once it grows no more."""
        ends_at = time.monotonic() + WAIT_SECONDS
        num_bytes, since = 0, time.monotonic()
        while (now := time.monotonic()) < ends_at:
            found = os.fstat(self.fd).st_size
            if found != num_bytes:
                num_bytes, since = found, now
            elif num_bytes and now - since >= _SETTLED_SECONDS:
                break
            time.sleep(_SETTLED_SECONDS / 3)
        return os.pread(self.fd, MAX_FILE_BYTES, 0).decode(errors="replace")


def parse_stacks(text: str) -> Iterator[ThreadPlaces]:
    """Yield the threads of a text of faulthandler."""
    frames: list[CodePlace] | None = None
    name = ""
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            if frames is not None:
                yield ThreadPlaces(name=name, frames=tuple(frames))
            frames, name = [], thread[1] or ""
        elif frames is not None and (frame := _FRAME.match(line)):
            number = 0 if frame[2] == "???" else int(frame[2])
            frames.append(CodePlace(frame[1], number, frame[3]))
    if frames is not None:
        yield ThreadPlaces(name=name, frames=tuple(frames))
