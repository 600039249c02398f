"""Runs the two halves of a bidirectional stream: a reader task and the only writer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.rpc.errors import no_message

STALL_SECONDS: Final = 10.0
"""A peer that reads nothing for so long, although messages wait, is cut off."""
LOOK_SECONDS: Final = 1.0

Request = TypeVar("Request")
Response_co = TypeVar("Response_co", covariant=True)
Response = TypeVar("Response")

_logger = logging.getLogger(__name__)


class Waiting(Protocol[Response_co]):
    """The messages that wait to be written: a SendQueue."""

    @property
    def stalled_seconds(self) -> float:
        """Seconds for which the writer has taken nothing although messages wait; else 0."""
        ...

    def drain(self) -> AsyncIterator[Response_co]:
        """Yield messages until the queue is closed."""
        ...


async def run_stream(
    outbox: Waiting[Response],
    requests: AsyncIterator[Request],
    receive: Callable[[Request], None],
    close: Callable[[PagewireError | None], None],
) -> AsyncIterator[Response]:
    """Yield from `outbox` while a task feeds `receive`; call `close` when either side ends.

    Only the reader notices that the peer is gone: the writer may be waiting for messages, or be
    blocked on flow control.
    """
    reader = asyncio.create_task(_read(requests, receive, close))
    watch = asyncio.create_task(_watch(outbox, close))
    try:
        async for message in outbox.drain():
            yield message
    finally:
        close(None)
        reader.cancel()
        watch.cancel()


async def _watch(outbox: Waiting[Response], close: Callable[[PagewireError | None], None]) -> None:
    """Close the stream of a peer that does not read.

    It needs two checks: after a pause of this process the writer gets its turn between them.
    """
    was_stalled = False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        seconds = outbox.stalled_seconds
        is_stalled = seconds >= STALL_SECONDS
        if is_stalled and was_stalled:
            error = UnavailableError(f"nothing was read for {seconds:.0f} s; attach again")
            _logger.warning("a peer is cut off: %s", error.message)
            close(error)
            return
        was_stalled = is_stalled


async def _read(
    requests: AsyncIterator[Request],
    receive: Callable[[Request], None],
    close: Callable[[PagewireError | None], None],
) -> None:
    error: PagewireError | None = None
    try:
        async for request in requests:
            receive(request)
    except (PagewireError, DecodeError) as broken:
        error = no_message(broken) if isinstance(broken, DecodeError) else broken
        _logger.warning("a peer broke the contract: %s", error)
    except (grpc.RpcError, grpc.aio.BaseError) as lost:
        _logger.debug("a stream was lost: %r", lost)
    finally:
        close(error)
