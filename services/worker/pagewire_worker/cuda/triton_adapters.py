"""Adds the adapters of a step by Triton kernels."""

import torch
from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.models.adapter_tensors import SlotTensors
from pagewire_worker.triton_kernels.low_rank import TILE_ROWS, lower_rank, raise_rank
from pagewire_worker.triton_kernels.route_tokens import SortedRows, sort_rows


class TritonSum:
    """Adds adapters; nothing comes back to the host, so that a graph can hold it."""

    def prepare(self, rows: AdapterRows, num_slots: int) -> SortedRows:
        """Sort the tokens by adapter slot."""
        chosen = rows.slots.to(torch.int32).unsqueeze(1)
        return sort_rows(chosen, num_slots, TILE_ROWS)

    def add(self, y: Tensor, x: Tensor, rows: SortedRows, tensors: SlotTensors) -> Tensor:
        """Return y [tokens, outputs] with the adapters of `rows` for the inputs x added."""
        sizes = tuple(end - begin for begin, end in tensors.bounds)
        low = lower_rank(
            x.contiguous(), tensors.down, tensors.scalings, tensors.ranks, rows, len(sizes)
        )
        raise_rank(y, low, tensors.up, tensors.ranks, rows, sizes)
        return y
