"""One Get stream: loads the requested blocks and sends them, or their places in shared memory."""

import asyncio
import struct
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from pagewire_kvstore.blocks.types import BlockRecord
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.block_fetches import BlockFetches
from pagewire_kvstore.streams.convert import join_names, split_names, store_layout
from pagewire_kvstore.streams.credits import Credits
from pagewire_kvstore.streams.metrics import GET_BYTES, GET_SECONDS, GRPC, MISSING, SHARED_MEMORY
from pagewire_kvstore.streams.put_stream import Read, read_request
from pagewire_kvstore.streams.shared_holds import SharedPins
from pagewire_kvstore.tiers.memory import FoundBlock, Pin
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece, checksum_of

_MAX_MISSING = 64
"""Batch size of miss notices. The first is sent immediately, because a reader may stop there."""
_MAX_SHARED = 128
_MAX_SHARED_BYTES = 8 * 1024 * 1024
"""Most bytes of shared blocks that one message lists; it costs as much as copying some 100 KiB."""

_HEARD_SECONDS = 1.0
"""Longest wait for the first message after `open`, before the stream ends."""

Response = kv_store_pb2.GetResponse | KvPiece


class GetStream:
    """Serves one worker that loads blocks.

    Args:
        stall_seconds: Longest wait for credit, or for a block to be released.
        has_shared_memory: Whether the worker may read the store's memory in place.
    """

    def __init__(
        self,
        store: BlockStore,
        read: Read,
        stall_seconds: float,
        *,
        has_shared_memory: bool,
    ) -> None:
        self._has_shared_memory = has_shared_memory
        self._store = store
        self._read = read
        self._stall_seconds = stall_seconds
        self._credits = Credits(stall_seconds)
        self._pins = SharedPins(stall_seconds)
        self._in_shared_memory = False
        self._tier = ""
        self._missing: list[BlockName] = []
        # Blocks in shared memory whose places have not been sent to the reader.
        self._unsent: list[tuple[BlockName, list[Pin]]] = []
        self._unsent_bytes = 0
        self._has_sent_missing = False
        self._is_heard = asyncio.Event()

    async def responses(self) -> AsyncGenerator[Response, None]:
        """Yield the blocks that the first request asks for, as the reader grants credit."""
        started_at = time.monotonic()
        request = await read_request(self._read, self._stall_seconds)
        if request is None or request.WhichOneof("message") != "open":
            raise WireError("the first message of a Get is `open`")
        layout = store_layout(request.open.layout)
        names = split_names(request.open.names)
        self._in_shared_memory = self._has_shared_memory and request.open.use_shared_memory
        reader = asyncio.create_task(self._read_requests())
        fetches = BlockFetches(self._store, layout, names)
        try:
            await fetches.prepare()
            for name in names:
                if self._unsent and not fetches.is_next_in_memory:
                    yield self._shared_response()
                async with aclosing(self._block(fetches, name)) as block:
                    async for response in block:
                        yield response
            if self._unsent:
                yield self._shared_response()
            if self._missing:
                yield self._missing_response()
            await self._pins.wait_released()
            await self._wait_heard()
        finally:
            reader.cancel()
            await fetches.close()
            await self._pins.close()
        GET_SECONDS.observe(time.monotonic() - started_at)

    async def _block(
        self, fetches: BlockFetches, name: BlockName
    ) -> AsyncGenerator[Response, None]:
        stack, found = await fetches.next()
        async with stack:
            pins = self._shareable(found)
            if self._unsent and not (pins and found and found[0].tier == self._tier):
                yield self._shared_response()  # responses keep the order of the names
            if found is None:
                MISSING.inc()
                self._missing.append(name)
                if not self._has_sent_missing or len(self._missing) == _MAX_MISSING:
                    yield self._missing_response()
                return
            if self._missing:
                yield self._missing_response()
            for loaded in found:
                if loaded.tier != self._tier:
                    self._tier = loaded.tier
                    source = kv_store_pb2.GetSource(tier=loaded.tier)
                    yield kv_store_pb2.GetResponse(source=source)
            if pins:
                if self._unsent and not self._credits.has(len(pins)):
                    yield self._shared_response()
                await self._credits.take(len(pins))
                self._pins.keep(name, stack.pop_all())
                if self._queue_shared(name, pins, self._count(found, SHARED_MEMORY)):
                    yield self._shared_response()
                return
            for loaded in found:
                for piece in pieces_of(loaded.record):
                    await self._credits.take()
                    yield piece
            self._count(found, GRPC)

    def _shareable(self, found: Sequence[FoundBlock] | None) -> list[Pin]:
        """Return the pins of a block's groups; empty unless all lie in shared memory."""
        if found is None or not self._in_shared_memory:
            return []
        pins = [loaded.pin for loaded in found if loaded.pin is not None]
        return pins if len(pins) == len(found) else []

    def _queue_shared(self, name: BlockName, pins: list[Pin], num_bytes: int) -> bool:
        """Add a block to the next list of shared blocks; return whether the list is full."""
        self._unsent.append((name, pins))
        self._unsent_bytes += num_bytes
        return len(self._unsent) >= _MAX_SHARED or self._unsent_bytes >= _MAX_SHARED_BYTES

    def _shared_response(self) -> kv_store_pb2.GetResponse:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        pins = [pin for _, of_block in unsent for pin in of_block]
        shared = kv_store_pb2.GetShared(
            names=join_names([name for name, _ in unsent]),
            offsets=struct.pack(f"<{len(pins)}Q", *(pin.offset for pin in pins)),
            checksums=struct.pack(f"<{len(pins)}I", *(pin.record.checksum for pin in pins)),
        )
        return kv_store_pb2.GetResponse(shared=shared)

    def _count(self, found: Sequence[FoundBlock], transport: str) -> int:
        """Count the bytes of a block in the metrics, and return their number."""
        total = 0
        for loaded in found:
            num_bytes = memoryview(loaded.record.payload).nbytes
            GET_BYTES.labels(loaded.tier, transport).inc(num_bytes)
            total += num_bytes
        return total

    def _missing_response(self) -> kv_store_pb2.GetResponse:
        missing = kv_store_pb2.GetMissing(names=join_names(self._missing))
        self._missing = []
        self._has_sent_missing = True
        return kv_store_pb2.GetResponse(missing=missing)

    async def _wait_heard(self) -> None:
        """Wait for the reader's first message after `open`.

        When the stream ends before it, gRPC fails the reader's write, and the reader loses the
        answer of a load that found no block.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_HEARD_SECONDS, self._stall_seconds)):
                await self._is_heard.wait()

    async def _read_requests(self) -> None:
        try:
            while (request := await read_request(self._read, None)) is not None:
                self._is_heard.set()
                match request.WhichOneof("message"):
                    case "credit":
                        self._credits.grant(request.credit.num_chunks)
                    case "release":
                        await self._pins.release(split_names(request.release.names))
                    case _:
                        raise WireError("after `open` a reader grants credit and releases blocks")
        except PagewireError as error:
            self._credits.end(error)
            self._pins.end(error)
            return
        finally:
            self._is_heard.set()
        self._credits.end(WireError("the reader ended its side before it granted enough credit"))
        self._pins.end(None)


def pieces_of(record: BlockRecord) -> Iterator[KvPiece]:
    """Yield the chunks of a block in order; their data are views of its payload.

    The last chunk carries the checksum that the sender of the block gave. The bytes of a block in
    one chunk are not read: the chunk's checksum is derived from the block's, so that the reader
    finds damage done in the store.
    """
    key, payload = record.key, memoryview(record.payload).cast("B")
    for offset in range(0, payload.nbytes, MAX_DATA_BYTES):
        data = payload[offset : offset + MAX_DATA_BYTES]
        is_last = offset + data.nbytes == payload.nbytes
        piece = KvPiece(
            name=key.name,
            group=key.group,
            offset=offset,
            is_last=is_last,
            data=data,
            payload_checksum=record.checksum if is_last else None,
        )
        if data.nbytes == payload.nbytes:
            piece = replace(piece, checksum=checksum_of(piece, record.checksum))
        yield piece
