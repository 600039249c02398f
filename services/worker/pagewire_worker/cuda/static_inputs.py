"""Input tensors of captured decodes: they keep their addresses and are filled before each step."""

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionMetadata, Int64Array
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.device_copy import rows_to_device, to_device
from pagewire_worker.triton_kernels.decode_attention import first_splits
from pagewire_worker.triton_kernels.paged_sequences import PagedSequences

NOWHERE = -1
"""Slot of a padding row, whose keys and values are not written."""


class StaticInputs:
    """Inputs of up to `max_num_seqs` decodes; smaller batches use the first rows.

    Args:
        max_blocks: Blocks of the longest sequence.
    """

    def __init__(self, max_num_seqs: int, max_blocks: int, device: torch.device) -> None:
        self._device = device
        self._token_ids, self._positions = torch.zeros(
            (2, max_num_seqs), dtype=torch.int64, device=device
        )
        self._slot_mapping = torch.full_like(self._positions, NOWHERE)
        self._rows = torch.arange(max_num_seqs + 1, dtype=torch.int64, device=device)
        self._seq_lens = torch.zeros(max_num_seqs, dtype=torch.int32, device=device)
        self._first_splits = torch.zeros_like(self._seq_lens)
        self._faults = torch.zeros_like(self._positions)
        self._query_starts = self._rows.to(torch.int32)
        self._tables = torch.zeros((max_num_seqs, max_blocks), dtype=torch.int32, device=device)

    def sequences(self, size: int) -> PagedSequences:
        """Return the arrays of the first `size` sequences."""
        return PagedSequences(
            self._query_starts[: size + 1], self._seq_lens[:size], self._tables[:size]
        )

    def first_splits(self, size: int) -> Tensor:
        """Return the first split of each of the first `size` sequences, [size] int32."""
        return self._first_splits[:size]

    def batch(self, size: int) -> StepBatch:
        """Return the batch of the first `size` rows, with empty attention metadata."""
        nothing = np.zeros(0, dtype=np.int64)
        return StepBatch(
            token_ids=self._token_ids[:size],
            positions=self._positions[:size],
            slot_mapping=self._slot_mapping[:size],
            output_rows=self._rows[:size],
            attention=AttentionMetadata(nothing, nothing, nothing.reshape(0, 0)),
            is_decode=True,
            faults=self._faults[:size],
        )

    def fill(self, batch: StepBatch, size: int, num_splits: Int64Array) -> None:
        """Copy `batch`, whose block tables are resident, to the first rows of `size`.

        The other rows become padding. Each sequence reads `num_splits` [num_seqs] splits.
        """
        resident = batch.attention.resident
        assert resident is not None
        num_seqs = len(resident.slots)
        # Padding rows keep the tokens and positions of an earlier step: any valid ones will do.
        self._token_ids[:num_seqs].copy_(batch.token_ids)
        self._positions[:num_seqs].copy_(batch.positions)
        self._slot_mapping[:num_seqs].copy_(batch.slot_mapping)
        self._slot_mapping[num_seqs:size].fill_(NOWHERE)
        seq_lens, firsts = np.zeros((2, size), dtype=np.int32)
        seq_lens[:num_seqs] = batch.attention.seq_lens
        firsts[:num_seqs] = first_splits(num_splits)
        seq_lens_there, firsts_there = rows_to_device((seq_lens, firsts), self._device)
        self._seq_lens[:size].copy_(seq_lens_there)
        self._first_splits[:size].copy_(firsts_there)
        index = to_device(resident.slots, self._device)
        torch.index_select(resident.tables, 0, index, out=self._tables[:num_seqs])

    def clear(self, size: int) -> None:
        """Make the first `size` rows padding."""
        self._slot_mapping[:size].fill_(NOWHERE)
        self._seq_lens[:size].zero_()
        for tensor in (self._token_ids, self._positions, self._tables):
            tensor[:size].zero_()
