"""Starts the processes of ranks, and ends them. Imports no torch."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel.memory_file import MemoryFile
from pagewire_worker.parallel.rank_stacks import RankStacks, StackFile
from pagewire_worker.parallel.rank_task import HostLink, RankTask

MODULE: Final = "pagewire_worker.rank"


class SpawnedRanks:
    """The processes of ranks of one host, which inherit its memory.

    Args:
        config: Of every rank, with what rank 0 has decided.
        memory: File of the memory, closed here once they are started.
        host_links: Of each rank to other hosts, by its number; closed here as well.
        host: The host; rank 0 is on host 0.

    Attributes:
        links: Rank 0's ends of the sockets to the others; see RankLinks.
    """

    def __init__(
        self,
        config: WorkerConfig,
        memory: MemoryFile,
        ranks: Iterable[int],
        *,
        host_links: Mapping[int, Sequence[HostLink]] = MappingProxyType({}),
        host: int = 0,
    ) -> None:
        self._config = config
        self._memory = memory
        self._host_links = host_links
        self._host = host
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        pairs = {rank: socket.socketpair() for rank in ranks}
        self.links = [near for near, _ in pairs.values()]
        self._stack_files: dict[int, StackFile] = {}
        self._far_ends = {rank: far for rank, (_, far) in pairs.items()}

    def start(self) -> None:
        """Start them. The thread that calls this must live as long as they."""
        for rank, link in self._far_ends.items():
            self._start_rank(rank, link, tuple(self._host_links.get(rank, ())))
        os.close(self._memory.fd)

    def _start_rank(self, rank: int, link: socket.socket, host_links: tuple[HostLink, ...]) -> None:
        stacks = self._stack_files[rank] = StackFile()
        fds = [self._memory.fd, stacks.fd, link.fileno(), *(one.fd for one in host_links)]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            # The standard output of a worker is what it reports to its parent.
            stdout=subprocess.DEVNULL,
            pass_fds=fds,
        )
        self._processes[rank] = process
        # Only the rank has them now, so they end with it.
        for one in host_links:
            os.close(one.fd)
        task = RankTask(
            config=self._config,
            rank=rank,
            fd=self._memory.fd,
            link=link.fileno(),
            slot_bytes=self._memory.slot_bytes,
            stacks_fd=stacks.fd,
            parent=os.getpid(),
            host=self._host,
            host_links=host_links,
        )
        assert process.stdin is not None
        # A process that has ended already is found by `ended`.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(task.encode())
        link.close()

    def ended(self) -> tuple[int, str] | None:
        """Return a rank whose process has ended, and how; None while all run."""
        for rank, process in self._processes.items():
            status = process.poll()
            if status is not None:
                how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
                return rank, f"its process ended with {how}"
        return None

    def stacks(self) -> list[RankStacks]:
        """Return where the code of each rank is, also of one that hangs."""
        return [
            RankStacks(rank, process.pid, self._stack_files[rank].read(process.pid))
            for rank, process in self._processes.items()
            if process.poll() is None
        ]

    def close(self) -> None:
        """End them, and wait until they are gone."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        for link in self.links:
            link.close()
        for file in self._stack_files.values():
            file.close()
        self._stack_files.clear()
