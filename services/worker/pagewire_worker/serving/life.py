"""The life of a worker: awake with a replica until it is to sleep, asleep until it is to wake.

Awake and asleep are different attaches. A worker that is to sleep ends its attach, lets go of the
replica, drops it, and attaches again, asleep. A woken one loads beside its attach, which shows that
it is alive, and then attaches anew, awake and with an empty cache. One that is to have other
weights does the same, and loads these at once.
"""

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial

from pagewire_shared.errors import PagewireError
from pagewire_shared.process.sizes import format_size
from pagewire_shared.sleep.state import MemoryTag, SleepOrder
from pagewire_shared.weights.version import UpdateOrder
from pagewire_worker.config import WorkerConfig
from pagewire_worker.connectors.making import connector_of
from pagewire_worker.inspection.worker_inspection import WorkerInspection
from pagewire_worker.link.inspection_link import InspectionLink
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.link.sleep_link import SleepLink
from pagewire_worker.link.sleep_metrics import SleepMeter
from pagewire_worker.link.weights_link import WeightsLink
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.loading.replica_memory import ReplicaMemory
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.plan_runner import SleepingRunner
from pagewire_worker.serving.awake import AwakeWorker
from pagewire_worker.serving.jobs import run_beside
from pagewire_worker.serving.ports import WorkerPorts
from pagewire_worker.serving.weights_check import check_weights

_Order = SleepOrder | UpdateOrder

_logger = logging.getLogger(__name__)


