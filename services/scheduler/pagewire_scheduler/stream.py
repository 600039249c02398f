"""The two halves of a bidirectional stream: a reader task and the one writer. Knows no message."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import grpc
import grpc.aio

from pagewire_scheduler.outbox import Outbox
from pagewire_shared.errors import PagewireError

Request = TypeVar("Request")
Response = TypeVar("Response")

_logger = logging.getLogger(__name__)


async def run_stream(
    outbox: Outbox[Response],
    requests: AsyncIterator[Request],
    receive: Callable[[Request], None],
    close: Callable[[PagewireError | None], None],
) -> AsyncIterator[Response]:
    """Yield from `outbox` while a task feeds `receive`; call `close` when either side ends.

    The reader is the one who notices that the peer is gone: a writer may be waiting for news, or be
    blocked on flow control.
    """
    reader = asyncio.create_task(_read(requests, receive, close))
    try:
        async for message in outbox.drain():
            yield message
    finally:
        close(None)
        reader.cancel()


async def _read(
    requests: AsyncIterator[Request],
    receive: Callable[[Request], None],
    close: Callable[[PagewireError | None], None],
) -> None:
    error: PagewireError | None = None
    try:
        async for request in requests:
            receive(request)
    except PagewireError as broken:
        _logger.warning("a peer broke the contract: %s", broken)
        error = broken
    except (grpc.RpcError, grpc.aio.BaseError) as lost:
        _logger.debug("a stream was lost: %r", lost)
    finally:
        close(error)
