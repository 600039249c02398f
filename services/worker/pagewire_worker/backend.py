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
        output_rows: [outputs] int64, tokens whose hidden states are wanted.
        attention: Where the sequences lie.
        is_decode: Every sequence computes one token, and its state is wanted, in their order.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    output_rows: Tensor
    attention: AttentionMetadata
    is_decode: bool = False


@dataclass(frozen=True, slots=True)
class DecodeBounds:
    """Most that decodes may be: sequences at once, and tokens of one."""

    max_num_seqs: int
    max_model_len: int


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

    @property
    def is_exact(self) -> bool:
        """Whether outputs are the same bits however a sequence is batched, chunked or resumed."""
        ...

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        ...

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states after the last norm, [outputs, hidden]."""
        ...

    def greedy(self, hidden: Tensor) -> Tensor:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        ...
