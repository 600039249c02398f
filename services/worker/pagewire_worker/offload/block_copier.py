"""Gives loaded blocks their missing copies: a block that is loaded is in use, and a store that has
died or come back empty costs such blocks a copy. New blocks are sent before copies."""

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Sequence
from functools import partial

from pagewire_shared.errors import PagewireError
from pagewire_shared.kv.copies import BlockCopies, count_copies
from pagewire_shared.kv.load import LoadOrder
from pagewire_worker.kv.block_holder import BlockHolder
from pagewire_worker.offload import metrics
from pagewire_worker.offload.block_offloader import BlockOffloader, KnownNames
from pagewire_worker.offload.connector import BlockPlacement, CopyingConnector
from pagewire_worker.offload.load_run import Submit
from pagewire_worker.offload.unsent_blocks import UnsentBlock

MAX_LOADS = 16
"""Loads whose blocks may wait to be looked at."""
AGAIN_SECONDS = 10.0
"""A block is not copied again before: the scheduler hears of a copy a little later."""

_logger = logging.getLogger(__name__)


class BlockCopier:
    """Copies of loaded blocks. Belongs to an event loop.

    Args:
        connector: Places blocks.
        blocks: The blocks of the replica, in the model thread.
        submit: Queues a job for the model thread; raises queue.Full.
        clock: Returns the time in seconds.

    Attributes:
        num_copies: Stores that are to have a block that was loaded.
    """

    def __init__(
        self,
        *,
        connector: CopyingConnector,
        offloader: BlockOffloader,
        blocks: BlockHolder,
        submit: Submit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_copies = 1
        self._connector = connector
        self._offloader = offloader
        self._blocks = blocks
        self._submit = submit
        self._clock = clock
        self._copied = KnownNames()
        self._waiting: asyncio.Queue[list[UnsentBlock]] = asyncio.Queue(MAX_LOADS)

    def take(self, order: LoadOrder, num_blocks: int) -> None:
        """Take the first `num_blocks` blocks of a load, which are VALID; copy those with too few
        copies, soon."""
        if order.copies is None or not order.copies.stripes:
            return
        entries = self._uncopied(order, order.copies, num_blocks)
        if not entries:
            return
        try:
            self._waiting.put_nowait(entries)
        except asyncio.QueueFull:
            metrics.COPIES.labels("dropped").inc(len(entries))
            return
        until = self._clock() + AGAIN_SECONDS
        self._copied.add((entry.name for entry in entries), until)

    async def run(self) -> None:
        """Offer blocks to the stores for ever."""
        while True:
            entries = await self._waiting.get()
            try:
                await self._offer(entries)
            except (PagewireError, queue.Full) as error:
                metrics.COPIES.labels("dropped").inc(len(entries))
                _logger.debug("%d blocks get no further copies: %s", len(entries), error)

    async def _offer(self, entries: Sequence[UnsentBlock]) -> None:
        """Copy out the blocks that a store which is to have them lacks."""
        asked = [(entry.name, entry.placement) for entry in entries if entry.placement is not None]
        missing = await self._connector.missing(asked)
        wanted = [entry for entry in entries if entry.name in missing]
        metrics.COPIES.labels("held").inc(len(entries) - len(wanted))
        if wanted:
            await self._submit(partial(self._hand_over, wanted))

    def _hand_over(self, entries: Sequence[UnsentBlock]) -> int:
        """Queue entries in the model thread, which knows what a block still is."""
        self._offloader.offer_copies(entries, self._blocks.is_named)
        return 0

    def _uncopied(
        self, order: LoadOrder, copies: BlockCopies, num_blocks: int
    ) -> list[UnsentBlock]:
        now = self._clock()
        entries = []
        for at in range(num_blocks):
            num_lacking = self.num_copies - count_copies(copies.holders[at])
            name = order.names[at]
            if num_lacking > 0 and not self._copied.holds(name, now):
                placement = BlockPlacement(copies.stripes[at], num_lacking, copies.holding(at))
                tenant = copies.tenant or None
                entries.append(UnsentBlock(order.blocks[at], name, tenant, -1, placement))
        return entries
