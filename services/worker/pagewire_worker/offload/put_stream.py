"""One Put stream of a KV store: announces, sends within credits, publishes, one batch at a time.

Every wait for the store has a time limit.
"""

import asyncio
import threading
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import grpc.aio
import numpy as np

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2 as wire
from pagewire_shared.errors import DeadlineError, UnavailableError, WireError
from pagewire_shared.kv.arrays import pack_names, pack_u32, unpack_names
from pagewire_shared.kv.chunk_convert import KvPiece
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.put_batch import cut
from pagewire_worker.offload.shared_arena import SharedArena

MAX_CREDITS = 1 << 20


class PutStream:
    """A stream that is used until it breaks.

    Args:
        stall_seconds: Longest wait for one answer of the store, or for room for one message.
        arena: The store's memory; None to send chunks.
    """

    def __init__(
        self,
        call: "grpc.aio.StreamStreamCall[Any, Any]",
        layout: layout_pb2.KvLayout,
        stall_seconds: float,
        arena: SharedArena | None = None,
    ) -> None:
        self._call = call
        self._arena = arena
        self._layout = layout
        self._stall_seconds = stall_seconds
        self._num_credits = 0

    def cancel(self) -> None:
        """End the stream; the store forgets blocks that were not published."""
        self._call.cancel()

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Store blocks and return the names that the store holds; it had no room for the others.

        Raises:
            PagewireError: The store broke the contract or is too slow; the stream is then useless.
            grpc.RpcError: The stream ended.
        """
        by_tenant = sorted(blocks, key=_tenant_key)
        names: frozenset[bytes] = frozenset()
        for _, group in groupby(by_tenant, key=_tenant_key):
            names |= await self._put_of_tenant(list(group))
        return names

    async def _put_of_tenant(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        by_name = {block.name: block for block in blocks}
        announce = wire.PutAnnounce(
            layout=self._layout,
            names=pack_names(by_name),
            tenant=blocks[0].tenant,
            use_shared_memory=self._arena is not None,
        )
        await self._write(wire.PutRequest(announce=announce))
        answer = (await self._receive("wanted")).wanted
        wanted = _subset(answer.names, by_name, "wanted")
        declined = _subset(answer.declined, by_name.keys() - set(wanted), "declined")
        held = frozenset(by_name).difference(wanted, declined)
        metrics.UNWANTED_BLOCKS.inc(len(held))
        if not wanted:
            return held
        payloads = [by_name[name] for name in wanted]
        checksums = await self._transfer(payloads, _offsets(answer.offsets, len(wanted)))
        publish = wire.PutPublish(names=pack_names(wanted), checksums=checksums)
        await self._write(wire.PutRequest(publish=publish))
        answer_names = (await self._receive("published")).published.names
        published = _subset(answer_names, wanted, "published")
        return held | frozenset(published)

    async def _transfer(self, blocks: Sequence[OutgoingBlock], offsets: Sequence[int]) -> bytes:
        """Send payloads to the store; return their checksums if they were written to its memory."""
        if offsets:
            if self._arena is None:
                raise WireError("wanted: offsets in shared memory that nobody asked for")
            payloads = [block.payload for block in blocks]
            return pack_u32(await _write_all(self._arena, offsets, payloads))
        for block in blocks:
            for piece in cut(block):
                await self._take_credit()
                await self._write(piece)
        return b""

    async def _take_credit(self) -> None:
        while self._num_credits == 0:
            await self._receive("credit")
        self._num_credits -= 1

    async def _write(self, message: wire.PutRequest | KvPiece) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._call.write(message)
        except TimeoutError:
            raise DeadlineError(f"the store took nothing for {self._stall_seconds:g} s") from None
        except asyncio.InvalidStateError as error:
            raise UnavailableError("the store ended the stream") from error

    async def _receive(self, kind: str) -> wire.PutResponse:
        """Return the next message of `kind`; count credits that come before it."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                while True:
                    response: Any = await self._call.read()
                    if response is grpc.aio.EOF:
                        raise UnavailableError("the store ended the stream")
                    if response is None:
                        raise WireError("the store sent what is no message")
                    found = response.WhichOneof("message")
                    if found == "credit":
                        total = self._num_credits + response.credit.num_chunks
                        self._num_credits = min(total, MAX_CREDITS)
                    if found == kind:
                        answer: wire.PutResponse = response
                        return answer
                    if found != "credit":
                        raise WireError(f"the store answered {found} instead of {kind}")
        except TimeoutError:
            raise DeadlineError(f"the store did not answer for {self._stall_seconds:g} s") from None


async def _write_all(
    arena: SharedArena, offsets: Sequence[int], payloads: Sequence[memoryview]
) -> list[int]:
    """Copy payloads in a thread.

    If cancelled, it returns only when the current payload is written: the places in the arena, and
    the payloads, may then be reused.
    """
    stopped = threading.Event()
    loop = asyncio.get_running_loop()
    written = loop.run_in_executor(None, arena.write_all, offsets, payloads, stopped.is_set)
    try:
        return await asyncio.shield(written)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([written])
        raise


def _offsets(data: bytes, num_names: int) -> list[int]:
    """Return one offset per name, or none at all. Raises WireError."""
    if len(data) not in (0, 8 * num_names):
        raise WireError(f"wanted: {len(data)} bytes of offsets for {num_names} names")
    offsets: list[int] = np.frombuffer(data, dtype="<u8").tolist()
    return offsets


def _subset(data: bytes, of: Collection[bytes], field: str) -> list[bytes]:
    """Return the names in `data`, each one in `of` and without repetition. Raises WireError."""
    names = unpack_names(data)
    if len(set(names)) != len(names) or not set(names) <= set(of):
        raise WireError(f"{field}: names that were not sent, or one of them twice", field=field)
    return names


def _tenant_key(block: OutgoingBlock) -> tuple[bool, str]:
    return (block.tenant is not None, block.tenant or "")
