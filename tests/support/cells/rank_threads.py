"""Ranks as threads of one process: the same memory, messages and loops, quicker to start."""

import socket
import threading
from collections.abc import Iterable
from typing import Any

from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading import ranks
from pagewire_worker.loading.loader import Replica
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.memory_file import MemoryFile
from pagewire_worker.parallel.rank_links import close_link
from pagewire_worker.parallel.rank_stacks import RankStacks
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from pagewire_worker.serving.rank_loop import serve_rank


class RankThreads:
    """Takes the place of SpawnedRanks."""

    def __init__(self, config: WorkerConfig, file: MemoryFile, ranks: Iterable[int]) -> None:
        self._config = config
        num_stages = config.pipeline_parallel_size
        self._memory = GroupMemory(
            config.num_ranks, file.fd, file.slot_bytes, num_stages=num_stages
        )
        self._ranks = ranks
        self._threads: dict[int, threading.Thread] = {}
        self._errors: dict[int, str] = {}
        pairs = [socket.socketpair() for _ in range(1, config.num_ranks)]
        self.links = [near for near, _ in pairs]
        self._far_ends = [far for _, far in pairs]

    def start(self) -> None:
        for rank in self._ranks:
            thread = threading.Thread(target=self._serve, args=(rank,), daemon=True)
            self._threads[rank] = thread
            thread.start()

    def ended(self) -> tuple[int, str] | None:
        return next(iter(self._errors.items()), None)

    def stacks(self) -> list[RankStacks]:
        return []

    def close(self) -> None:
        for thread in self._threads.values():
            thread.join(10)
        for link in self._far_ends:
            close_link(link)

    def _serve(self, rank: int) -> None:
        topology = ranks.topology_of(self._config, rank)
        collectives = SharedCollectives(self._memory, topology, 10_000)
        try:
            serve_rank(self._config, collectives, self._far_ends[rank - 1])
        except Exception as error:  # noqa: BLE001 - the end of the group says it
            self._errors[rank] = str(error)
        collectives.close()


def use_threads(monkeypatch: Any) -> None:
    """Let replicas of this process have their ranks in it."""
    monkeypatch.setattr(ranks, "SpawnedRanks", RankThreads)


def end_ranks(replica: Replica) -> None:
    """End the ranks of a replica, if it has any."""
    if replica.group is not None:
        replica.group.close()
