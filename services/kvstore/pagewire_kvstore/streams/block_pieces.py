"""Cuts a stored block into the chunks that a Get sends."""

from collections.abc import Iterator
from dataclasses import replace

from pagewire_kvstore.blocks.types import BlockRecord
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece, checksum_of


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
