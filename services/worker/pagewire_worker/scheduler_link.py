"""The worker's stream to its scheduler: dial, hello, plans in, results out, and again for ever.

Runs no plan itself: it hands them to the model thread in order and sends what comes back in order.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

import grpc.aio

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import worker_attach_pb2_grpc
from pagewire_shared.backoff import Backoff
from pagewire_shared.errors import PagewireError, PeerRefusedError, WireError
from pagewire_shared.ids import mint_id
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options
from pagewire_worker.convert import (
    audit_to_message,
    hello_to_message,
    plan_from_message,
    result_to_message,
)
from pagewire_worker.executor import Executor
from pagewire_worker.grammar_compiler import GrammarCompiler
from pagewire_worker.grammar_convert import check_grammar_id
from pagewire_worker.grammar_link import answer_compile
from pagewire_worker.load_link import loaded_to_message, take_load
from pagewire_worker.model_thread import ModelThread
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.offload.load_order import LoadAnswer
from pagewire_worker.replica import ReplicaInfo
from pagewire_worker.step import StepPlan, StepResult

_logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.25
LOG_WAITING_SECONDS = 3.0


class SchedulerLink:
    """Keeps one worker attached.

    Args:
        address: Of the scheduler.
        info: What the hello says.
        executor: Runs plans, in `thread` only.
        thread: The model thread.
        attached: Set while attached, cleared otherwise.
        grammars: Compiles grammars; without it all are refused.
        offload: Moves blocks to and from KV stores; without it none are moved.
    """

    def __init__(
        self,
        address: str,
        info: ReplicaInfo,
        executor: Executor,
        thread: ModelThread,
        attached: asyncio.Event,
        grammars: GrammarCompiler | None = None,
        offload: KvOffload | None = None,
    ) -> None:
        self._address = address
        self._offload = offload
        self._grammars = grammars
        self._info = info
        self._executor = executor
        self._thread = thread
        self._attached = attached
        self._highest_generation = 0
        self._leaving = asyncio.Event()
        self._drained = asyncio.Event()

    async def leave(self) -> None:
        """Ask for nothing new, and return when nothing is left to do; `run` must go on.

        Without a scheduler nothing is: what ran here goes on elsewhere.
        """
        self._leaving.set()
        if self._attached.is_set():
            await self._drained.wait()

    async def run(self) -> None:
        """Attach and re-attach for ever. Raises PeerRefusedError when the scheduler refuses."""
        backoff = Backoff()
        waiting_since = time.monotonic()
        logged_at = waiting_since
        while True:
            error = await self._attach_once()
            now = time.monotonic()
            if self._attached.is_set():
                self._attached.clear()
                if self._leaving.is_set():
                    self._drained.set()
                backoff.reset()
                waiting_since = logged_at = now
                _logger.warning("lost the scheduler at %s: %s", self._address, error)
            elif now - logged_at >= LOG_WAITING_SECONDS:
                logged_at = now
                seconds = now - waiting_since
                _logger.info("waiting for scheduler at %s (%.0f s)", self._address, seconds)
                _logger.debug("last error: %s", error)
            await asyncio.sleep(backoff.next_seconds())

    async def _attach_once(self) -> PagewireError:
        """Run one attach to its end and return why it ended."""
        async with grpc.aio.insecure_channel(
            self._address, options=control_channel_options()
        ) as channel:
            attach = _Attach(
                self._info,
                self._executor,
                self._thread,
                self._grammars,
                self._offload,
                attached=self._attached,
                leaving=self._leaving,
                drained=self._drained,
            )
            try:
                await attach.run(channel, self._highest_generation)
                return PagewireError("the stream ended")
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error)
                if isinstance(error, PeerRefusedError):
                    raise PeerRefusedError(
                        f"the scheduler at {self._address} refused this worker: {error.message}"
                    ) from rpc_error
                return error
            except WireError as error:
                _logger.error("the scheduler at %s: %s", self._address, error)
                return error
            finally:
                self._highest_generation = max(self._highest_generation, attach.generation)


class _Attach:
    """One stream, from hello to end."""

    def __init__(
        self,
        info: ReplicaInfo,
        executor: Executor,
        thread: ModelThread,
        grammars: GrammarCompiler | None,
        offload: KvOffload | None,
        *,
        attached: asyncio.Event,
        leaving: asyncio.Event,
        drained: asyncio.Event,
    ) -> None:
        self._info = info
        self._executor = executor
        self._thread = thread
        self._grammars = grammars
        self._offload = offload
        self._attached = attached
        self._leaving = leaving
        self._drained = drained
        self._incarnation = int.from_bytes(mint_id()[:8], "little")
        self._outbox: asyncio.Queue[wire.AttachWorkerRequest] = asyncio.Queue()
        self._num_steps_queued = 0
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.generation = 0

    async def run(self, channel: grpc.aio.Channel, highest_generation: int) -> None:
        """Run until the stream ends. Raises grpc.RpcError or WireError."""
        held = await self._thread.submit(self._executor.held_names)
        hello = hello_to_message(
            self._info,
            incarnation=self._incarnation,
            highest_generation=highest_generation,
            held=held,
        )
        self._outbox.put_nowait(wire.AttachWorkerRequest(hello=hello))
        stub = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel)
        call = stub.AttachWorker(self._requests())
        progress = asyncio.create_task(self._report_progress())
        farewell = asyncio.create_task(self._say_leaving())
        try:
            async for response in call:
                await self._receive(response)
        finally:
            self._is_over = True
            progress.cancel()
            farewell.cancel()
            for task in self._tasks:
                task.cancel()
            call.cancel()

    async def _requests(self) -> AsyncIterator[wire.AttachWorkerRequest]:
        while True:
            yield await self._outbox.get()

    async def _receive(self, response: wire.AttachWorkerResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "welcome":
            await self._welcome(response.welcome)
        elif kind == "plan":
            self._take_plan(plan_from_message(response.plan))
        elif kind == "audit_query":
            self._spawn(self._answer_audit(response.audit_query.query_id))
        elif kind == "compile_grammar":
            check_grammar_id(response.compile_grammar.grammar_id)
            self._spawn(self._compile(response.compile_grammar))
        elif kind in ("load_blocks", "cancel_load") and self._offload is not None:
            answer = take_load(response, self._offload)
            if answer is not None:
                self._spawn(self._answer_load(answer))
        elif kind == "drain":
            _logger.info("drained: nothing is left to do")
            self._drained.set()
        else:
            _logger.warning("ignored a message of an unknown kind from the scheduler")

    async def _welcome(self, welcome: wire.WorkerWelcome) -> None:
        self.generation = welcome.generation
        await self._thread.submit(self._executor.drop_slots)
        if self._grammars is not None:
            self._grammars.clear()
        if self._offload is not None:
            await self._offload.attach(welcome.kvstore_addresses)
        self._attached.set()
        _logger.info("attached to the scheduler, generation %d", welcome.generation)

    async def _say_leaving(self) -> None:
        """Tell this scheduler once that the process is to end, as soon as that is known."""
        await self._attached.wait()
        await self._leaving.wait()
        leaving = wire.WorkerLeaving()
        self._outbox.put_nowait(wire.AttachWorkerRequest(leaving=leaving))

    def _take_plan(self, plan: StepPlan) -> None:
        if not self.generation:
            raise WireError("a plan came before the welcome")
        if plan.generation < self.generation or plan.incarnation != self._incarnation:
            raise WireError(
                f"plan {plan.step_id} is of generation {plan.generation} and incarnation "
                f"{plan.incarnation}, not {self.generation} and {self._incarnation}"
            )
        if self._num_steps_queued >= self._info.steps_in_flight:
            raise WireError(
                f"plan {plan.step_id} exceeds the {self._info.steps_in_flight} steps in flight"
            )
        self._num_steps_queued += 1
        received = time.perf_counter()
        future = self._thread.submit(lambda: self._run_plan(plan, received))
        future.add_done_callback(self._send_result)

    def _run_plan(self, plan: StepPlan, received: float) -> StepResult | None:
        """Run in the model thread, unless the attach ended while the plan waited."""
        if self._is_over:
            return None
        result = self._executor.run(plan)
        return replace(result, step_time_us=int((time.perf_counter() - received) * 1e6))

    def _send_result(self, future: "asyncio.Future[StepResult | None]") -> None:
        self._num_steps_queued -= 1
        result = None if future.cancelled() else future.result()
        if result is not None:
            message = wire.AttachWorkerRequest(result=result_to_message(result))
            self._outbox.put_nowait(message)

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_audit(self, query_id: int) -> None:
        audit = await self._thread.submit(self._executor.audit)
        reply = audit_to_message(
            audit,
            query_id=query_id,
            worker=self._info.worker_id.hex(),
            num_steps_queued=self._num_steps_queued,
        )
        self._outbox.put_nowait(wire.AttachWorkerRequest(audit_reply=reply))

    async def _compile(self, message: wire.CompileGrammar) -> None:
        self._outbox.put_nowait(await answer_compile(message, self._grammars))

    async def _answer_load(self, answer: "asyncio.Future[LoadAnswer]") -> None:
        self._outbox.put_nowait(loaded_to_message(await answer))

    async def _report_progress(self) -> None:
        sent = -1
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            counter = self._thread.progress
            if counter != sent and self._attached.is_set():
                sent = counter
                message = wire.WorkerProgress(counter=counter)
                self._outbox.put_nowait(wire.AttachWorkerRequest(progress=message))
