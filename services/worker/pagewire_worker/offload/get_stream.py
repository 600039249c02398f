"""One Get stream of a KV store: requests blocks in order, and verifies each one."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc.aio
import numpy as np

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2 as wire
from pagewire_shared.errors import UnavailableError, WireError
from pagewire_shared.kv.arrays import pack_names, unpack_names
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import LoadedBlock
from pagewire_worker.offload.incoming_blocks import IncomingBlocks
from pagewire_worker.offload.shared_arena import SharedArena

WINDOW_BYTES = 32 * 1024 * 1024
MAX_WINDOW_CHUNKS = 1024
SHARED_WINDOW_BYTES = 64 * 1024 * 1024
"""Bytes that a store pins for one stream in shared memory, where no bytes are under way."""
INLINE_BYTES = 1024 * 1024
"""Copied and verified in less time than another thread takes to start."""


def blocks_per_stream(bytes_per_block: int, *, in_shared_memory: bool = False) -> int:
    """Return the number of blocks to request on one stream: a window of chunks, at least one block.

    A long load takes several streams, one after the other. A stream gets all its credits at the
    start: gRPC fails a write to a stream that the store has ended, and with it the reads of
    messages that are still unread.
    """
    window_bytes = SHARED_WINDOW_BYTES if in_shared_memory else WINDOW_BYTES
    chunks = min(MAX_WINDOW_CHUNKS, window_bytes // min(bytes_per_block, MAX_DATA_BYTES))
    return max(1, chunks // _chunks_per_block(bytes_per_block))


async def read_blocks(
    call: "grpc.aio.StreamStreamCall[Any, Any]",
    layout: layout_pb2.KvLayout,
    names: Sequence[bytes],
    opening: AbstractAsyncContextManager[None],
    arena: SharedArena | None = None,
) -> AsyncGenerator[LoadedBlock, None]:
    """Yield the blocks `names` from a new stream until one is missing or damaged.

    Blocks in the store's memory, `arena`, are copied out of it; the end of the stream releases
    them.

    Raises:
        WireError: The store broke the contract.
        DeadlineError: The store did not take the request in time, as `opening` defines.
        PagewireError: The stream ended early.
        grpc.RpcError: The stream failed.
    """
    bytes_per_block = layout.groups[0].bytes_per_block
    incoming = IncomingBlocks(names, bytes_per_block)
    credit = wire.GetCredit(num_chunks=len(names) * _chunks_per_block(bytes_per_block))
    request = wire.GetOpen(
        layout=layout, names=pack_names(names), use_shared_memory=arena is not None
    )
    try:
        async with opening:
            await call.write(wire.GetRequest(open=request))
            await call.write(wire.GetRequest(credit=credit))
        while not incoming.is_over:
            message: Any = await call.read()
            if isinstance(message, KvPiece):
                block = incoming.add_piece(message)
                if block is not None:
                    yield block
            elif _is_shared(message) and arena is not None:
                for name, offset, checksum in _places(message.shared):
                    payload = await _read_shared(arena, offset, bytes_per_block, checksum)
                    block = incoming.add_whole(name, payload)
                    if block is None:
                        break
                    yield block
            else:
                _take(message, incoming)
        if incoming.damage is not None:
            metrics.DAMAGED_BLOCKS.labels(incoming.damage).inc()
    except asyncio.InvalidStateError as error:
        raise UnavailableError("the store ended the stream") from error
    finally:
        call.cancel()


def _chunks_per_block(bytes_per_block: int) -> int:
    return -(-bytes_per_block // MAX_DATA_BYTES)


def _is_shared(message: Any) -> bool:
    is_message = isinstance(message, wire.GetResponse)
    return is_message and message.WhichOneof("message") == "shared"


def _places(shared: wire.GetShared) -> Iterator[tuple[bytes, int, int]]:
    """Return name, offset and checksum of blocks of one group. Raises WireError."""
    names = unpack_names(shared.names)
    if len(shared.offsets) != 8 * len(names) or len(shared.checksums) != 4 * len(names):
        raise WireError("shared: a block has one group")
    offsets = np.frombuffer(shared.offsets, dtype="<u8").tolist()
    checksums = np.frombuffer(shared.checksums, dtype="<u4").tolist()
    return zip(names, offsets, checksums, strict=True)


async def _read_shared(
    arena: SharedArena, offset: int, num_bytes: int, checksum: int
) -> memoryview | None:
    """Return a verified copy of a block in shared memory; None when it is damaged."""
    if num_bytes > INLINE_BYTES:
        return await asyncio.to_thread(arena.read, offset, num_bytes, checksum)
    await asyncio.sleep(0)  # one message lists many blocks
    return arena.read(offset, num_bytes, checksum)


def _take(message: Any, incoming: IncomingBlocks) -> None:
    if message is grpc.aio.EOF:
        raise UnavailableError("the store ended the stream")
    if message is None:
        raise WireError("the store sent what is no message in a load")
    kind = message.WhichOneof("message")
    if kind == "missing":
        incoming.add_missing(unpack_names(message.missing.names))
    elif kind == "source":
        incoming.set_tier(message.source.tier)
    else:
        raise WireError(f"the store sent {kind} in a load")
