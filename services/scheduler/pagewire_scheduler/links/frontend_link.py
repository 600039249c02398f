"""The stream of one frontend: hello and requests in, tokens out. It owns the send queue and the
pending answers about audits."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from pagewire_protos.common.v1 import audit_pb2, stacks_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.cell import metrics_message
from pagewire_scheduler.convert.frontend import frontend_info, served_models, shortened, submission
from pagewire_scheduler.core.cell_load import CellLoad
from pagewire_scheduler.core.data.events import Event, RejectedEvent
from pagewire_scheduler.core.data.worker_info import ModelInfo
from pagewire_scheduler.links.event_stream import WaitingEvents
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.request_log import log_failure
from pagewire_scheduler.links.stream import run_stream
from pagewire_scheduler.peers.peers import FrontendInfo
from pagewire_scheduler.peers.pending_answers import PendingAnswers
from pagewire_shared.convert import agree_protocol
from pagewire_shared.errors import InternalError, PagewireError, UnavailableError, WireError
from pagewire_shared.exhaustion import fault_of
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES, SendQueue

MAX_OUTBOX_BYTES = 64 * 1024 * 1024
"""Limit of waiting messages besides events, such as answers. A frontend that reads never reaches
it; beyond it the frontend must attach again."""

MAX_ANSWER_BYTES = MESSAGE_BYTES - 1024
"""Limit of an answer to an operator."""

Audit = Callable[[], Awaitable[audit_pb2.AuditReport]]
Operate = Callable[[pb.AdminQuery], Awaitable[pb.AdminAnswer]]
_logger = logging.getLogger(__name__)


class FrontendLink:
    """A frontend that has sent its hello."""

    def __init__(
        self,
        loop: StepLoop,
        hello: pb.FrontendHello,
        audit: Audit,
        operate: Operate | None = None,
    ) -> None:
        """Take a hello.

        Args:
            audit: Answers audit queries of operators.
            operate: Answers other queries of operators; None to treat them as wire errors.
        """
        self._loop = loop
        self._protocol = agree_protocol(hello.protocol)
        loop.observe_generation(hello.cell, hello.highest_generation)
        self._info = frontend_info(hello)
        self._audit = audit
        self._operate = operate
        self._outbox: SendQueue[pb.AttachFrontendResponse] = SendQueue(
            max_bytes=MAX_OUTBOX_BYTES, clock=loop.clock
        )
        self._events = WaitingEvents()
        self._has_asked = False
        self._is_failing = False
        self._audits: PendingAnswers[audit_pb2.FrontendAudit] = PendingAnswers()
        self._stacks: PendingAnswers[stacks_pb2.ProcessStacks] = PendingAnswers()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def info(self) -> FrontendInfo:
        """The frontend's hello."""
        return self._info

    async def run(
        self, requests: AsyncIterator[pb.AttachFrontendRequest]
    ) -> AsyncIterator[pb.AttachFrontendResponse]:
        """Attach, and yield messages to send until the stream ends."""
        generation, resumed, events = self._loop.attach_frontend(self)
        welcome = pb.Welcome(
            protocol=self._protocol,
            generation=generation,
            resumed_handles=pack_u32(resumed),
            served_models=served_models(self._loop.core.models()),
            cell=self._loop.generation.cell,
        )
        self._send(pb.AttachFrontendResponse(welcome=welcome))
        self.send_events(events)
        async for message in run_stream(self._outbox, requests, self._receive, self.close):
            yield message

    def send_events(self, events: Sequence[Event]) -> None:
        """Queue events until the stream takes them; waiting events are merged."""
        if self._outbox.is_closed:
            return
        self._events.add(events)
        if self._events.is_too_much:
            self._cut("the frontend is too far behind; attach again")
        elif len(self._events) and not self._has_asked:
            self._has_asked = True
            self._outbox.put_each(self._take_events())

    def _take_events(self) -> Iterator[pb.AttachFrontendResponse]:
        """Yield the messages of the events that wait now; later events are queued again."""
        self._has_asked = False
        for message in self._events.take():
            if self._is_failing:
                return
            yield message

    def send_models(self, models: Sequence[tuple[ModelInfo, int]]) -> None:
        """Put the models served into the send queue."""
        self._send(pb.AttachFrontendResponse(served_models=served_models(models)))

    def send_heartbeat(self, counter: int) -> None:
        """Put a heartbeat into the send queue."""
        self._send(pb.AttachFrontendResponse(heartbeat=pb.Heartbeat(counter=counter)))

    def send_load(self, load: CellLoad) -> None:
        """Put the load of the cell into the send queue."""
        own = load.sequences.get(self._info.frontend_id, {})
        message = metrics_message(own, load.workers)
        self._send(pb.AttachFrontendResponse(cell_metrics=message))

    def send_failing(self, request_ids: Sequence[RequestId]) -> None:
        """Send, as the last message, the requests that the core worked on when it failed."""
        self._is_failing = True
        self._send(pb.AttachFrontendResponse(failing=pb.Failing(request_ids=request_ids)))

    def ask_audit(self, query_id: int) -> "asyncio.Future[audit_pb2.FrontendAudit]":
        """Query the resources that the frontend holds."""
        future = self._audits.expect(query_id)
        query = pb.AuditQuery(query_id=query_id)
        self._send(pb.AttachFrontendResponse(audit_query=query))
        return future

    def ask_stacks(self, query_id: int) -> "asyncio.Future[stacks_pb2.ProcessStacks]":
        """Query where the code of the frontend is."""
        future = self._stacks.expect(query_id)
        query = pb.StacksQuery(query_id=query_id)
        self._send(pb.AttachFrontendResponse(stacks_query=query))
        return future

    def close(self, error: PagewireError | None) -> None:
        """End the stream and detach; the second call does nothing."""
        if not self._outbox.is_closed:
            self._outbox.close(error)
            self._loop.detach_frontend(self)
            self._audits.give_up()
            self._stacks.give_up()
            for task in list(self._tasks):
                task.cancel()

    def _send(self, message: pb.AttachFrontendResponse) -> None:
        if not self._outbox.offer(message):
            self._cut("the frontend does not read what it asked for; attach again")

    def _cut(self, why: str) -> None:
        # Closing changes lists of the loop, which may be iterating over them.
        asyncio.get_running_loop().call_soon(self.close, UnavailableError(why))

    def _receive(self, message: pb.AttachFrontendRequest) -> None:
        if self._loop.driven.failure.done():
            return  # the process ends, and what the last word is about to be written
        try:
            self._take(message)
        except PagewireError:
            raise
        except Exception:
            if not self._loop.driven.failure.done():
                raise

    def _take(self, message: pb.AttachFrontendRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "submit":
            self._submit(message.submit)
        elif kind == "submits":
            for submit in message.submits.submits:
                self._submit(submit)
        elif kind == "abort":
            choice = message.abort.choice if message.abort.HasField("choice") else None
            self._loop.abort(self, message.abort.handle, choice)
        elif kind == "audit_query":
            self._start(self._answer_audit(message.audit_query.query_id))
        elif kind == "admin_query" and self._operate is not None:
            self._start(self._answer_admin(self._operate, message.admin_query))
        elif kind == "reset_prefix_cache":
            self._reset_prefix_cache(message.reset_prefix_cache)
        elif kind == "audit_reply":
            self._audits.answer(message.audit_reply.query_id, message.audit_reply.audit)
        elif kind == "stacks_reply":
            self._stacks.answer(message.stacks_reply.query_id, message.stacks_reply.stacks)
        elif kind != "heartbeat":
            raise WireError(f"a frontend cannot send {kind or 'nothing'} here")

    def _submit(self, message: pb.Submit) -> None:
        try:
            request = submission(
                message,
                self._loop.clock(),
                is_sharing_between_tenants=self._loop.is_sharing_between_tenants,
            )
        except PagewireError as error:
            self._refuse(message, error)
        except Exception as error:
            _logger.exception("a Submit could not be read")
            self._refuse(message, fault_of(error, "the scheduler cannot read the request"))
        else:
            self._loop.submit(self, request)

    def _refuse(self, message: pb.Submit, error: PagewireError) -> None:
        refusal = RejectedEvent(
            frontend_id=self._info.frontend_id,
            request_id=RequestId(message.request_id),
            handle=message.handle,
            epoch=message.epoch,
            error=error,
        )
        log_failure(refusal)
        self.send_events([refusal])

    def _reset_prefix_cache(self, message: pb.ResetPrefixCacheQuery) -> None:
        # The frontend refuses unknown models, but the last worker of a model may have left since.
        model = message.model if message.HasField("model") else None
        num_blocks = self._loop.reset_prefix_cache(model)
        answer = pb.ResetPrefixCacheAnswer(query_id=message.query_id, num_blocks=num_blocks)
        self._send(pb.AttachFrontendResponse(prefix_cache_reset=answer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_admin(self, operate: Operate, query: pb.AdminQuery) -> None:
        answer = await operate(query)
        if (num_bytes := answer.ByteSize()) > MAX_ANSWER_BYTES:
            error = InternalError(f"the answer takes {num_bytes} bytes, more than a message may")
            answer = pb.AdminAnswer(query_id=query.query_id, error=to_detail(error))
        self._send(pb.AttachFrontendResponse(admin_answer=answer))

    async def _answer_audit(self, query_id: int) -> None:
        report = await self._audit()
        if report.ByteSize() > MAX_ANSWER_BYTES:
            report = shortened(report)
        answer = pb.AuditAnswer(query_id=query_id, report=report)
        self._send(pb.AttachFrontendResponse(audit_answer=answer))
