"""Accepts pulls of other workers, limits their number and counts their outcomes."""

import asyncio
import logging
import time
from typing import Any, Final

import grpc.aio

from pagewire_shared.errors import (
    OverloadedError,
    PagewireError,
    StartupError,
    UnavailableError,
    WireError,
)
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.transfer import metrics
from pagewire_worker.transfer.block_sharer import BlockSharer
from pagewire_worker.transfer.layer_seals import LayerSeals
from pagewire_worker.transfer.outgoing_pull import OutgoingPull
from pagewire_worker.transfer.pull_convert import (
    PullRequest,
    accepted_to_message,
    pull_from_message,
)
from pagewire_worker.transfer.pull_stream import PullStream, Read, Write, label_of
from pagewire_worker.transfer.staging import Staging
from pagewire_worker.transfer_engines.engine import LentMemory, TransferEngine

_logger = logging.getLogger(__name__)

MAX_PULLS: Final = 64
OPEN_SECONDS: Final = 5.0
"""Longest time until the first message of a stream."""
_SHARE_OF_STAGING: Final = 4
"""One slow receiver holds at most a quarter of the staging memory."""


class BlockSource:
    """Hands out the blocks of one pool. Belongs to one event loop.

    Args:
        layout, worker_id, num_blocks: Facts about this worker that a receiver must know.
        seals: Seal what is sent, where this worker has a key.
        engine: The library by which receivers may read the staging memory; None for none.
    """

    def __init__(
        self,
        sharer: BlockSharer,
        staging: Staging,
        layout: BlockLayout,
        *,
        worker_id: bytes,
        num_blocks: int,
        seals: LayerSeals | None = None,
        engine: TransferEngine | None = None,
    ) -> None:
        self._sharer = sharer
        self._engine = engine
        self._lent: LentMemory | None = None
        self._lending = asyncio.Lock()
        self._staging = staging
        self._layout = layout
        self._worker_id = worker_id
        self._num_blocks = num_blocks
        self._seals = seals
        self._reasons: set[str] = set()
        self._num_open = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def serve(self, read: Read, write: Write) -> None:
        """Serve one stream to its end.

        Raises:
            PagewireError: The fault of the stream; it ends with that status.
        """
        started = time.monotonic()
        if self._num_open >= MAX_PULLS:
            metrics.PULLS.labels("too_many").inc()
            raise OverloadedError(f"{self._num_open} pulls are open already")
        self._num_open += 1
        self._is_idle.clear()
        stream, outcome = None, "gone"
        try:
            stream = await self._open(read, write)
            await stream.run()
        except PagewireError as error:
            stream, outcome = None, label_of(error)
            self._warn_once(outcome, error)
            raise
        finally:
            # A receiver that leaves cancels this, even if it has received everything.
            outcome = outcome if stream is None else stream.outcome
            self._num_open -= 1
            if self._num_open == 0:
                self._is_idle.set()
            metrics.PULLS.labels(outcome).inc()
            metrics.PULL_SECONDS.observe(time.monotonic() - started)

    async def wait_idle(self, seconds: float) -> None:
        """Return when no pull is open, after `seconds` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()
        except TimeoutError:
            _logger.warning("%d pulls are still open after %g seconds", self._num_open, seconds)

    async def _open(self, read: Read, write: Write) -> PullStream:
        request = await self._read_open(read)
        try:
            await asyncio.to_thread(self._staging.make)
        except StartupError as error:
            raise UnavailableError(f"no memory to send blocks from: {error}") from error
        lent = await self._lend(request)
        shared = self._staging.facts if request.use_shared_memory and lent is None else None
        await write(accepted_to_message(request.protocol, shared, lent))
        transport = KvTransport.GRPC if shared is None else KvTransport.SHARED_MEMORY
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

        pull = OutgoingPull(
            request.names,
            self._staging,
            self._staging.num_bytes // _SHARE_OF_STAGING,
            notify,
            num_layers=self._layout.groups[0].num_layers,
        )
        stream = PullStream(
            pull=pull,
            staging=self._staging,
            wake=self._sharer.wake,
            read=read,
            write=write,
            news=news,
            transport=transport if lent is None else lent.transport,
            seconds=request.seconds,
            seals=self._seals,
        )
        self._sharer.add(pull)
        return stream

    async def _lend(self, request: PullRequest) -> LentMemory | None:
        """Return the staging memory as the receiver's library reaches it; None without it."""
        engine = self._engine
        if engine is None or request.engine is not engine.transport:
            return None
        async with self._lending:
            if self._lent is None:
                memory = self._staging.region(0, self._staging.num_bytes)
                try:
                    self._lent = await asyncio.to_thread(engine.lend, memory)
                except UnavailableError as error:
                    self._engine = None
                    _logger.warning("%s; blocks are sent over gRPC", error.message)
            return self._lent

    async def _read_open(self, read: Read) -> PullRequest:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                message: Any = await read()
        except TimeoutError:
            raise WireError("the stream has no first message", field="open") from None
        if message is None or message is grpc.aio.EOF or message.WhichOneof("message") != "open":
            raise WireError("the first message of a pull is `open`", field="open")
        return pull_from_message(
            message.open,
            layout=self._layout,
            worker_id=self._worker_id,
            num_blocks=self._num_blocks,
        )

    def _warn_once(self, reason: str, error: PagewireError) -> None:
        if reason not in self._reasons:
            self._reasons.add(reason)
            _logger.warning("a pull was ended (%s): %s", reason, error)
