"""Connects a worker to KV stores: puts, loads, and changes of stores at an attach."""

import asyncio
import logging
from collections.abc import Sequence
from typing import cast

from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadAnswer, LoadOrder
from pagewire_shared.kv.tier import tier_label
from pagewire_worker.offload import metrics
from pagewire_worker.offload.block_copier import BlockCopier
from pagewire_worker.offload.block_load import BlockLoad
from pagewire_worker.offload.block_offloader import BlockOffloader
from pagewire_worker.offload.connector import BlockLayout, CopyingConnector, KvConnector
from pagewire_worker.offload.open_loads import OpenLoads
from pagewire_worker.offload.put_sender import PutSender
from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.runner.model_thread import ModelThread

_logger = logging.getLogger(__name__)

MAX_LOADS = 16
"""Each load holds some MiB; a scheduler orders fewer loads."""


class KvOffload:
    """Offloads and loads blocks of one model runner. Belongs to the event loop it is made in.

    Args:
        model_runner: Writes blocks, in `thread` only.
        offloader: Copies blocks out, in `thread` only.

    Attributes:
        loads: Loads under way.
    """

    def __init__(
        self,
        *,
        model_runner: ModelRunner,
        offloader: BlockOffloader,
        thread: ModelThread,
        connector: KvConnector,
        layout: BlockLayout,
        num_blocks: int,
    ) -> None:
        self._model_runner = model_runner
        self._offloader = offloader
        self._thread = thread
        self._connector = connector
        self._layout = layout
        self._outside_store: str = getattr(connector, "outside_store", "")
        self._staging = offloader.load_staging
        self.loads: OpenLoads[BlockLoad] = OpenLoads(num_blocks, MAX_LOADS)
        self._addresses: tuple[str, ...] = ()
        self._is_registered = True
        self._logged_faults: set[str] = set()
        self._sender = PutSender(connector, offloader.finish_put, thread.nudge)
        self._copier = BlockCopier(
            connector=cast(CopyingConnector, connector),
            offloader=offloader,
            blocks=model_runner.blocks,
            submit=thread.submit,
        )
        thread.add_low_priority(offloader.turn)

    async def run(self) -> None:
        """Send blocks for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sender.run())
                tasks.create_task(self._copier.run())
        finally:
            await self._connector.close()

    async def attach(self, addresses: Sequence[str], num_copies: int = 1) -> None:
        """Use the stores of a welcome, or the connector's own; without any, offload nothing."""
        self._copier.num_copies = num_copies
        if self._outside_store:
            addresses = (self._outside_store,)
        if self._is_registered and tuple(addresses) == self._addresses:
            return
        self._addresses = tuple(addresses)
        self._is_registered = await self._register(self._addresses)
        has_store = self._is_registered and bool(addresses)
        self._sender.set_store(is_there=has_store)
        outlet = self._sender if has_store else None
        await self._thread.submit(lambda: self._offloader.connect(outlet))
        _logger.info("KV stores: %s", ", ".join(self._addresses) or "none")

    async def _register(self, addresses: Sequence[str]) -> bool:
        try:
            await self._connector.register(self._layout, addresses)
        except Exception:
            # The connector may be foreign code: the worker continues without stores.
            _logger.exception("the connector does not take the KV stores")
            return False
        return True

    def begin_load(self, order: LoadOrder) -> "asyncio.Future[LoadAnswer]":
        """Begin a load; its future is the answer. If that is cancelled, no more is written.

        Raises:
            WireError: The order contradicts the contract.
        """
        stores = (order.store,) if order.copies is None else order.copies.stores
        for store in stores:
            if store not in self._addresses:
                raise WireError(
                    f"kvstore_address: {store!r} was not in the welcome", field="kvstore_address"
                )
        self.loads.check(order)
        return self.loads.begin(order, lambda: self._make_load(order), self._note)

    def _make_load(self, order: LoadOrder) -> BlockLoad:
        return BlockLoad(
            order=order,
            connector=self._connector,
            submit=self._thread.submit,
            write=self._write,
            max_blocks=len(self._staging),
        )

    def _note(self, load: BlockLoad | None, answer: LoadAnswer) -> None:
        metrics.LOADS.labels(answer.outcome.value).inc()
        if load is None:
            return
        self._copier.take(load.order, answer.num_blocks)
        metrics.LOAD_SECONDS.observe(answer.seconds)
        metrics.LOADED_BYTES.inc(answer.num_bytes)
        for tier, num_blocks in answer.tiers:
            metrics.LOADED_BLOCKS.labels(tier_label(tier)).inc(num_blocks)
        self._log_fault(load.connector_fault)

    def _log_fault(self, fault: str | None) -> None:
        if fault is not None and fault not in self._logged_faults:
            self._logged_faults.add(fault)
            _logger.error("loads fail, the connector is at fault: %s", fault)

    def _write(
        self,
        blocks: Sequence[int],
        names: Sequence[bytes],
        payloads: Sequence[memoryview | bytes],
    ) -> None:
        self._model_runner.blocks.load_blocks(blocks, names, payloads, self._staging)
