"""Copies named blocks out of the pool at low priority, for the stores.

Runs in the model thread, does no I/O and never waits, but for ranks. Blocks that cannot be copied
at once stay, or are dropped and counted. At most NUM_STAGING buffers are in use. While all of them
are, nothing is copied, so a slow store costs neither memory nor time.
"""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from pagewire_shared.steps.columns import Ints
from pagewire_shared.steps.plan import NO_SLOT, StepPlan
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.kv.block_copy import make_staging
from pagewire_worker.kv.block_memory import BlockMemory
from pagewire_worker.kv.block_observer import BlockObserver
from pagewire_worker.kv.device_copies import DeviceCopies, ImmediateCopies
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockPlacement
from pagewire_worker.offload.put_batch import PutBatch, PutOutlet
from pagewire_worker.offload.unsent_blocks import UnsentBlock, UnsentBlocks

MAX_NAMES = 65_536
KNOWN_SECONDS = 60.0
"""A store evicts without telling workers. If a name is computed again after this time, it was most
likely not found there."""
DECLINED_SECONDS = 5.0
"""A store that had no room for a block may soon have some."""


class KnownNames:
    """The newest names, each until its time is over."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, names: Iterable[bytes], until: float) -> None:
        """Note that `names` are not offered before the time `until`, in seconds."""
        for name in names:
            self._until[name] = until
            self._until.move_to_end(name)
        while len(self._until) > self._max_names:
            self._until.popitem(last=False)

    def holds(self, name: bytes, now: float) -> bool:
        """Whether `name` is not offered at the time `now`."""
        return self._until.get(name, -1.0) > now

    def clear(self) -> None:
        """Forget all names, because the store has changed."""
        self._until.clear()


_logger = logging.getLogger(__name__)

NUM_STAGING = 12
STAGING_BYTES = 4 * 1024 * 1024
"""Copied in about a millisecond; large enough to make a store's round trips cheap."""
DEVICE_STAGING_BYTES = 64 * 1024 * 1024
MIN_DEVICE_BLOCKS = 16
"""Rows of a buffer on a device. Its copies are enqueued, which takes no longer for many blocks. A
step of a large model names more bytes than buffers of a few blocks hold."""
ALL_DEVICE_BYTES = 768 * 1024 * 1024
MIN_DEVICE_STAGING = 4
"""Pinned memory of all buffers, and the fewest buffers in any case."""
MIN_BUSY_BLOCKS = 8
"""Blocks are copied between steps only if this many are ready: a copy has a cost per layer."""


@dataclass(frozen=True, slots=True)
class _FinishedPut:
    """The end of a batch; None for names when it was not stored."""

    batch: PutBatch
    names: frozenset[bytes] | None
    is_new_store: bool


class StagingSize(NamedTuple):
    """Blocks per buffer, and how many buffers."""

    num_blocks: int
    num_buffers: int


