"""Payloads cut into pieces with checksums. Pure; looks at every byte once."""

from collections.abc import Iterator
from dataclasses import replace

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c, joined_crc32c
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece, checksum_of
from pagewire_worker.offload.connector import OutgoingBlock


def cut(block: OutgoingBlock) -> Iterator[KvPiece]:
    """Yield the pieces of a block, in order, each with its checksum and the last one with the
    payload's; their data are views of the payload."""
    size = len(block.payload)
    payload_checksum = 0
    for offset in range(0, size, MAX_DATA_BYTES):
        data = block.payload[offset : offset + MAX_DATA_BYTES]
        data_checksum = crc32c(data)
        payload_checksum = joined_crc32c(payload_checksum, data_checksum, len(data))
        is_last = offset + len(data) == size
        piece = KvPiece(
            name=BlockName(block.name),
            group=0,
            offset=offset,
            is_last=is_last,
            data=data,
            payload_checksum=payload_checksum if is_last else None,
        )
        yield replace(piece, checksum=checksum_of(piece, data_checksum))
