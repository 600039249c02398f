"""Ranks as threads of one process: the same memory, messages and loops, quicker to start."""

import threading
from typing import Any

from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading import ranks
from pagewire_worker.loading.loader import Replica
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from pagewire_worker.serving.rank_loop import serve_rank


class RankThreads:
    """Takes the place of SpawnedRanks."""

    def __init__(self, config: WorkerConfig, memory: GroupMemory, size: int) -> None:
        self._config = config
        self._memory = memory
        self._size = size
        self._threads: dict[int, threading.Thread] = {}
        self._errors: dict[int, str] = {}

    def start(self) -> None:
        for rank in range(1, self._size):
            thread = threading.Thread(target=self._serve, args=(rank,), daemon=True)
            self._threads[rank] = thread
            thread.start()

    def ended(self) -> tuple[int, str] | None:
        return next(iter(self._errors.items()), None)

    def close(self) -> None:
        for thread in self._threads.values():
            thread.join(10)

    def _serve(self, rank: int) -> None:
        collectives = SharedCollectives(self._memory, RankTopology(rank, self._size), 10_000)
        try:
            serve_rank(self._config, collectives)
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
