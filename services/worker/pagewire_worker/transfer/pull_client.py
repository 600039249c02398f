"""Client side of one pull: requests blocks, verifies layers as they come, and grants credits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import grpc.aio
import numpy as np

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import DeadlineError, UnavailableError, WireError
from pagewire_shared.identity.ids import short
from pagewire_shared.kv.arrays import unpack_names
from pagewire_shared.kv.layers_convert import MAX_DATA_BYTES, KvLayersPiece, layers_checksum
from pagewire_worker.offload.metrics import DAMAGED_BLOCKS
from pagewire_worker.offload.shared_arena import SharedArena
from pagewire_worker.transfer.incoming_layers import ArrivedLayers, IncomingLayers, names_of
from pagewire_worker.transfer.layer_seals import LayerSeals
from pagewire_worker.transfer_engines.remote_memory import RemoteMemory

WINDOW_MESSAGES: Final = 8
"""Messages that are under way or wait to be written, of at most 1 MiB each, or of one layer."""
_EARLY: Final = WINDOW_MESSAGES // 2
"""Credits are granted in this number at once: a message costs more than one credit is worth."""

Call = Any
Memory = SharedArena | RemoteMemory


class PullClient:
    """Reads the layers of one stream.

    Args:
        seals: Layers without a seal by its keys are not taken.

    Attributes:
        is_damaged: Whether the stream ended because of a wrong checksum or seal.
    """

    def __init__(
        self,
        call: Call,
        names: Sequence[bytes],
        incoming: IncomingLayers,
        seals: LayerSeals | None = None,
    ) -> None:
        self.is_damaged = False
        self._call = call
        self._names = names
        self._incoming = incoming
        self._seals = seals
        self._num_ungranted = 0
        self._has_ungranted = asyncio.Event()

    async def open(self, request: wire.PullRequest, seconds: float) -> wire.PullAccepted:
        """Send the request, and return the acceptance of the holder.

        Raises:
            WireError: The holder broke the contract.
            DeadlineError: The holder did not answer in time.
            PagewireError: The stream ended.
            grpc.RpcError: The stream failed.
        """
        credit = wire.PullRequest(credit=wire.PullCredit(num_chunks=WINDOW_MESSAGES))
        try:
            # A call over a channel that was closed meanwhile never begins, and has no deadline.
            async with asyncio.timeout(seconds):
                await self._call.write(request)
                await self._call.write(credit)
                message: Any = await self._call.read()
        except TimeoutError as error:
            raise DeadlineError(f"the worker did not answer for {seconds:g} s") from error
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the worker ended the stream") from error
        _check_there(message)
        if isinstance(message, KvLayersPiece) or message.WhichOneof("message") != "accepted":
            raise WireError("the first answer to a pull is `accepted`")
        accepted: wire.PullAccepted = message.accepted
        return accepted

    def grant(self, num_messages: int) -> None:
        """Allow as many further messages as were processed."""
        self._num_ungranted += num_messages
        if self._num_ungranted >= _EARLY:
            self._has_ungranted.set()

    async def layers(self, arena: Memory | None) -> AsyncGenerator[ArrivedLayers, None]:
        """Yield layers until all have come, or the holder has no more.

        Args:
            arena: Memory with the layers; None if their bytes are sent.

        Raises:
            As `open`.
        """
        granting = asyncio.create_task(self._grant())
        try:
            while not self._incoming.is_complete:
                message: Any = await self._call.read()
                _check_there(message)
                if not isinstance(message, KvLayersPiece):
                    self._check_missing(message)
                    return
                covered = message.range
                self._incoming.check(covered)
                payload = await self._payload(message, arena)
                self._incoming.add(covered)
                yield ArrivedLayers(covered, payload)
        finally:
            granting.cancel()
            await asyncio.wait((granting,))

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    async def _grant(self) -> None:
        """Write credits when they are due; not in the reading task, which may wait for them."""
        while True:
            await self._has_ungranted.wait()
            self._has_ungranted.clear()
            count, self._num_ungranted = self._num_ungranted, 0
            credit = wire.PullCredit(num_chunks=count)
            try:
                await self._call.write(wire.PullRequest(credit=credit))
            except (asyncio.InvalidStateError, grpc.RpcError):
                return  # reading reports why the stream has ended

    async def _payload(
        self, message: KvLayersPiece, arena: Memory | None
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        if (message.offset is None) != (arena is None):
            raise WireError("layers: they lie elsewhere than was accepted", field="layers.offset")
        num_bytes = self._incoming.num_bytes(message.range)
        if num_bytes > MAX_DATA_BYTES and message.range.num_blocks * message.range.num_layers > 1:
            raise WireError(f"layers: {num_bytes} bytes in one message", field="layers.data")
        if isinstance(arena, RemoteMemory) and message.offset is not None:
            payload = await arena.read(message.offset, num_bytes)
        elif num_bytes > MAX_DATA_BYTES:
            payload = await asyncio.to_thread(_copied, message, arena, num_bytes)
        else:
            payload = _copied(message, arena, num_bytes)
        names = names_of(self._names, message.range)
        if layers_checksum(names, message.range, [payload.data]) != message.checksum:
            self.is_damaged = True
            raise WireError("layers: their checksum is another", field="layers.checksum")
        await self._check_seal(message, names, payload.data)
        return payload

    async def _check_seal(
        self, message: KvLayersPiece, names: Sequence[bytes], payload: memoryview
    ) -> None:
        """Raise WireError if there is a key and the layers have no seal by it."""
        seals = self._seals
        if seals is None or await seals.is_right(names, message.range, [payload], message.seal):
            return
        self.is_damaged = True
        DAMAGED_BLOCKS.labels("seal").inc(message.range.num_blocks)
        seals.log.refused(short(names[0]), "another worker", "hand-off")
        raise WireError("layers: they have no seal by the key of this cell", field="layers.seal")

    def _check_missing(self, message: wire.PullResponse) -> None:
        if message.WhichOneof("message") != "missing":
            raise WireError(f"the worker sent {message.WhichOneof('message')} in a pull")
        if not set(unpack_names(message.missing.names)) <= set(self._names):
            raise WireError("missing: a block that was not asked for", field="missing.names")


def _copied(
    message: KvLayersPiece, arena: Memory | None, num_bytes: int
) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Return a copy of a payload: the verified bytes are the written ones. Raises WireError."""
    if isinstance(arena, SharedArena) and message.offset is not None:
        return arena.copy(message.offset, num_bytes)
    if message.num_bytes != num_bytes:
        raise WireError(
            f"layers: {message.num_bytes} bytes came, they have {num_bytes}", field="layers.data"
        )
    # Also copied because a tensor needs an alignment that the message may lack.
    return np.frombuffer(message.parts[0], dtype=np.uint8).copy()


def _check_there(message: Any) -> None:
    if message is grpc.aio.EOF:
        raise UnavailableError("the worker ended the stream")
    if message is None:
        raise WireError("the worker sent what is no message")
