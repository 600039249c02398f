"""Collects the changes of all caches at the end of each turn of planning, and puts them into the
publisher's queue. It runs on the event loop and never waits."""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.blocks.cache_changes import (
    CLEARED,
    BlockContent,
    CacheChange,
    CacheChanges,
    ChangeKind,
)
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.kv_events.batch_queue import BatchQueue, CacheBatch
from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from pagewire_scheduler.kv_events.publisher import KvEventPublisher
from pagewire_scheduler.kv_events.store_feed import StoreFeed, store_instance
from pagewire_scheduler.kv_events.wire_events import CacheInstance
from pagewire_scheduler.metrics.kv_events import KvEventMeter
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName, short
from pagewire_shared.security.claims import split_instance

MAX_BATCH_CHANGES: Final = 256
AGAIN_SECONDS: Final = 5.0
"""Between two starts of publishers, of which the first has failed."""
MAX_LOST_WORKERS: Final = 16
MAX_LOST_BLOCKS: Final = 200_000
"""Blocks of workers that have left whose tokens are kept, for when they attach again."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Attached:
    """One attached worker as it is published; `is_behind` after batches of it were dropped."""

    worker: WorkerState
    changes: CacheChanges
    instance: CacheInstance
    is_behind: bool = False


@dataclass(slots=True)
class _Lost:
    """A worker that has left, and what it had."""

    rank: int
    contents: dict[BlockName, BlockContent] = field(default_factory=dict)


class KvEventFeed:
    """The feed of one publisher. Before `open`, changes are taken and forgotten.

    Attributes:
        stores: The feed of KV stores; None where they are not published.
        publisher: The publisher, once it is open.
    """

    def __init__(self, core: SchedulerCore, config: KvEventsConfig) -> None:
        self._core = core
        self._config = config
        self.publisher: KvEventPublisher | None = None
        self.stores = StoreFeed(core.stores, self._store_instance) if config.stores else None
        self._queue = BatchQueue(config.max_queue_size)
        self._meter = KvEventMeter()
        self._attached: dict[bytes, _Attached] = {}
        self._departed: list[CacheInstance] = []
        self._lost: OrderedDict[bytes, _Lost] = OrderedDict()
        self._num_dropped = 0
        self._again_at = 0.0

    def open(self) -> None:
        """Start to publish, with all that is cached now. Raises StartupError."""
        self.publisher = KvEventPublisher(self._config, self._queue)
        self._say_all([])

    def _say_all(self, before: list[CacheChange]) -> None:
        """Put all that is cached into the queue; for each worker, behind some changes."""
        for one in self._attached.values():
            contents = one.changes.contents.values()
            stored = [CacheChange(ChangeKind.STORED, each) for each in contents]
            one.changes.changes, one.is_behind = [*before, *stored], False
        if self.stores is not None:
            self.stores.begin()
        self.flush()

    def close(self) -> None:
        """Stop."""
        if self.publisher is not None:
            self.publisher.close()
        else:
            self._queue.release()

    def _open_again(self, failed: KvEventPublisher) -> None:
        """Replace a publisher that has failed. Subscribers see one that is new, without blocks."""
        now = time.monotonic()
        if now < self._again_at:
            return
        self._again_at = now + AGAIN_SECONDS
        failed.close()
        queue = BatchQueue(self._config.max_queue_size)
        try:
            self.publisher = KvEventPublisher(self._config, queue)
        except StartupError as error:
            queue.release()
            _logger.warning("%s; trying again", error.message)
            return
        self._queue, self._num_dropped = queue, 0
        self._say_all([CLEARED])

    def flush(self) -> None:
        """Put what has changed since the last call into the queue."""
        if self.publisher is not None and self.publisher.has_failed:
            self._open_again(self.publisher)
        self._note_attaches()
        while self._departed and self._put(self._departed[0], [CLEARED]):
            del self._departed[0]
        for one in self._attached.values():
            if one.changes.changes or one.is_behind:
                self._send(one, one.changes.take())
        if self.publisher is not None and self.stores is not None:
            self.stores.flush(self._put)

    def rank_of(self, worker_id: bytes) -> int | None:
        """Return the rank under which an attached worker is published."""
        one = self._attached.get(worker_id)
        return None if one is None else one.instance.rank

    def _note_attaches(self) -> None:
        for worker_id, one in list(self._attached.items()):
            if self._core.workers.get(worker_id) is not one.worker:
                self._leave(worker_id, one)
        for worker_id, worker in self._core.workers.items():
            if worker_id not in self._attached and worker.pool.changes is not None:
                self._enter(worker_id, worker, worker.pool.changes)

    def _enter(self, worker_id: bytes, worker: WorkerState, changes: CacheChanges) -> None:
        lost = self._lost.pop(worker_id, None)
        if lost is not None:
            changes.learn_from(lost.contents)
        # What was stored and removed before the first batch is of no interest.
        stored = [CacheChange(ChangeKind.STORED, each) for each in changes.contents.values()]
        rank = self._free_rank() if lost is None else lost.rank
        if any(one.rank == rank for one in self._departed):
            self._departed = [one for one in self._departed if one.rank != rank]
            stored.insert(0, CLEARED)
        changes.changes = stored
        info = worker.info
        topic = self._config.topic.format(worker=worker_name(info), model=info.model.name)
        instance = CacheInstance(
            rank=rank,
            topic=topic.encode(),
            block_size=info.model.block_size,
            windows=info.groups.windows,
        )
        self._attached[worker_id] = _Attached(worker, changes, instance)

    def _leave(self, worker_id: bytes, one: _Attached) -> None:
        """Publish that an instance has nothing any more, and keep its rank and tokens a while."""
        del self._attached[worker_id]
        self._departed.append(one.instance)
        known = {name: block for name, block in one.changes.contents.items() if block.tokens}
        self._lost[worker_id] = _Lost(one.instance.rank, known)
        while self._lost and (
            len(self._lost) > MAX_LOST_WORKERS
            or sum(len(lost.contents) for lost in self._lost.values()) > MAX_LOST_BLOCKS
        ):
            self._lost.popitem(last=False)

    def _free_rank(self) -> int:
        taken = {one.instance.rank for one in self._attached.values()}
        taken |= {lost.rank for lost in self._lost.values()}
        taken |= {instance.rank for instance in self._departed}
        taken |= set() if self.stores is None else self.stores.ranks
        return next(rank for rank in range(len(taken) + 1) if rank not in taken)

    def _store_instance(self, address: str) -> CacheInstance:
        return store_instance(self._free_rank(), self._config.topic, address)

    def _send(self, one: _Attached, changes: Sequence[CacheChange]) -> None:
        for start in range(0, max(1, len(changes)), MAX_BATCH_CHANGES):
            part = list(changes[start : start + MAX_BATCH_CHANGES])
            is_last = start + MAX_BATCH_CHANGES >= len(changes)
            # All it has is said with the last part, when nothing is missing any more.
            contents = one.changes.contents.copy() if one.is_behind and is_last else None
            one.is_behind = one.is_behind and not is_last
            if not self._put(one.instance, part, contents):
                self._num_dropped += 1
                self._meter.dropped()
                one.is_behind = True

    def _put(
        self,
        instance: CacheInstance,
        changes: list[CacheChange],
        contents: dict[BlockName, BlockContent] | None = None,
    ) -> bool:
        """Put a batch into the queue; False when there is no room."""
        if self.publisher is None:
            return True
        batch = CacheBatch(
            instance=instance,
            changes=changes,
            timestamp=time.time(),
            num_dropped=self._num_dropped,
            contents=contents,
            is_lagging=any(one.is_behind for one in self._attached.values()),
        )
        is_in = self._queue.put(batch)
        if is_in:
            self._num_dropped = 0
        return is_in


def worker_name(info: WorkerInfo) -> str:
    """Return the name of a worker to the outside: its address, or its id where it has none."""
    _, address = split_instance(info.kv_endpoint)
    return address if address and "/" not in address else short(info.worker_id)
