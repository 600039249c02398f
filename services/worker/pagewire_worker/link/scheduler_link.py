"""Keeps a worker attached to its scheduler: dials and attaches again for ever."""

import asyncio
import logging
import time
from dataclasses import replace

import grpc.aio

from pagewire_shared.errors import (
    PagewireError,
    PeerRefusedError,
    UnavailableError,
    WireError,
)
from pagewire_shared.identity.seen_generations import SeenGenerations
from pagewire_shared.pair.addresses import parse_schedulers
from pagewire_shared.pair.finder import SchedulerFinder
from pagewire_shared.process.backoff import REDIAL_MAX_SECONDS, Backoff
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.security.roles import LinkRole
from pagewire_shared.sleep.state import WorkerSleep
from pagewire_worker.adapters.loader import AdapterLoader
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.link.attach_stream import AttachStream
from pagewire_worker.link.inspection_link import InspectionLink
from pagewire_worker.link.sleep_link import SleepLink
from pagewire_worker.link.weights_link import WeightsLink
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.plan.roles import WorkerRole
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.plan_runner import PlanRunner
from pagewire_worker.transfer.kv_transfer import KvTransfer

_logger = logging.getLogger(__name__)

LOG_WAITING_SECONDS = 3.0


class SchedulerLink:
    """Keeps one worker attached.

    Args:
        address: The scheduler, or the two of its cell; see parse_schedulers.
        info: Content of the hello.
        model_runner: Runs plans, in `thread` only.
        thread: The model thread.
        attached: Set while attached, cleared otherwise.
        grammars: Compiles grammars; without it all grammars are refused.
        offload: Moves blocks to and from KV stores; None for no such moves.
        transfer: Loads blocks of other workers; None for no such loads.
        adapters: Loads adapters; without it all adapters are refused.
        sleep: What it says and hears of sleep; None for a worker that never sleeps.
        weights: What it says and hears of its weights; None for weights that stay.
        inspection: Answers operators; None to leave them without an answer.
    """

    def __init__(
        self,
        *,
        address: str,
        info: ReplicaInfo,
        model_runner: PlanRunner,
        thread: ModelThread,
        attached: asyncio.Event,
        grammars: GrammarCompiler | None = None,
        offload: KvOffload | None = None,
        transfer: KvTransfer | None = None,
        adapters: AdapterLoader | None = None,
        sleep: SleepLink | None = None,
        weights: WeightsLink | None = None,
        inspection: InspectionLink | None = None,
    ) -> None:
        self._inspection = inspection
        self._sleep = sleep
        self._weights = weights
        self._stream: AttachStream | None = None
        self._adapters = adapters
        self._finder = SchedulerFinder(parse_schedulers(address, setting="--scheduler"))
        self._transfer = transfer
        self._offload = offload
        self._grammars = grammars
        self._info = info
        self._model_runner = model_runner
        self._thread = thread
        self._attached = attached
        self._seen = SeenGenerations()
        self._leaving = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def info(self) -> ReplicaInfo:
        """The content of the next hello."""
        return self._info

    def report_sleep(self, sleep: WorkerSleep) -> None:
        """Say where the sleeping worker is; without a scheduler the next hello says it."""
        if self._stream is not None:
            self._stream.report_sleep(sleep)

    async def leave(self) -> None:
        """Ask for no new work, and return when no work is left; `run` must go on.

        Without a scheduler no work is left: the requests of this worker continue elsewhere.
        """
        self._leaving.set()
        if self._attached.is_set():
            await self._drained.wait()

    async def run(self) -> None:
        """Attach and re-attach for ever. Raises PeerRefusedError when the scheduler refuses."""
        watch = asyncio.create_task(self._finder.run())
        try:
            await self._keep_attached()
        finally:
            watch.cancel()

    async def _keep_attached(self) -> None:
        backoff = Backoff(max_seconds=REDIAL_MAX_SECONDS)
        waiting_since = time.monotonic()
        logged_at = waiting_since
        while True:
            address = await self._finder.next_address()
            error = await self._attach_and_follow(address)
            now = time.monotonic()
            if self._attached.is_set():
                self._attached.clear()
                if self._leaving.is_set():
                    self._drained.set()
                backoff.reset()
                waiting_since = logged_at = now
                _logger.warning("lost the scheduler at %s: %s", address, error)
            elif now - logged_at >= LOG_WAITING_SECONDS:
                logged_at = now
                seconds = now - waiting_since
                _logger.info("waiting for scheduler at %s (%.0f s)", address, seconds)
                _logger.debug("last error: %s", error)
            await self._finder.wait(backoff.next_seconds())

    async def _attach_and_follow(self, address: Address) -> PagewireError:
        try:
            return await self._finder.follow(self._attach_once(address))
        except UnavailableError as error:
            return error

    async def _attach_once(self, address: Address) -> PagewireError:
        """Run one attach to its end and return the reason of the end."""
        options = control_channel_options()
        async with open_channel(address, LinkRole.SCHEDULER, options) as channel:
            attach = self._stream = AttachStream(
                info=self._info,
                model_runner=self._model_runner,
                thread=self._thread,
                grammars=self._grammars,
                offload=self._offload,
                transfer=self._transfer,
                adapters=self._adapters,
                attached=self._attached,
                leaving=self._leaving,
                drained=self._drained,
                on_roles=self._take_roles,
                sleep=self._sleep,
                weights=self._weights,
                inspection=self._inspection,
            )
            try:
                await attach.run(channel, self._seen)
                return PagewireError("the stream ended")
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error)
                if isinstance(error, PeerRefusedError):
                    raise PeerRefusedError(
                        f"the scheduler at {address} refused this worker: {error.message}"
                    ) from rpc_error
                return error
            except WireError as error:
                _logger.error("the scheduler at %s: %s", address, error)
                return error
            except UnavailableError as error:
                return error
            finally:
                self._stream = None

    def _take_roles(self, roles: tuple[WorkerRole, ...]) -> None:
        self._info = replace(self._info, roles=roles)
        _logger.info("used for %s from now on", " and ".join(role.value for role in roles))
