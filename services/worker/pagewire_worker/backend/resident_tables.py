"""Keeps the block tables of all slots on the device; a step sends only changed tables."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.device_copy import to_device


@dataclass(frozen=True, slots=True)
class ResidentRows:
    """The block tables of some sequences.

    Attributes:
        tables: [num_slots, max_blocks] int32 on the device, of all slots.
        slots: [num_seqs], the slot of each sequence.
        index: The same on the device.
    """

    tables: Tensor
    slots: Int64Array
    index: Tensor

    def select(self, num_blocks: int) -> Tensor:
        """Return the first `num_blocks` blocks of each sequence, [num_seqs, num_blocks] int32."""
        return self.tables[:, :num_blocks].index_select(0, self.index)


class ResidentTables:
    """A copy of the block tables on the device.

    Args:
        host: [groups, num_slots, max_blocks], the tables that are copied; changed by their owner.

    Attributes:
        tables: [groups, num_slots, max_blocks] int32 on the device; equal to `host` after `update`.
    """

    def __init__(self, host: Int64Array, device: torch.device) -> None:
        self._host = host
        self._changed: set[int] = set()
        self.tables = torch.zeros(host.shape, dtype=torch.int32, device=device)

    def rows(self, group: int, slots: Int64Array, index: Tensor) -> ResidentRows:
        """Return the tables of `slots` [num_seqs], on the device `index`, in a cache group."""
        return ResidentRows(self.tables[group], slots, index)

    def changed(self, slots: Int64Array | list[int]) -> None:
        """Mark the tables of `slots` as changed."""
        self._changed.update(map(int, slots))

    def update(self, num_blocks: Int64Array) -> None:
        """Copy changed tables; `num_blocks` [num_slots] is the number of blocks read of each."""
        if not self._changed:
            return
        slots = np.array(sorted(self._changed), dtype=np.int64)
        self._changed.clear()
        width = int(num_blocks[slots].max())
        if width == 0:
            return
        rows = self._host[:, slots, :width].astype(np.int32)
        device = self.tables.device
        index = to_device(slots, device)
        self.tables[:, :, :width].index_copy_(1, index, to_device(rows, device))
