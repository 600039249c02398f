"""The stream of one worker: hello and results in, plans out. It owns the send queue and the pending
answers about audits and digests.

Credits bound the send queue: plans by steps in flight, grammars and loads by unanswered ones, and
loads of adapters by adapter slots. Roles
and farewell are one message each, and questions are at most MAX_QUESTIONS. So no message is refused
here. A worker is cut off only when it reads nothing for some time; see `stream`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

from pagewire_protos.common.v1 import worker_query_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.convert.adapters import adapter_error, adapter_message
from pagewire_scheduler.convert.weights import checked_weights, update_message
from pagewire_scheduler.convert.worker import (
    compile_error,
    compile_message,
    roles_to_message,
    worker_info,
)
from pagewire_scheduler.core.data.worker_info import Role, WorkerInfo
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.stream import run_stream
from pagewire_scheduler.metrics.adapters import AdapterMeter
from pagewire_scheduler.metrics.kv import LoadMeter
from pagewire_scheduler.metrics.steps import ModelStepMeter
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_scheduler.peers.pending_answers import PendingAnswers
from pagewire_shared.convert import agree_protocol
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.identity.ids import BlockName, short
from pagewire_shared.kv.arrays import pack_names
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.kv.load_convert import load_to_message, loaded_from_message
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES, SendQueue
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.sleep.convert import sleep_from_message, tags_to_message
from pagewire_shared.sleep.state import MemoryTag, SleepOrder
from pagewire_shared.steps.convert import plan_to_message, result_from_message
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.weights.version import UpdateOrder

MAX_QUESTIONS: Final = 32
"""Queries of operators that wait to be written; the future of a further one is cancelled."""

_logger = logging.getLogger(__name__)


class WorkerLink:
    """A worker that has sent its hello."""

    def __init__(self, loop: StepLoop, hello: pb.WorkerHello) -> None:
        self._loop = loop
        self._protocol = agree_protocol(hello.protocol)
        loop.observe_generation(hello.cell, hello.highest_generation)
        self._info = worker_info(hello)
        longest = self._info.model.max_model_len
        if longest < hello.capacity.max_model_len:
            _logger.warning(
                "worker %s takes %d tokens, and a plan tells %d: longer sequences are refused",
                short(self._info.worker_id),
                hello.capacity.max_model_len,
                longest,
            )
        self.watch = ProgressWatch(loop.clock())
        self._meter = ModelStepMeter(self._info.model.name)
        self._load_meter = LoadMeter(
            self._info.model.name, self._info.model.block_size // len(self._info.groups)
        )
        self._adapter_meter = AdapterMeter(self._info.model.name)
        self._outbox: SendQueue[pb.AttachWorkerResponse] = SendQueue(max_bytes=MESSAGE_BYTES)
        self._is_drained = False
        self._new_roles: frozenset[Role] | None = None
        self._is_to_sleep = False
        self._num_questions = 0
        self._audits: PendingAnswers[pb.WorkerAuditReply] = PendingAnswers()
        self._digests: PendingAnswers[bytes] = PendingAnswers()
        self._weights: PendingAnswers[bytes | PagewireError] = PendingAnswers()
        self._operators: PendingAnswers[worker_query_pb2.WorkerAnswer] = PendingAnswers()

    @property
    def info(self) -> WorkerInfo:
        """The worker's hello."""
        return self._info

    async def run(
        self, requests: AsyncIterator[pb.AttachWorkerRequest], kvstores: tuple[str, ...]
    ) -> AsyncIterator[pb.AttachWorkerResponse]:
        """Attach, and yield messages to send until the stream ends."""
        generation = self._loop.attach_worker(self)
        self._loop.watch_adapters(self, self._adapter_meter.waited)
        welcome = pb.WorkerWelcome(
            protocol=self._protocol,
            generation=generation,
            kvstore_addresses=kvstores,
            cell=self._loop.generation.cell,
            kvstore_copies=self._loop.core.settings.num_copies,
        )
        self._outbox.put(pb.AttachWorkerResponse(welcome=welcome))
        async for message in run_stream(self._outbox, requests, self._receive, self.close):
            yield message

    def send_plan(self, plan: StepPlan) -> None:
        """Put a plan into the send queue."""
        self._meter.sent(self._loop.clock())
        self._put(pb.AttachWorkerResponse(plan=plan_to_message(plan)))

    def send_grammar(self, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        """Put a request to compile a grammar into the send queue."""
        message = compile_message(grammar_id, params)
        self._put(pb.AttachWorkerResponse(compile_grammar=message))

    def send_adapter(self, order: SlotLoad) -> None:
        """Put an order to load an adapter into the send queue."""
        self._adapter_meter.ordered(self._loop.clock(), order.load_id)
        self._put(pb.AttachWorkerResponse(load_adapter=adapter_message(order)))

    def send_load(self, order: LoadOrder) -> None:
        """Put an order to load blocks into the send queue."""
        self._load_meter.ordered(self._loop.clock(), order)
        self._put(pb.AttachWorkerResponse(load_blocks=load_to_message(order)))

    def send_cancel_load(self, load_id: int) -> None:
        """Put the cancellation of a load into the send queue."""
        self._load_meter.cancelled(load_id)
        self._outbox.put(pb.AttachWorkerResponse(cancel_load=pb.CancelLoad(load_id=load_id)))

    @property
    def is_drained(self) -> bool:
        """Whether it was sent the message that it may leave."""
        return self._is_drained

    def send_drained(self) -> None:
        """Put the message that the worker may leave into the send queue."""
        self._is_drained = True
        self._outbox.put(pb.AttachWorkerResponse(drain=pb.WorkerDrain()))

    def send_roles(self, roles: Iterable[Role]) -> None:
        """Put the new roles of the worker into the send queue."""
        is_waiting = self._new_roles is not None
        self._new_roles = frozenset(roles)
        if not is_waiting:
            self._outbox.put_each(self._newest_roles())

    def send_sleep(self, order: SleepOrder) -> None:
        """Put the order to sleep into the send queue, once."""
        if not self._is_to_sleep:
            self._is_to_sleep = True
            message = pb.SleepOrder(level=order.level, wakes_on_request=order.wakes_on_request)
            self._outbox.put(pb.AttachWorkerResponse(sleep=message))

    def send_wake(self, tags: Iterable[MemoryTag]) -> None:
        """Put an order to wake into the send queue; a further one only after it has failed."""
        message = pb.WakeOrder(tags=tags_to_message(tags))
        self._outbox.put(pb.AttachWorkerResponse(wake=message))

    def send_update(self, order: UpdateOrder) -> None:
        """Put the order to load other weights into the send queue, once."""
        if not self._is_to_sleep:
            self._is_to_sleep = True
            self._outbox.put(pb.AttachWorkerResponse(update=update_message(order)))

    def ask_weights(self, query_id: int, path: str) -> "asyncio.Future[bytes | PagewireError]":
        """Ask for the fingerprint of weights, or why they do not do."""
        future = self._weights.expect(query_id)
        query = pb.CheckWeights(query_id=query_id, path=path)
        self._ask(future, pb.AttachWorkerResponse(check_weights=query))
        return future

    def ask_audit(self, query_id: int) -> "asyncio.Future[pb.WorkerAuditReply]":
        """Query the resources that the worker holds; the future is cancelled without an answer."""
        future = self._audits.expect(query_id)
        query = pb.WorkerAuditQuery(query_id=query_id)
        self._ask(future, pb.AttachWorkerResponse(audit_query=query))
        return future

    def ask_digests(self, query_id: int, names: Sequence[BlockName]) -> "asyncio.Future[bytes]":
        """Query the SHA-256 of the payload of blocks, 32 bytes each; zeros for absent blocks."""
        future = self._digests.expect(query_id)
        query = pb.BlockDigestQuery(query_id=query_id, names=pack_names(names))
        self._ask(future, pb.AttachWorkerResponse(block_digest_query=query))
        return future

    def ask_operator(
        self, query_id: int, query: worker_query_pb2.WorkerQuery
    ) -> "asyncio.Future[worker_query_pb2.WorkerAnswer]":
        """Ask for an operator; the future is cancelled without an answer."""
        future = self._operators.expect(query_id)
        question = pb.OperatorQuery(query_id=query_id, query=query)
        self._ask(future, pb.AttachWorkerResponse(operator_query=question))
        return future

    def close(self, error: PagewireError | None) -> None:
        """End the stream and detach; the second call does nothing."""
        if not self._outbox.is_closed:
            self._outbox.close(error)
            self._loop.detach_worker(self)
            self._audits.give_up()
            self._digests.give_up()
            self._weights.give_up()
            self._operators.give_up()

    def _put(self, message: pb.AttachWorkerResponse) -> None:
        """Queue a message whose size its maker bounds. One that is too large after all ends this
        stream, not the stream whose message is being handled."""
        try:
            self._outbox.put(message)
        except PagewireError as error:
            _logger.error("worker %s: %s", short(self._info.worker_id), error)
            # Closing changes lists of the loop, which may be iterating over them.
            asyncio.get_running_loop().call_soon(self.close, error)

    def _take_adapter(self, answer: pb.AdapterLoaded) -> None:
        error = adapter_error(answer)
        self._adapter_meter.answered(
            self._loop.clock(), answer.load_id, is_loaded=error is None, was_warm=answer.was_warm
        )
        self._loop.note_adapter(self, answer.load_id, error)

    def _newest_roles(self) -> Iterator[pb.AttachWorkerResponse]:
        roles, self._new_roles = self._new_roles or (), None
        message = pb.SetWorkerRoles(roles=roles_to_message(roles))
        yield pb.AttachWorkerResponse(set_roles=message)

    def _ask(self, answer: "asyncio.Future[Any]", question: pb.AttachWorkerResponse) -> None:
        if self._num_questions == MAX_QUESTIONS:
            answer.cancel()
            return
        self._num_questions += 1
        self._outbox.put_each(self._unless_over(answer, question))

    def _unless_over(
        self, answer: "asyncio.Future[Any]", question: pb.AttachWorkerResponse
    ) -> Iterator[pb.AttachWorkerResponse]:
        self._num_questions -= 1
        if not answer.done():  # else the answer was cancelled
            yield question

    def _receive(self, message: pb.AttachWorkerRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "result":
            result = result_from_message(message.result)
            now = self._loop.clock()
            self._meter.answered(now, len(result.token_ids), message.result.model_time_us)
            if result.failure is not None:
                _logger.warning(
                    "step %d of worker %s failed: %s",
                    result.step_id,
                    short(self._info.worker_id),
                    result.failure.message,
                )
            self._loop.apply(self, result)
        elif kind == "progress":
            self._loop.advance(self, message.progress.counter)
        elif kind == "grammar_compiled":
            answer = message.grammar_compiled
            self._loop.note_grammar(self, answer.grammar_id, compile_error(answer))
        elif kind == "adapter_loaded":
            self._take_adapter(message.adapter_loaded)
        elif kind == "blocks_loaded":
            loaded = loaded_from_message(message.blocks_loaded)
            self._load_meter.answered(self._loop.clock(), loaded)
            self._loop.note_load(self, loaded)
        elif kind == "sleep_changed":
            self._loop.sleep_desk.note(self, sleep_from_message(message.sleep_changed))
        elif kind == "leaving":
            self._loop.drain(self)
        elif kind == "audit_reply":
            self._audits.answer(message.audit_reply.query_id, message.audit_reply)
        elif kind == "weights_checked":
            checked = message.weights_checked
            self._weights.answer(checked.query_id, checked_weights(checked))
        elif kind == "operator_answer":
            found = message.operator_answer
            self._operators.answer(found.query_id, found.answer)
        elif kind == "block_digests":
            self._digests.answer(message.block_digests.query_id, message.block_digests.digests)
        else:
            raise WireError(f"a worker cannot send {kind or 'nothing'} here")
