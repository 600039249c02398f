"""Loads blocks from other workers, and answers questions for digests of blocks."""

import asyncio
from collections.abc import Sequence
from typing import Final

from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, WorkerSource
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.offload.open_loads import OpenLoads
from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.transfer import metrics
from pagewire_worker.transfer.block_digests import digests_of
from pagewire_worker.transfer.holder_link import HolderLinks
from pagewire_worker.transfer.layer_seals import LayerSeals
from pagewire_worker.transfer.peer_load import PeerLoad
from pagewire_worker.transfer_engines.engine import TransferEngine
from pagewire_worker.transfer_engines.remote_memory import EngineReads

MAX_LOADS: Final = 16
"""Each load may hold a window of messages, and has a job in the queue of the model thread."""


class KvTransfer:
    """Loads blocks of other workers into one pool. Belongs to the event loop it is made in.

    Args:
        model_runner: Writes blocks, in `thread` only.
        may_share_memory: Whether blocks may come through memory of the same host.
        seals: Only layers with a seal by its keys are taken; None for all.
        engine: The library by which blocks may come; None for none.

    Attributes:
        loads: Loads under way.
    """

    def __init__(
        self,
        model_runner: ModelRunner,
        thread: ModelThread,
        layout: BlockLayout,
        *,
        num_blocks: int,
        may_share_memory: bool,
        seals: LayerSeals | None = None,
        engine: TransferEngine | None = None,
    ) -> None:
        self.loads: OpenLoads[PeerLoad] = OpenLoads(num_blocks, MAX_LOADS)
        self._model_runner = model_runner
        self._thread = thread
        self._layout = layout
        self._links = HolderLinks(
            layout_to_message(layout),
            may_share_memory=may_share_memory,
            seals=seals,
            reads=None if engine is None else EngineReads(engine),
        )
        self._one_query = asyncio.Lock()

    def begin_load(self, order: LoadOrder) -> "asyncio.Future[LoadAnswer]":
        """Begin a load from the worker that the order names; see OpenLoads.

        Raises:
            WireError: The order contradicts the contract.
        """
        source = order.worker
        if source is None or not source.address or not source.worker_id:
            raise WireError("worker: its address or its id is missing", field="worker")
        self.loads.check(order)
        return self.loads.begin(order, lambda: self._make_load(order, source), _note)

    async def digests(self, names: Sequence[bytes]) -> list[bytes]:
        """Return the SHA-256 of each payload, zeros for a block that is not here."""
        async with self._one_query:
            return await digests_of(
                self._model_runner, self._thread, names, self._layout.bytes_per_block
            )

    async def close(self) -> None:
        """Close all connections."""
        await self._links.close()

    def _make_load(self, order: LoadOrder, source: WorkerSource) -> PeerLoad:
        num_layers = self._layout.groups[0].num_layers
        return PeerLoad(
            order,
            self._links.to(source.address, source.worker_id),
            self._thread.submit,
            self._model_runner.blocks,
            num_layers=num_layers,
            bytes_per_layer=self._layout.bytes_per_block // num_layers,
        )


def _note(load: PeerLoad | None, answer: LoadAnswer) -> None:
    metrics.LOADS.labels(answer.outcome.value).inc()
    metrics.LOADED_BYTES.inc(answer.num_bytes)
    if answer.transport is not None:
        metrics.LOAD_SECONDS.observe(answer.transfer_seconds)
        metrics.LOADED_BLOCKS.labels(answer.transport.value).inc(answer.num_blocks)
