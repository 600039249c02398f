"""Starts the processes of the ranks behind the first, and ends them."""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Final

from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.rank_task import RankTask

MODULE: Final = "pagewire_worker.rank"


class SpawnedRanks:
    """The processes of ranks 1 to `size` - 1, which inherit `memory`.

    Args:
        config: Of every rank, with what rank 0 has decided.
    """

    def __init__(self, config: WorkerConfig, memory: GroupMemory, size: int) -> None:
        self._config = config
        self._memory = memory
        self._size = size
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start them. The thread that calls this must live as long as they."""
        memory = self._memory
        for rank in range(1, self._size):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE],
                stdin=subprocess.PIPE,
                # The standard output of a worker is what it reports to its parent.
                stdout=subprocess.DEVNULL,
                pass_fds=(memory.fd,),
            )
            self._processes[rank] = process
            task = RankTask(
                config=self._config,
                rank=rank,
                size=self._size,
                fd=memory.fd,
                slot_bytes=memory.slot_bytes,
                parent=os.getpid(),
            )
            assert process.stdin is not None
            # A process that has ended already is found by `ended`.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(task.encode())
        memory.close_file()

    def ended(self) -> tuple[int, str] | None:
        """Return a rank whose process has ended, and how; None while all run."""
        for rank, process in self._processes.items():
            status = process.poll()
            if status is not None:
                how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
                return rank, f"its process ended with {how}"
        return None

    def close(self) -> None:
        """End them, and wait until they are gone."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
