"""One attach of the worker, from hello to end: receives plans and questions, sends the answers.

The model thread runs the plans; results are sent in the order of the plans. The send queue is
bounded by the requests: a result per plan, an answer per question, and one report of progress. The
scheduler plans no step whose result would not fit a message.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

import grpc.aio

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import worker_attach_pb2_grpc
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.identity.seen_generations import SeenGenerations
from pagewire_shared.kv.load import LoadAnswer
from pagewire_shared.kv.load_convert import loaded_to_message
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES, SendQueue
from pagewire_shared.sleep.convert import sleep_to_message
from pagewire_shared.sleep.state import WorkerSleep
from pagewire_shared.steps.convert import check_grammar_id, plan_from_message, result_to_message
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.adapters.loader import AdapterLoader
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.link import answer_compile
from pagewire_worker.link.adapter_link import answer_adapter
from pagewire_worker.link.convert import audit_to_message, hello_to_message, roles_from_message
from pagewire_worker.link.inspection_link import InspectionLink
from pagewire_worker.link.load_link import (
    answer_digests,
    query_from_message,
    take_load,
)
from pagewire_worker.link.metrics import StepMeter
from pagewire_worker.link.sleep_link import SleepLink
from pagewire_worker.link.weights_link import WeightsLink
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.plan.roles import WorkerRole
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.plan_runner import PlanRunner
from pagewire_worker.runner.step_runner import RunStep, StepRunner
from pagewire_worker.transfer.kv_transfer import KvTransfer

_logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.25
MAX_JOBS: Final = 4096
"""Open questions of the scheduler; a scheduler that keeps its credits has far fewer."""


class AttachStream:
    """One attach.

    Args:
        info: Content of the hello.
        model_runner, thread, grammars, offload, transfer, adapters: See SchedulerLink.
        attached: Set with the welcome.
        leaving: Set when the process is to end; the scheduler is then informed.
        drained: Set when the scheduler reports that no work is left.
        on_roles: Called with new roles of the worker.
        sleep, weights, inspection: See SchedulerLink.

    Attributes:
        generation: Generation of the scheduler, from its welcome on.
    """

    def __init__(
        self,
        *,
        info: ReplicaInfo,
        model_runner: PlanRunner,
        thread: ModelThread,
        grammars: GrammarCompiler | None,
        offload: KvOffload | None,
        transfer: KvTransfer | None,
        adapters: AdapterLoader | None,
        attached: asyncio.Event,
        leaving: asyncio.Event,
        drained: asyncio.Event,
        on_roles: Callable[[tuple[WorkerRole, ...]], None],
        sleep: SleepLink | None = None,
        weights: WeightsLink | None = None,
        inspection: InspectionLink | None = None,
    ) -> None:
        self._inspection = inspection
        self._sleep = sleep
        self._weights = weights
        self._info = info
        self._model_runner = model_runner
        self._thread = thread
        self._grammars = grammars
        self._offload = offload
        self._transfer = transfer
        self._adapters = adapters
        self._on_roles = on_roles
        self._attached = attached
        self._leaving = leaving
        self._drained = drained
        self._meter = StepMeter(info.served_model_name)
        self._incarnation = int.from_bytes(mint_id()[:8], "little")
        self._outbox: SendQueue[wire.AttachWorkerRequest] = SendQueue(max_bytes=MESSAGE_BYTES)
        self._is_progress_waiting = False
        self._num_steps_queued = 0
        self._runner: StepRunner | None = None
        self._call: grpc.aio.StreamStreamCall[Any, Any] | None = None
        self._stores: tuple[str, ...] = ()
        self._fault: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.generation = 0

    async def run(self, channel: grpc.aio.Channel, seen: SeenGenerations) -> None:
        """Run until the stream ends; `seen` records the welcome.

        Raises:
            grpc.RpcError: The stream broke.
            UnavailableError: The scheduler is not the newest of its cell.
            WireError: The peer broke the rules.
            DeviceLostError: The model cannot run here any more.
        """
        held = await self._thread.submit(self._model_runner.blocks.held_names)
        hello = hello_to_message(
            self._info,
            incarnation=self._incarnation,
            highest_generation=seen.highest,
            held=held,
            cell=seen.cell,
            warm_adapters=() if self._adapters is None else self._adapters.warm_ids,
        )
        if self._sleep is not None:
            self._sleep.introduce(hello)
        if self._weights is not None:
            self._weights.introduce(hello)
        self._outbox.put(wire.AttachWorkerRequest(hello=hello))
        stub = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel)
        call = self._call = stub.AttachWorker(self._outbox.drain())
        runner = self._runner = StepRunner(
            model_runner=self._model_runner,
            thread=self._thread,
            loop=asyncio.get_running_loop(),
            on_result=self._send_result,
            on_failure=self._break,
        )
        progress = asyncio.create_task(self._report_progress())
        farewell = asyncio.create_task(self._say_leaving())
        try:
            async for response in call:
                if response.HasField("welcome"):
                    seen.meet(response.welcome.cell, response.welcome.generation)
                await self._receive(response)
        except asyncio.CancelledError:
            if self._fault is not None:
                raise self._fault from None
            raise
        finally:
            runner.close()
            # When the peer has gone, gRPC leaves the reader of the queue waiting for a message,
            # and the collector then finds a generator that it cannot close.
            self._outbox.close()
            progress.cancel()
            farewell.cancel()
            for task in self._tasks:
                task.cancel()
            call.cancel()

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
        elif kind == "load_adapter":
            self._spawn(self._load_adapter(response.load_adapter))
        elif kind in ("load_blocks", "cancel_load"):
            answer = take_load(response, self._offload, self._transfer)
            if answer is not None:
                self._spawn(self._answer_load(answer))
        elif kind == "block_digest_query":
            query = response.block_digest_query
            names = query_from_message(query, self._info.num_blocks)
            self._spawn(self._answer_digests(query.query_id, names))
        elif kind == "set_roles":
            self._on_roles(roles_from_message(response.set_roles))
        elif kind in ("sleep", "wake") and self._sleep is not None:
            self._sleep.take(response)
        elif kind == "update" and self._weights is not None:
            self._weights.take(response.update)
        elif kind == "check_weights" and self._weights is not None:
            self._spawn(self._check_weights(self._weights, response.check_weights))
        elif kind == "operator_query" and self._inspection is not None:
            self._spawn(self._answer_operator(self._inspection, response.operator_query))
        elif kind == "drain":
            _logger.info("drained: nothing is left to do")
            self._drained.set()
        else:
            _logger.warning("ignored a message of an unknown kind from the scheduler")

    async def _welcome(self, welcome: wire.WorkerWelcome) -> None:
        self.generation = welcome.generation
        self._stores = tuple(welcome.kvstore_addresses)
        await self._thread.submit(self._model_runner.drop_slots)
        if self._grammars is not None:
            self._grammars.clear()
        if self._adapters is not None:
            self._adapters.clear()
        if self._offload is not None:
            await self._offload.attach(self._stores, max(1, welcome.kvstore_copies))
        self._attached.set()
        _logger.info("attached to the scheduler, generation %d", welcome.generation)

    def report_sleep(self, sleep: WorkerSleep) -> None:
        """Say where the sleeping worker is, if the scheduler knows it already."""
        if self.generation:
            message = sleep_to_message(sleep)
            self._put(wire.AttachWorkerRequest(sleep_changed=message))

    async def _say_leaving(self) -> None:
        """Inform this scheduler once, as soon as it is known, that the process is to end."""
        await self._attached.wait()
        await self._leaving.wait()
        leaving = wire.WorkerLeaving()
        self._put(wire.AttachWorkerRequest(leaving=leaving))

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
        assert self._runner is not None
        self._runner.run(plan)

    def _send_result(self, step: RunStep) -> None:
        self._num_steps_queued -= 1
        self._put(wire.AttachWorkerRequest(result=result_to_message(step.result)))
        self._meter.ran(step.plan, step.result, step.seconds)

    def _put(self, message: wire.AttachWorkerRequest) -> None:
        try:
            self._outbox.put(message)
        except PagewireError as error:
            self._break(WireError(f"{message.WhichOneof('message')}: {error.message}"))

    def _break(self, error: BaseException) -> None:
        """End the attach for an error that no result can report.

        After a WireError the worker attaches again; after any other error the process ends.
        """
        if self._fault is None:
            self._fault = error
            assert self._call is not None
            self._call.cancel()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) == MAX_JOBS:
            job.close()
            raise WireError(f"the scheduler asks for more than {MAX_JOBS} things at once")
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_audit(self, query_id: int) -> None:
        audit = await self._thread.submit(self._model_runner.audit)
        reply = audit_to_message(
            audit,
            query_id=query_id,
            worker=self._info.worker_id.hex(),
            num_steps_queued=self._num_steps_queued,
        )
        self._put(wire.AttachWorkerRequest(audit_reply=reply))

    async def _compile(self, message: wire.CompileGrammar) -> None:
        self._put(await answer_compile(message, self._grammars))

    async def _check_weights(self, weights: WeightsLink, query: wire.CheckWeights) -> None:
        self._put(await weights.answer(query))

    async def _answer_operator(self, inspection: InspectionLink, query: wire.OperatorQuery) -> None:
        self._put(await inspection.answer(query))

    async def _load_adapter(self, message: wire.LoadAdapter) -> None:
        self._put(await answer_adapter(message, self._adapters, self._stores))

    async def _answer_load(self, answer: "asyncio.Future[LoadAnswer]") -> None:
        loaded = loaded_to_message(await answer)
        self._put(wire.AttachWorkerRequest(blocks_loaded=loaded))

    async def _answer_digests(self, query_id: int, names: Sequence[bytes]) -> None:
        self._put(await answer_digests(query_id, names, self._transfer))

    async def _report_progress(self) -> None:
        sent = -1
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            counter = self._thread.progress
            is_news = counter != sent and self._attached.is_set()
            if is_news and not self._is_progress_waiting:
                sent = counter
                self._is_progress_waiting = True
                self._outbox.put_each(self._progress(counter))

    def _progress(self, counter: int) -> Iterator[wire.AttachWorkerRequest]:
        self._is_progress_waiting = False
        progress = wire.WorkerProgress(counter=counter)
        yield wire.AttachWorkerRequest(progress=progress)
