"""One rank's model over its part of the KV cache; the ranks call the same methods together."""

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.backend.collectives import Collectives
from pagewire_worker.parallel.messages import Array
from pagewire_worker.parallel.micro_batches import joined, num_micro_batches, split_batch


class RankModel:
    """Makes the results of the ranks' models those of the whole model.

    Args:
        model: Of this rank.
        num_tokens: Tokens of the whole vocabulary.
    """

    def __init__(self, model: ModelBackend, collectives: Collectives, num_tokens: int) -> None:
        self.model = model
        self._collectives = collectives
        self._num_tokens = num_tokens
        self._topology = collectives.topology
        self._width = -(-num_tokens // self._topology.tp_size)

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step; the hidden states [outputs, hidden] are the same in a stage's ranks.

        Those of a stage before the last mean nothing.
        """
        # Where rows are not independent, those of micro-batches would have other bits.
        stages = self._topology.num_stages if self.model.is_exact else 1
        parts = split_batch(batch, num_micro_batches(len(batch.token_ids), stages))
        states = [self.model.forward(part.batch) for part in parts]
        if not self._topology.is_last:
            return states[0]
        faults = batch.faults
        if faults is not None and self._topology.tp_size > 1:
            # A head whose keys are not finite is that of one rank.
            faults.copy_(self._collectives.all_reduce(faults.float()) > 0)
        return joined(parts, states)

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return the logits of the whole vocabulary, [rows, vocab] in float32."""
        own = self.model.logits(hidden, adapters)
        if self._topology.tp_size == 1:
            return own
        padded = functional.pad(own, (0, self._width - own.shape[1]))
        return self._collectives.all_gather(padded, 1)[:, : self._num_tokens]

    def copy_blocks(self, sources: Tensor, destinations: Tensor) -> None:
        """Copy whole blocks of this rank's cache; both [n] int64."""
        self.model.kv_cache.copy_blocks(sources, destinations)


def as_bits(hidden: Tensor) -> Array:
    """Return hidden states in a type that messages have: those of 16 bits as integers."""
    found: Array = (hidden if hidden.dtype == torch.float32 else hidden.view(torch.int16)).numpy()
    return found


def from_bits(array: Array, dtype: torch.dtype) -> Tensor:
    """Return the hidden states of `as_bits`, of type `dtype`."""
    return torch.tensor(array).view(dtype)
