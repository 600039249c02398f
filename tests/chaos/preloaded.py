"""Lets the wall clock of a process jump, and slows its files."""

import mmap
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("preloaded.cc")
NUM_SLOTS = 1 << 16


class Preloaded:
    """A library that is loaded into processes that are started with `environ`. Needs g++.

    Attributes:
        environ: What the processes need in their environment.
    """

    def __init__(self, folder: Path) -> None:
        library, file = folder / "preloaded.so", folder / "numbers"
        command = ["g++", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        file.write_bytes(bytes(16 * NUM_SLOTS))
        self._file = os.open(file, os.O_RDWR)
        self._numbers = memoryview(mmap.mmap(self._file, 16 * NUM_SLOTS)).cast("q")
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_FILE": str(file)}

    def jump(self, pid: int, seconds: float) -> None:
        """Set the wall clock of a process off by so much."""
        self._numbers[pid % NUM_SLOTS] = round(seconds * 1e9)

    def slow_files(self, pid: int, seconds: float) -> None:
        """Let each read and write of a file by a process take so much longer."""
        self._numbers[NUM_SLOTS + pid % NUM_SLOTS] = round(seconds * 1e9)
