"""Batches of blocks that were copied out of the pool, on their way to a store."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c, joined_crc32c
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES, KvPiece, checksum_of
from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.unsent_blocks import UnsentBlock


def cut(block: OutgoingBlock) -> Iterator[KvPiece]:
    """Yield the pieces of a block, in order, each with its checksum; data are views of the payload.

    The last piece also has the checksum of the payload.
    """
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


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Some blocks in one buffer.

    Attributes:
        payloads: uint8 [n, bytes_per_block], the first rows of `staging`.
        staging: The buffer; free again when the batch is returned.
    """

    entries: Sequence[UnsentBlock]
    payloads: Tensor
    staging: Tensor

    def blocks(self) -> list[OutgoingBlock]:
        """Return the blocks for a connector; nothing is copied."""
        rows = self.payloads.numpy()
        return [
            OutgoingBlock(entry.name, entry.tenant, memoryview(row), entry.placement)
            for entry, row in zip(self.entries, rows, strict=True)
        ]


class PutOutlet(Protocol):
    """Takes batches. No method waits."""

    @property
    def is_open(self) -> bool:
        """Whether a store takes blocks now; called in the model thread."""
        ...

    def send(self, batch: PutBatch) -> None:
        """Take a batch, from any thread; it is returned later, once."""
        ...
