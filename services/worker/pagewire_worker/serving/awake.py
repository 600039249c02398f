"""Serves one replica: keeps it attached, its blocks shared and stored, until it is to sleep."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.config import WorkerConfig
from pagewire_worker.inspection.worker_inspection import WorkerInspection
from pagewire_worker.link.inspection_link import InspectionLink
from pagewire_worker.link.metrics import show_replica
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.link.sleep_link import SleepLink
from pagewire_worker.link.weights_link import WeightsLink
from pagewire_worker.loading.loader import Replica
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.serving.ports import WorkerPorts
from pagewire_worker.transfer.block_source import BlockSource
from pagewire_worker.transfer.kv_transfer import KvTransfer
from pagewire_worker.transfer.layer_seals import seals_of
from pagewire_worker.transfer.staging import Staging

LAST_PULLS_SECONDS = 5.0
"""Time for open pulls of other workers after the last plan."""


class AwakeWorker:
    """One replica at work.

    Args:
        info: Content of its hello.
        connector: Client of KV stores; None for none.
        inspection: Answers operators.
        sleep: What the attaches say and hear of sleep.
        weights: What they say and hear of weights.
    """

    def __init__(
        self,
        *,
        config: WorkerConfig,
        replica: Replica,
        info: ReplicaInfo,
        thread: ModelThread,
        ports: WorkerPorts,
        connector: KvConnector | None,
        inspection: WorkerInspection,
        sleep: SleepLink,
        weights: WeightsLink,
    ) -> None:
        self._replica = replica
        self._thread = thread
        self._ports = ports
        self._ends = contextlib.AsyncExitStack()
        _share_blocks(config, replica, thread, ports, self._ends)
        if ports.engine is not None:
            # Before the staging memory, which it lends.
            self._ends.callback(ports.engine.close)
        ports.adapters.serve(replica.adapters)
        show_replica(info, ports.attached, replica.expert_counts, replica.speculator)
        self._offload = _make_offload(replica, thread, connector)
        self._inspection = inspection
        self.link = SchedulerLink(
            address=config.scheduler,
            info=info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=ports.attached,
            grammars=replica.grammars,
            offload=self._offload,
            transfer=_make_transfer(config, replica, thread, ports, self._ends),
            adapters=replica.adapters,
            sleep=sleep,
            weights=weights,
            inspection=InspectionLink(info.worker_id, self._inspection),
        )

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return endless jobs that serve the replica."""
        jobs: list[Coroutine[Any, Any, None]] = [self.link.run(), self._touch_cache()]
        return jobs if self._offload is None else [*jobs, self._offload.run()]

    async def _touch_cache(self) -> None:
        """Make the pages of the cache once the worker is attached. Never ends."""
        await self._ports.attached.wait()
        self._replica.model_runner.backend.kv_cache.touch()
        await asyncio.Event().wait()

    async def let_go(self) -> None:
        """Refuse new pulls, wait for open ones, and forget the replica everywhere."""
        self._ports.adapters.serve(None)
        await self._inspection.profiler.let_go()
        await self._ports.transfer.finish(LAST_PULLS_SECONDS)
        await self._thread.submit(self._thread.drop_low_priority)
        await self.close()

    async def close(self) -> None:
        """Give back staging memory and connections."""
        self._inspection.close()
        await self._ends.aclose()


def _share_blocks(
    config: WorkerConfig,
    replica: Replica,
    thread: ModelThread,
    ports: WorkerPorts,
    ends: contextlib.AsyncExitStack,
) -> None:
    """Serve blocks to other workers, if that is on."""
    if replica.sharer is None:
        ends.callback(replica.copies.close)
        return
    is_shared = KvTransport.SHARED_MEMORY in replica.info.kv_transports
    staging = Staging(config.kv_staging_memory, is_shared=is_shared, pin=replica.copies.pin)
    ends.callback(staging.close)
    # The stack closes the copies first: their staging memory must still exist.
    ends.callback(replica.copies.close)
    replica.sharer.connect(thread.nudge)
    thread.add_low_priority(replica.sharer.turn)
    source = BlockSource(
        replica.sharer,
        staging,
        replica.info.layout,
        worker_id=replica.info.worker_id,
        num_blocks=replica.info.num_blocks,
        seals=seals_of(config.kv_key_file, replica.info.layout),
        engine=ports.engine,
    )
    ports.transfer.serve(source)


def _make_transfer(
    config: WorkerConfig,
    replica: Replica,
    thread: ModelThread,
    ports: WorkerPorts,
    ends: contextlib.AsyncExitStack,
) -> KvTransfer | None:
    transports = replica.info.pull_transports
    if not transports:
        return None
    transfer = KvTransfer(
        replica.model_runner,
        thread,
        replica.info.layout,
        num_blocks=replica.info.num_blocks,
        may_share_memory=KvTransport.SHARED_MEMORY in transports,
        seals=seals_of(config.kv_key_file, replica.info.layout),
        engine=ports.engine,
    )
    ends.push_async_callback(transfer.close)
    return transfer


def _make_offload(
    replica: Replica, thread: ModelThread, connector: KvConnector | None
) -> KvOffload | None:
    if connector is None or replica.offloader is None:
        return None
    return KvOffload(
        model_runner=replica.model_runner,
        offloader=replica.offloader,
        thread=thread,
        connector=connector,
        layout=replica.info.layout,
        num_blocks=replica.info.num_blocks,
    )
