"""Follows streamed calls over lost connections and lost frontends.

Each call has an idempotency key, so that it is computed once however often it is sent, and what was
received says where to read on.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
import grpc.aio

from pagewire.client.call_errors import call_error, has_server_error
from pagewire.client.client_convert import event_from_message
from pagewire.client.events import Event
from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError

IDEMPOTENCY_KEY: Final = "idempotency-key"
FIRST_WAIT_SECONDS: Final = 0.02
MAX_WAIT_SECONDS: Final = 0.5
END_SECONDS: Final = 5.0

_ENDING: Final[set[Any]] = set()
"""Calls and tasks that end streams: one that nothing refers to would be cancelled."""
STREAM_ID: Final = "x-pagewire-stream"

Metadata = tuple[tuple[str, str], ...]


class ResumedCall:
    """One streamed call that is read on when it breaks.

    Args:
        begin: Makes the call, or joins the one with the same key.
        resume: Reads the rest of a stream.
        cancel: Ends a stream that its reader leaves early.
        address: For messages of errors.
        timeout_seconds: Deadline of the whole; None for none.
        patience_seconds: How long it may break without a message in between.
    """

    def __init__(
        self,
        *,
        begin: Callable[..., Any],
        resume: Callable[..., Any],
        cancel: Callable[..., Any],
        address: str,
        metadata: Metadata,
        timeout_seconds: float | None,
        patience_seconds: float,
    ) -> None:
        self._begin = begin
        self._resume = resume
        self._cancel = cancel
        self._address = address
        self._metadata = metadata
        self._key = (IDEMPOTENCY_KEY, str(uuid.uuid4()))
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._patience = patience_seconds
        self._stream_id = ""
        self._call: Any = None
        self._num_received = 0
        self._broken_at: float | None = None
        self._is_over = False

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the whole stream, each once.

        Raises:
            PagewireError: The server refuses the request or ends the stream, or it stays away for
                longer than the patience.
        """
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    yield event
        except PagewireError as error:
            # A stream that is given up, and not ended by the server, may still run there.
            self._is_over = not isinstance(error, DeadlineError | UnavailableError)
            raise
        finally:
            if self._stream_id and not self._is_over:
                _keep(self._cancelling(self._stream_id))
            elif self._call is not None and not self._is_over:
                _keep(asyncio.create_task(self._end_unnamed(self._call)))

    async def _events(self) -> AsyncGenerator[Event]:
        wait = FIRST_WAIT_SECONDS
        while True:
            call = self._call = self._next_call()
            try:
                async for message in call:
                    self._note(message)
                    wait = FIRST_WAIT_SECONDS
                    yield event_from_message(message)
                return
            except grpc.aio.AioRpcError as error:
                if not self._may_go_on(error):
                    raise call_error(error, self._address) from None
            finally:
                call.cancel()  # has no effect on a call that ended
            await asyncio.sleep(wait)
            wait = min(2 * wait, MAX_WAIT_SECONDS)

    def _next_call(self) -> Any:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        if not self._stream_id:
            return self._begin(timeout=left, metadata=(*self._metadata, self._key))
        rest = inference_pb2.ResumeRequest(
            stream_id=self._stream_id, num_received=self._num_received
        )
        return self._resume(rest, timeout=left, metadata=self._metadata)

    def _cancelling(self, stream_id: str) -> Any:
        """Return the call that has the server end a stream."""
        request = inference_pb2.CancelStreamRequest(stream_id=stream_id)
        return self._cancel(request, timeout=END_SECONDS, metadata=self._metadata)

    async def _end_unnamed(self, call: Any) -> None:
        """Have the server end a stream that its reader leaves before the first message: its name
        came, or comes soon, with the metadata. A client that is closed meanwhile sends nothing."""
        failures = (grpc.RpcError, grpc.aio.UsageError, TimeoutError, asyncio.CancelledError)
        with contextlib.suppress(*failures):
            async with asyncio.timeout(END_SECONDS):
                stream_id = _named(await call.initial_metadata())
                if stream_id:
                    await self._cancelling(stream_id)

    def _note(self, message: Any) -> None:
        self._num_received += 1
        self._is_over = message.HasField("closed")
        self._broken_at = None
        if message.HasField("opened"):
            self._stream_id = message.opened.stream_id

    def _may_go_on(self, error: grpc.aio.AioRpcError) -> bool:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return False
        if not self._stream_id and has_server_error(error):
            return False  # the server refuses it, for now
        now = time.monotonic()
        if self._broken_at is None:
            self._broken_at = now
        return now - self._broken_at < self._patience


def _named(metadata: Any) -> str:
    """Return the name of the stream in initial metadata; empty where none came."""
    found = [value for key, value in metadata or () if key == STREAM_ID]
    return str(found[0]) if found else ""


def _keep(ending: Any) -> None:
    _ENDING.add(ending)
    ending.add_done_callback(_ENDING.discard)
