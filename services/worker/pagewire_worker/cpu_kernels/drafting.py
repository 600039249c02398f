"""Arguments of the loop of a draft model (kernels/drafts.cpp)."""

import ctypes
from typing import Any, Final

import numpy as np
import torch

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.packed_layers import FusedDecoder
from pagewire_worker.cpu_kernels.packing import PackedWeights
from pagewire_worker.cpu_kernels.sampler import choices_of
from pagewire_worker.sampling.sampling_table import SamplingRows

MOST_SORTED: Final = 1024
"""Likeliest tokens that filters look at."""

_FILTER = np.dtype(abi.DraftFilterArgs)


class DraftArrays:
    """The arrays of drafts of `batch`, held while the kernels use them.

    Args:
        batch: One token of each sequence. Its arrays go on with the drafts.
        rows: Of its sequences, without rules.
        prepared: Memory for states of its sequences.
    """

    def __init__(
        self,
        *,
        decoder: FusedDecoder,
        vocabulary: PackedWeights,
        batch: abi.Batch,
        rows: SamplingRows,
        prepared: int | None,
    ) -> None:
        plan, num_seqs = decoder.plan, batch.num_seqs
        which = np.flatnonzero(rows.temperature > 0)
        self._choices = choices_of(rows, which)
        self._filters: Any = np.zeros(len(which), dtype=_FILTER)
        if len(which):
            for name in ("top_k", "min_p", "top_p"):
                self._filters[name] = getattr(rows, name)[which]
        most_sorted = min(MOST_SORTED, plan.vocab_size)
        is_plain = rows.is_plain and plan.logits.is_plain
        num_logits = 0 if is_plain else num_seqs * vocabulary.storage.num_outputs
        self._numbers = torch.empty(most_sorted + num_logits, dtype=torch.float32)
        self._states = torch.empty((num_seqs, plan.hidden_size), dtype=decoder.dtype)
        address = self._numbers.data_ptr()
        self.structure = abi.DraftingArgs(
            vocabulary=ctypes.pointer(vocabulary.structure()),
            vocab_size=plan.vocab_size,
            num_choices=len(which),
            choices=self._choices.ctypes.data,
            filters=self._filters.ctypes.data,
            most_sorted=most_sorted,
            sorted=address,
            states=self._states.data_ptr(),
            prepared=prepared,
            logits=address + self._numbers.element_size() * most_sorted,
            places=abi.DraftPlaces(
                batch.token_ids, batch.positions, batch.slot_mapping, batch.seq_lens
            ),
            divisor=plan.logits.divisor,
            softcap=plan.logits.softcap or 0.0,
        )
