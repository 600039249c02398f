"""The public gRPC service for many requests in one call."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api.batch_call import MAX_BYTES, MAX_ITEMS, BatchCall
from pagewire_frontend.grpc_api.kept_calls import require_not_kept
from pagewire_frontend.grpc_api.stall_watch import STALLED, StallWatch
from pagewire_frontend.request_label import LABEL, label_in
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.traces.parent import PARENT, parent_in
from pagewire_protos.frontend.v1 import batch_pb2 as pb
from pagewire_protos.frontend.v1 import batch_pb2_grpc
from pagewire_shared.errors import DeadlineError, InvalidRequestError

Context = grpc.aio.ServicerContext[Any, Any]


class BatchService(batch_pb2_grpc.BatchServiceServicer):
    """Many requests in, whole answers out."""

    def __init__(self, engine: Engine, *, stall_seconds: float) -> None:
        """Create the batch service.

        Args:
            engine: Opens the sessions.
            stall_seconds: Time after which a client that takes nothing is cut.
        """
        self._engine = engine
        self._stalls = StallWatch(stall_seconds)
        self._turns = ReaderTurns()

    async def GenerateBatch(
        self, request: pb.GenerateBatchRequest, context: Context
    ) -> AsyncIterator[pb.GenerateBatchResponse]:
        """Answer every request of the call."""
        LABEL.set(label_in(context.invocation_metadata()))
        PARENT.set(parent_in(context.invocation_metadata()))
        require_not_kept(context.invocation_metadata(), "GenerateBatch")
        num_items = len(request.items)
        if not 1 <= num_items <= MAX_ITEMS:
            raise InvalidRequestError(
                f"items: {num_items} requests in one call; it takes 1 to {MAX_ITEMS}", field="items"
            )
        if num_items > 1 and (num_bytes := request.ByteSize()) > MAX_BYTES:
            raise InvalidRequestError(
                f"items: {num_bytes} bytes in one call of several requests; it takes {MAX_BYTES}",
                field="items",
            )
        call = BatchCall(self._engine, context.time_remaining(), self._turns)

        # A handler that is cancelled while it writes is only unwound when it is collected.
        def free(_: object) -> None:
            call.close()

        # The stubs ask for a class where the library takes any callable.
        context.add_done_callback(free)  # type: ignore[arg-type]
        watched = self._stalls.watch(lambda: call.fail(DeadlineError(STALLED)))
        try:
            call.open(request.items)
            async for message in call.messages(num_items):
                watched.begin_write()
                yield message
                watched.end_write()
        finally:
            self._stalls.forget(watched)
            call.close()
