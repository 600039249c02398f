"""Serves one pull of another worker: sends staged layers as the receiver grants credit."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc.aio

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.kv.layers_convert import (
    MAX_DATA_BYTES,
    KvLayersPiece,
    LayerRange,
    layers_checksum,
)
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.transfer import metrics
from pagewire_worker.transfer.layer_seals import LayerSeals
from pagewire_worker.transfer.outgoing_pull import OutgoingPull, StagedLayers, follows
from pagewire_worker.transfer.pull_convert import missing_to_message
from pagewire_worker.transfer.staging import Staging

_logger = logging.getLogger(__name__)

MAX_CREDITS: Final = 1 << 20
END_SECONDS: Final = 5.0
"""Time for the receiver to read the last messages. gRPC loses unread messages when the receiver
writes to a stream that has ended."""

Read = Callable[[], Awaitable[Any]]
Write = Callable[[Any], Awaitable[None]]


class PullStream:
    """Sends the layers of one pull.

    Args:
        wake: Called when a region is free again.
        news: Set when the pull has new pieces or is complete.
        transport: By all but gRPC the receiver reads `staging` itself.
        seconds: How long the receiver waits.
        seals: Seal what is sent, where this worker has a key.

    Attributes:
        outcome: Outcome so far, for metrics: a receiver that has everything leaves at once.
    """

    def __init__(
        self,
        *,
        pull: OutgoingPull,
        staging: Staging,
        wake: Callable[[], None],
        read: Read,
        write: Write,
        news: asyncio.Event,
        transport: KvTransport,
        seconds: float,
        seals: LayerSeals | None = None,
    ) -> None:
        self.outcome = "gone"
        self._pull = pull
        self._staging = staging
        self._wake = wake
        self._read = read
        self._write = write
        self._news = news
        self._seconds = seconds
        self._seals = seals
        self._stays = transport is not KvTransport.GRPC
        self._num_bytes = metrics.PULLED_BYTES.labels(transport.value)
        self._num_credits = 0
        self._has_credit = asyncio.Event()
        self._is_first_credit = True
        self._is_credit_over = False
        self._ahead: StagedLayers | None = None
        self._held: deque[list[StagedLayers]] = deque()
        self._num_complete = 0

    async def run(self) -> None:
        """Send until everything is sent or the time is over.

        Raises:
            WireError: The receiver broke the contract.
        """
        end = time.monotonic() + self._seconds
        reading = asyncio.create_task(self._read_credits())
        sending = asyncio.create_task(self._send_all())
        try:
            await asyncio.wait(
                (reading, sending), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done() and not sending.done():
                reading.result()
                self._is_credit_over = True
                self._has_credit.set()
                await asyncio.wait((sending,), timeout=max(0.0, end - time.monotonic()))
            self.outcome = sending.result() if sending.done() else "late"
            sending.cancel()
            await asyncio.wait((sending,), timeout=END_SECONDS)
            lacking = list(self._pull.names[self._num_complete :])
            if lacking:
                async with asyncio.timeout(END_SECONDS):
                    await self._write(missing_to_message(lacking))
            patience = END_SECONDS if not lacking else min(END_SECONDS, end - time.monotonic())
            await asyncio.wait((reading,), timeout=max(0.1, patience))
        except grpc.aio.InternalError:
            _logger.debug("the receiver of a pull is gone")
        except TimeoutError:
            _logger.debug("the receiver of a pull takes nothing")
        finally:
            for task in (reading, sending):
                task.cancel()
            ends = asyncio.gather(reading, sending, return_exceptions=True)
            try:
                # A call that does not notice its end must not pin the memory.
                _, left = await asyncio.wait((ends,), timeout=END_SECONDS)
                if left:
                    _logger.warning("the call of a pull goes on although it was cancelled")
            finally:
                # Also if the stream is cancelled once more.
                self._give_all_back()

    async def _send_all(self) -> str:
        while (group := await self._next_group()) is not None:
            await self._use_credit()
            await self._send(group)
        return "complete" if self._num_complete == len(self._pull.names) else "void"

    async def _use_credit(self) -> None:
        while self._num_credits == 0:
            if self._is_credit_over:
                raise WireError("the receiver ended its side before it granted enough credit")
            self._has_credit.clear()
            await self._has_credit.wait()
        self._num_credits -= 1

    async def _next_group(self) -> list[StagedLayers] | None:
        """Return pieces that make one message; None if no more will come."""
        first = await self._next_piece()
        if first is None:
            return None
        group, num_bytes = [first], first.num_bytes
        self._held.append(group)
        while (piece := self._ahead or self._pull.take()) is not None:
            self._ahead = piece
            num_bytes += piece.num_bytes
            if num_bytes > MAX_DATA_BYTES or not self._fits(group[-1], piece):
                break
            group.append(piece)
            self._ahead = None
        return group

    def _fits(self, last: StagedLayers, piece: StagedLayers) -> bool:
        is_next = last.offset + last.num_bytes == piece.offset
        return follows(last, piece) and (is_next or not self._stays)

    async def _next_piece(self) -> StagedLayers | None:
        if self._ahead is not None:
            piece, self._ahead = self._ahead, None
            return piece
        while True:
            self._news.clear()
            # Read before the outbox: the last piece is in the outbox before this is true.
            is_staged = self._pull.is_staged
            found = self._pull.take()
            if found is not None or is_staged:
                return found
            await self._news.wait()

    async def _send(self, group: Sequence[StagedLayers]) -> None:
        covered = LayerRange(
            group[0].range.first_block,
            group[0].range.num_blocks,
            group[0].range.first_layer,
            sum(piece.range.num_layers for piece in group),
        )
        parts = [self._staging.view(piece.offset, piece.num_bytes) for piece in group]
        num_bytes = sum(piece.num_bytes for piece in group)
        end = covered.first_block + covered.num_blocks
        names = self._pull.names[covered.first_block : end]
        if num_bytes > MAX_DATA_BYTES:
            checksum = await asyncio.to_thread(layers_checksum, names, covered, parts)
        else:
            checksum = layers_checksum(names, covered, parts)
        seal = b"" if self._seals is None else await self._seals.make(names, covered, parts)
        if self._stays:
            message = KvLayersPiece(covered, checksum, offset=group[0].offset, seal=seal)
        else:
            message = KvLayersPiece(covered, checksum, parts, seal=seal)
        if covered.first_layer + covered.num_layers == self._pull.num_layers:
            self.outcome = "complete" if end == len(self._pull.names) else "gone"
        await self._write(message)
        self._num_bytes.inc(num_bytes)
        if not self._stays:
            self._give_back(1)
        self._note_complete(covered)

    def _note_complete(self, covered: LayerRange) -> None:
        # The last layers of blocks are sent in the order of the blocks.
        if covered.first_layer + covered.num_layers == self._pull.num_layers:
            self._num_complete = covered.first_block + covered.num_blocks

    async def _read_credits(self) -> None:
        while (request := await self._read()) is not grpc.aio.EOF:
            if request is None or request.WhichOneof("message") != "credit":
                raise WireError("after `open` a receiver grants credit", field="message")
            self._take_credit(request.credit)

    def _take_credit(self, credit: wire.PullCredit) -> None:
        if self._num_credits + credit.num_chunks > MAX_CREDITS:
            raise WireError(f"credit: more than {MAX_CREDITS}", field="credit.num_chunks")
        if self._stays and not self._is_first_credit:
            if credit.num_chunks > len(self._held):
                raise WireError(
                    "credit: more messages are given back than were sent",
                    field="credit.num_chunks",
                )
            self._give_back(credit.num_chunks)
        self._is_first_credit = False
        self._num_credits += credit.num_chunks
        self._has_credit.set()

    def _give_back(self, num_messages: int) -> None:
        for _ in range(num_messages):
            for piece in self._held.popleft():
                self._pull.give_back(piece)
        self._wake()

    def _give_all_back(self) -> None:
        if self._ahead is not None:
            self._held.append([self._ahead])
            self._ahead = None
        self._pull.close()
        self._give_back(len(self._held))


def label_of(error: PagewireError) -> str:
    """Return the metrics label of a pull that ended with `error`."""
    return "refused" if error.status_name == "FAILED_PRECONDITION" else error.code