class WorkerLife:
    """Serves a worker whose replica is loaded.

    Args:
        memory: Holds the replica.
        info: Content of the hello.
        connector: Client of KV stores for the first replica; None for none.
    """

    def __init__(
        self,
        *,
        config: WorkerConfig,
        memory: ReplicaMemory,
        info: ReplicaInfo,
        thread: ModelThread,
        ports: WorkerPorts,
        connector: KvConnector | None,
    ) -> None:
        self._config = config
        self._memory = memory
        self._info = info
        self._thread = thread
        self._ports = ports
        self._connector = connector
        self._link: SchedulerLink | None = None
        self._meter = SleepMeter(info.served_model_name, lambda: memory.sleep)

    async def run(self) -> None:
        """Be awake and asleep in turn, for ever. Raises PeerRefusedError or DeviceLostError."""
        while True:
            order = await self._be_awake()
            if isinstance(order, UpdateOrder):
                await self._fall_asleep(SleepOrder())
                await self._be_asleep(order)
            else:
                await self._fall_asleep(order)
                await self._be_asleep()

    async def leave(self) -> None:
        """Ask for no new work, and return when no work is left."""
        if self._link is not None:
            await self._link.leave()

    async def _be_awake(self) -> SleepOrder | UpdateOrder:
        ordered: asyncio.Future[_Order] = asyncio.get_running_loop().create_future()
        connector, self._connector = self._connector, None
        if connector is None:
            connector = connector_of(self._config)
        # Makes the extension, which is code of a user.
        make = partial(WorkerInspection, self._config, self._memory.replica, self._thread)
        awake = AwakeWorker(
            config=self._config,
            replica=self._memory.replica,
            info=self._info,
            thread=self._thread,
            ports=self._ports,
            connector=connector,
            inspection=await self._thread.submit(make),
            sleep=self._sleep_link(on_sleep=ordered),
            weights=self._weights_link(ordered),
        )
        self._link = awake.link
        try:
            order: _Order = await run_beside(awake.jobs(), _result_of(ordered))
        except BaseException:
            await awake.close()
            raise
        self._memory.begin_sleep()
        self._end_attach(awake.link)
        await awake.let_go()
        return order

    async def _fall_asleep(self, order: SleepOrder) -> None:
        num_bytes = await self._thread.submit(partial(self._memory.drop, order))
        _logger.info("asleep at level %d, %s given back", order.level, format_size(num_bytes))

    async def _be_asleep(self, update: UpdateOrder | None = None) -> None:
        if update is not None:
            self._memory.begin_wake()
        wakes: asyncio.Queue[frozenset[MemoryTag]] = asyncio.Queue()
        link = self._link = SchedulerLink(
            address=self._config.scheduler,
            info=self._info,
            model_runner=SleepingRunner(),
            thread=self._thread,
            attached=self._ports.attached,
            sleep=self._sleep_link(on_wake=wakes),
            weights=self._weights_link(),
            inspection=InspectionLink(self._info.worker_id, None),
        )
        await run_beside([link.run()], self._wake(link, wakes, update))
        self._end_attach(link)

    async def _update(self, order: UpdateOrder) -> bool:
        """Load other weights; return whether there is a replica again, be it the old one."""
        started, memory = time.monotonic(), self._memory
        try:
            replica = await self._thread.submit(partial(memory.update, order))
        except PagewireError as error:
            _logger.error("%s", error)
            return False
        replica.model_runner.hurry_when(lambda: self._thread.has_jobs)
        own = self._info
        self._info = replace(replica.info, kv_endpoints=own.kv_endpoints, roles=own.roles)
        if memory.failed_update is not None:
            _logger.error("%s; the weights are as before", memory.failed_update[1])
        else:
            seconds = time.monotonic() - started
            _logger.info("weights of %s after %.2f s", order.source.path or "the start", seconds)
        return True

    async def _wake(
        self,
        link: SchedulerLink,
        wakes: "asyncio.Queue[frozenset[MemoryTag]]",
        update: UpdateOrder | None,
    ) -> None:
        """Load other weights, or follow orders to wake until the replica is whole."""
        if update is not None:
            if await self._update(update):
                return
            self._report(link)
        while True:
            tags = await wakes.get()
            started = time.monotonic()
            self._memory.begin_wake()
            self._report(link)
            try:
                replica = await self._thread.submit(partial(self._memory.wake, tags))
            except PagewireError as error:
                _logger.error("%s", error)
                self._meter.failed()
            else:
                if replica is not None:
                    replica.model_runner.hurry_when(lambda: self._thread.has_jobs)
                    seconds = time.monotonic() - started
                    self._meter.woke(seconds)
                    _logger.info("awake after %.2f s", seconds)
                    return
            self._report(link)

    def _report(self, link: SchedulerLink) -> None:
        sleep = self._memory.sleep
        if sleep is not None:
            link.report_sleep(sleep)

    def _sleep_link(
        self,
        *,
        on_sleep: "asyncio.Future[_Order] | None" = None,
        on_wake: "asyncio.Queue[frozenset[MemoryTag]] | None" = None,
    ) -> SleepLink:
        def take_sleep(order: SleepOrder) -> None:
            if on_sleep is not None and not on_sleep.done():
                on_sleep.set_result(order)

        def take_wake(tags: frozenset[MemoryTag]) -> None:
            if on_wake is not None and on_wake.empty():
                on_wake.put_nowait(tags)

        return SleepLink(
            can_sleep=self._config.enable_sleep_mode,
            after_seconds=self._config.sleep_after_seconds,
            sleep=lambda: self._memory.sleep,
            on_sleep=take_sleep,
            on_wake=take_wake,
        )

    def _weights_link(self, ordered: "asyncio.Future[_Order] | None" = None) -> WeightsLink:
        memory = self._memory

        def take_update(order: UpdateOrder) -> None:
            if ordered is not None and not ordered.done():
                ordered.set_result(order)

        return WeightsLink(
            source=lambda: memory.source,
            failure=lambda: memory.failed_update,
            check=lambda path: check_weights(memory.started, memory.source, path),
            on_update=take_update,
        )

    def _end_attach(self, link: SchedulerLink) -> None:
        """Take over what the link has learned, once it has ended."""
        self._ports.attached.clear()
        self._link = None
        self._info = replace(self._info, roles=link.info.roles)


async def _result_of(future: "asyncio.Future[_Order]") -> SleepOrder | UpdateOrder:
    return await future
