"""Blocks copied out of the pool on their way to a store. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.unsent_blocks import UnsentBlock


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Some blocks in one buffer.

    Attributes:
        entries: The blocks, n of them.
        payloads: uint8 [n, bytes_per_block], the first rows of `staging`.
        staging: The buffer; free again when the batch is settled.
    """

    entries: Sequence[UnsentBlock]
    payloads: Tensor
    staging: Tensor

    def blocks(self) -> list[OutgoingBlock]:
        """Return the blocks for a connector; nothing is copied."""
        rows = self.payloads.numpy()
        return [
            OutgoingBlock(entry.name, entry.tenant, memoryview(row))
            for entry, row in zip(self.entries, rows, strict=True)
        ]


class PutOutlet(Protocol):
    """Where batches go. Neither waits."""

    @property
    def is_open(self) -> bool:
        """Whether there is a store that takes blocks at the moment; asked in the model thread."""
        ...

    def send(self, batch: PutBatch) -> None:
        """Take a batch, from any thread; it is settled later, once."""
        ...
