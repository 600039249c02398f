"""One Get stream: stored blocks to messages. Keeps nothing."""

import asyncio
import struct
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.block_fetches import BlockFetches
from pagewire_kvstore.streams.block_names import join_names, split_names
from pagewire_kvstore.streams.block_pieces import pieces_of
from pagewire_kvstore.streams.credits import Credits
from pagewire_kvstore.streams.layout_convert import store_layout
from pagewire_kvstore.streams.metrics import GET_BYTES, GET_SECONDS, GRPC, MISSING, SHARED_MEMORY
from pagewire_kvstore.streams.put_stream import Read, read_request
from pagewire_kvstore.streams.shared_holds import SharedHolds
from pagewire_kvstore.tiers.loaded import FoundBlock
from pagewire_kvstore.tiers.memory import Hold
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.chunk_convert import KvPiece

_MAX_MISSING = 64
"""Most misses told at once; the first is told at once, for a reader may stop there."""
_MAX_SHARED = 128
_MAX_SHARED_BYTES = 8 * 1024 * 1024
"""Blocks in shared memory that one message tells of; it costs as much as copying some 100 KiB."""

_HEARD_SECONDS = 1.0
"""How long a stream may wait for the first message after `open` before it ends."""

Response = kv_store_pb2.GetResponse | KvPiece


class GetStream:
    """Serves one worker that loads blocks.

    Args:
        store: Where the blocks are.
        read: Returns its next message.
        stall_seconds: Longest wait for credit, or for a block to be released.
        has_shared_memory: Whether it may look into the store's memory.
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
        self._holds = SharedHolds(stall_seconds)
        self._in_shared_memory = False
        self._tier = ""
        self._missing: list[BlockName] = []
        # Blocks in shared memory that the reader is to be told of.
        self._untold: list[tuple[BlockName, list[Hold]]] = []
        self._untold_bytes = 0
        self._has_told_missing = False
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
                if self._untold and not fetches.is_next_in_memory:
                    yield self._told_shared()
                async with aclosing(self._block(fetches, name)) as block:
                    async for response in block:
                        yield response
            if self._untold:
                yield self._told_shared()
            if self._missing:
                yield self._told_missing()
            await self._holds.wait_released()
            await self._wait_heard()
        finally:
            reader.cancel()
            await fetches.close()
            await self._holds.close()
        GET_SECONDS.observe(time.monotonic() - started_at)

    async def _block(
        self, fetches: BlockFetches, name: BlockName
    ) -> AsyncGenerator[Response, None]:
        stack, found = await fetches.next()
        async with stack:
            holds = self._shareable(found)
            if self._untold and not (holds and found and found[0].tier == self._tier):
                yield self._told_shared()  # before anything else
            if found is None:
                MISSING.inc()
                self._missing.append(name)
                if not self._has_told_missing or len(self._missing) == _MAX_MISSING:
                    yield self._told_missing()
                return
            if self._missing:
                yield self._told_missing()
            for loaded in found:
                if loaded.tier != self._tier:
                    self._tier = loaded.tier
                    source = kv_store_pb2.GetSource(tier=loaded.tier)
                    yield kv_store_pb2.GetResponse(source=source)
            if holds:
                if self._untold and not self._credits.has(len(holds)):
                    yield self._told_shared()
                await self._credits.take(len(holds))
                self._holds.keep(name, stack.pop_all())
                if self._note_shared(name, holds, self._count(found, SHARED_MEMORY)):
                    yield self._told_shared()
                return
            for loaded in found:
                for piece in pieces_of(loaded.record):
                    await self._credits.take()
                    yield piece
            self._count(found, GRPC)

    def _shareable(self, found: Sequence[FoundBlock] | None) -> list[Hold]:
        """Return where the groups of a block lie in shared memory; nothing when it cannot be."""
        if found is None or not self._in_shared_memory:
            return []
        holds = [loaded.hold for loaded in found if loaded.hold is not None]
        return holds if len(holds) == len(found) else []

    def _note_shared(self, name: BlockName, holds: list[Hold], num_bytes: int) -> bool:
        """Note that the reader is to be told of a block; return whether that is due."""
        self._untold.append((name, holds))
        self._untold_bytes += num_bytes
        return len(self._untold) >= _MAX_SHARED or self._untold_bytes >= _MAX_SHARED_BYTES

    def _told_shared(self) -> kv_store_pb2.GetResponse:
        untold, self._untold, self._untold_bytes = self._untold, [], 0
        holds = [hold for _, held in untold for hold in held]
        shared = kv_store_pb2.GetShared(
            names=join_names([name for name, _ in untold]),
            offsets=struct.pack(f"<{len(holds)}Q", *(hold.offset for hold in holds)),
            checksums=struct.pack(f"<{len(holds)}I", *(hold.record.checksum for hold in holds)),
        )
        return kv_store_pb2.GetResponse(shared=shared)

    def _count(self, found: Sequence[FoundBlock], transport: str) -> int:
        """Count the bytes of a block, and return how many these are."""
        total = 0
        for loaded in found:
            num_bytes = memoryview(loaded.record.payload).nbytes
            GET_BYTES.labels(loaded.tier, transport).inc(num_bytes)
            total += num_bytes
        return total

    def _told_missing(self) -> kv_store_pb2.GetResponse:
        missing = kv_store_pb2.GetMissing(names=join_names(self._missing))
        self._missing = []
        self._has_told_missing = True
        return kv_store_pb2.GetResponse(missing=missing)

    async def _wait_heard(self) -> None:
        """Let the reader's first credit come: gRPC fails its write, and with it the answer of a
        load that found nothing, when the stream has ended by then."""
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
                        await self._holds.release(split_names(request.release.names))
                    case _:
                        raise WireError("after `open` a reader grants credit and releases blocks")
        except PagewireError as error:
            self._credits.end(error)
            self._holds.end(error)
            return
        finally:
            self._is_heard.set()
        self._credits.end(WireError("the reader ended its side before it granted enough credit"))
        self._holds.end(None)
