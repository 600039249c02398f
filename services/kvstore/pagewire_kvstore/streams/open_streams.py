"""Counts and bounds the open streams of one kind, and ends a stream whose peer reads nothing."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc.aio

from pagewire_kvstore.streams.metrics import REFUSED, STREAMS
from pagewire_shared.errors import DeadlineError, OverloadedError, PagewireError
from pagewire_shared.rpc.errors import abort

_logger = logging.getLogger(__name__)

STALLED = "stalled_reader"


class OpenStreams:
    """The streams of one kind.

    Args:
        kind: As in metrics: "put", "get", "watch", "adapter_put" or "adapter_get".
        max_streams: Most at a time.
        stall_seconds: Longest time that a peer may take for one response.
    """

    def __init__(self, kind: str, max_streams: int, stall_seconds: float) -> None:
        self._kind = kind
        self._max_streams = max_streams
        self._stall_seconds = stall_seconds
        self._reasons: set[str] = set()
        self.num_open = 0
        self.num_stalled = 0
        """Streams whose peer does not read the final status."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count a stream while it is open. Raises OverloadedError when there are too many."""
        try:
            if self.num_open >= self._max_streams:
                raise OverloadedError(f"{self.num_open} {self._kind} streams are open already")
            self.num_open += 1
            STREAMS.labels(self._kind).inc()
            try:
                yield
            finally:
                self.num_open -= 1
                STREAMS.labels(self._kind).dec()
        except PagewireError as error:
            self._note(error.code, error.message)
            raise

    async def send(
        self, responses: AsyncGenerator[Any, None], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        """Send responses until there are no more, or the peer is gone.

        A peer that does not read a response in time gets a DeadlineError once it reads again.
        `responses` is closed before that; the stream counts as open until the peer reads.
        """
        async with aclosing(responses):
            is_stalled = not await self._send(responses, context)
        if is_stalled:
            error = DeadlineError(f"nothing was taken for {self._stall_seconds:g} seconds")
            self._note(STALLED, error.message)
            self.num_stalled += 1
            try:
                await abort(context, error)
            finally:
                self.num_stalled -= 1

    async def _send(
        self, responses: AsyncGenerator[Any, None], context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> bool:
        async for response in responses:
            try:
                async with asyncio.timeout(self._stall_seconds):
                    # Written here and not yielded: the library logs an error with its traceback
                    # for every peer that leaves while a yielded response waits for it.
                    await context.write(response)
            except TimeoutError:
                return False
            except grpc.aio.InternalError:
                _logger.debug("the peer of a %s stream is gone", self._kind)
                break
        return True

    def _note(self, reason: str, message: str) -> None:
        REFUSED.labels(self._kind, reason).inc()
        if reason not in self._reasons:
            self._reasons.add(reason)
            _logger.warning("a %s stream was ended (%s): %s", self._kind, reason, message)