def staging_size(bytes_per_block: int, num_blocks: int, *, is_device: bool) -> StagingSize:
    """Return the buffers to copy blocks into.

    Args:
        bytes_per_block: Bytes of one block.
        num_blocks: Blocks in the pool, an upper bound.
        is_device: Whether copies are enqueued on a device, instead of made in the model thread.
    """
    if not is_device:
        return StagingSize(max(1, STAGING_BYTES // bytes_per_block), NUM_STAGING)
    rows = max(DEVICE_STAGING_BYTES // bytes_per_block, MIN_DEVICE_BLOCKS)
    rows = max(1, min(rows, num_blocks))
    affordable = ALL_DEVICE_BYTES // (rows * bytes_per_block)
    return StagingSize(rows, max(MIN_DEVICE_STAGING, min(NUM_STAGING, affordable)))


class BlockOffloader(BlockObserver):
    """Follows the blocks of one pool and hands blocks to be stored to an outlet.

    Args:
        is_writeback: See UnsentBlocks.
        clock: Returns the time in seconds.
        copies: How blocks are copied; at once by default.

    Attributes:
        load_staging: A buffer for incoming payloads, uint8 [blocks, bytes_per_block].
    """

    def __init__(
        self,
        memory: BlockMemory,
        *,
        is_writeback: bool = False,
        clock: Callable[[], float] = time.monotonic,
        copies: DeviceCopies | None = None,
    ) -> None:
        self._memory = memory
        self._copies = ImmediateCopies() if copies is None else copies
        self._clock = clock
        self._unsent = UnsentBlocks(is_writeback=is_writeback)
        self._known = KnownNames()
        self._tenant_of: dict[int, str | None] = {}
        is_device = memory.device.type != "cpu"
        size = staging_size(memory.bytes_per_block, memory.num_blocks, is_device=is_device)
        self._rows = size.num_blocks
        num_bytes = size.num_blocks * memory.bytes_per_block
        self._free = [make_staging(memory, num_bytes) for _ in range(size.num_buffers)]
        self.load_staging = make_staging(memory, num_bytes)
        self._outlet: PutOutlet | None = None
        self._finished: deque[_FinishedPut] = deque()
        self._has_failed = False

    def connect(self, outlet: PutOutlet | None) -> None:
        """Offload blocks that get a name from now on to `outlet`; None to offload none."""
        self._outlet = outlet

    def finish_put(
        self, batch: PutBatch, names: frozenset[bytes] | None, is_new_store: bool
    ) -> None:
        """Give a batch back, from any thread; `names` are those stored, None when it failed."""
        self._finished.append(_FinishedPut(batch, names, is_new_store))

    def leave(self, slots: Ints) -> None:
        self._unsent.leave(np.asarray(slots, dtype=np.int64).tolist())

    def follow(self, plan: StepPlan) -> None:
        for request in plan.new_sequences:
            self._tenant_of[request.slot] = request.tenant or None
        sources = [self._tenant_of.get(int(slot)) for slot in plan.fork_sources]
        for slot, tenant in zip(plan.fork_slots, sources, strict=True):
            self._tenant_of[int(slot)] = tenant

    def offer_copies(
        self, entries: Iterable[UnsentBlock], is_named: Callable[[int, bytes], bool]
    ) -> None:
        """Put loaded blocks to further stores, after all new blocks.

        Args:
            is_named: Whether a block still has a name.
        """
        for entry in entries:
            if not is_named(entry.block, entry.name) or not self._unsent.add_copy(entry):
                metrics.COPIES.labels("dropped").inc()

    def overwrite(self, blocks: Sequence[int]) -> None:
        """See BlockObserver: one buffer of unsent blocks is sent now, the rest is dropped."""
        metrics.COPIES.labels("dropped").inc(self._unsent.drop_copies(blocks))
        entries = self._unknown(self._unsent.pop(blocks))
        if not entries:
            return
        if self._outlet is None or not self._outlet.is_open:
            metrics.DROPPED_BLOCKS.labels("store_down").inc(len(entries))
            return
        self._take_back()
        sent = self._send(entries[: self._rows]) if self._free else 0
        metrics.FLUSHED_BLOCKS.inc(sent)
        metrics.DROPPED_BLOCKS.labels("queue_full").inc(len(entries) - sent)

    def named(self, plan: StepPlan) -> None:
        if self._outlet is None or len(plan.named_slots) == 0:
            return
        rows = zip(plan.named_blocks, plan.names, plan.named_slots, strict=True)
        for place, (block, name, slot) in enumerate(rows):
            owner = int(slot)
            if owner != NO_SLOT and owner in self._tenant_of:
                placement = None
                if len(plan.named_stripes):
                    placement = BlockPlacement(int(plan.named_stripes[place]))
                entry = UnsentBlock(int(block), name, self._tenant_of[owner], owner, placement)
                self._unsent.add(entry)

    def drop_slots(self) -> None:
        self._unsent.leave(tuple(self._tenant_of))
        self._tenant_of.clear()

    def turn(self, is_idle: bool) -> bool:
        """Copy out at most one buffer of ready blocks, and return whether work is left."""
        self._take_back()
        if self._outlet is None or not self._outlet.is_open or not self._free:
            return False
        if self._unsent.num_ready < (1 if is_idle else min(MIN_BUSY_BLOCKS, self._rows)):
            return False
        entries = self._unknown(self._unsent.take_ready(self._rows))
        if entries:
            self._send(entries)
        return self._unsent.num_ready > 0 and bool(self._free)

    def _unknown(self, entries: list[UnsentBlock]) -> list[UnsentBlock]:
        now = self._clock()
        known = self._known
        return [entry for entry in entries if entry.is_copy or not known.holds(entry.name, now)]

    def _send(self, entries: list[UnsentBlock]) -> int:
        """Copy out `entries`, at most a buffer, and send them once they are copied.

        Returns how many are sent.
        """
        assert self._outlet is not None, "nothing is sent before there is an outlet"
        staging = self._free.pop()
        blocks = [entry.block for entry in entries]
        try:
            copied = self._copies.copy_out(blocks, lambda: self._memory.read(blocks, staging))
        except (RuntimeError, RankLostError) as error:
            # An error of torch, such as no memory for a temporary: the blocks are not stored.
            self._free.append(staging)
            metrics.DROPPED_BLOCKS.labels("copy_failed").inc(len(entries))
            # Rank 0 reports the end of its group.
            if not self._has_failed and not isinstance(error, RankLostError):
                self._has_failed = True
                _logger.exception("cannot copy blocks out of the cache")
            return 0
        batch = PutBatch(entries, staging[: len(blocks)], staging)
        self._copies.call_after(copied, partial(self._outlet.send, batch))
        return len(entries)

    def _take_back(self) -> None:
        """Free the buffers of batches that are settled."""
        while self._finished:
            finished = self._finished.popleft()
            self._free.append(finished.batch.staging)
            if finished.is_new_store:
                self._known.clear()
            if finished.names is not None:
                now = self._clock()
                left_out = {entry.name for entry in finished.batch.entries} - finished.names
                self._known.add(finished.names, now + KNOWN_SECONDS)
                self._known.add(left_out, now + DECLINED_SECONDS)
