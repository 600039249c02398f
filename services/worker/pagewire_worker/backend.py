"""The seam between the executor and whatever computes the model. Owns no computation."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pagewire_worker.attention.base import AttentionMetadata
from pagewire_worker.kv_cache import KvCache


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One flat batch of prefill chunks and decodes, without padding.

    Attributes:
        token_ids: [tokens] int64, on the device.
        positions: [tokens] int64.
        slot_mapping: [tokens] int64, block * block_size + offset where each token's KV goes.
        sample_rows: [samples] int64, tokens whose logits are wanted.
        attention: Where the sequences lie.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    sample_rows: Tensor
    attention: AttentionMetadata


class ModelBackend(Protocol):
    """A loaded model with its KV cache."""

    @property
    def kv_cache(self) -> KvCache:
        """The blocks it reads and writes."""
        ...

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use; part of the numerics fingerprint."""
        ...

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return logits [samples, vocab] in float32, on the device."""
        ...
