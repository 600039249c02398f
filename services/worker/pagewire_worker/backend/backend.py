"""Interface between the model runner and an implementation of the model."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.kv.kv_cache import KvCache


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """Where the keys and values of a step lie in one cache group; see StepBatch."""

    slot_mapping: Tensor
    attention: AttentionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One flat batch of prefill chunks and decodes, without padding.

    Attributes:
        token_ids: [tokens] int64, on the device.
        positions: [tokens] int64.
        slot_mapping: [tokens] int64, block * block_size + offset of each token's KV.
        output_rows: [outputs] int64, tokens whose hidden states are returned.
        is_decode: Every sequence computes one token, and its state is returned, in their order.
        faults: [tokens] int64 zeros. The model sets the entry of a token whose keys or values are
            not all finite, and writes 0 in their place. The cache then holds finite numbers only:
            a hidden token cannot spread NaN through a weight of 0. None: no check is requested,
            and values are written as computed.
        token_types: [tokens] int64, 1 for tokens of the second text of a pair; for encoders. None:
            all are 0.
        further_groups: The cache groups behind the first, which `slot_mapping` and `attention` are
            of. They differ from it in block tables only.
        adapters: Adapters of the tokens; None if no token has one.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    output_rows: Tensor
    attention: AttentionMetadata
    is_decode: bool = False
    faults: Tensor | None = None
    token_types: Tensor | None = None
    further_groups: tuple[GroupBatch, ...] = ()
    adapters: AdapterRows | None = None

    @property
    def groups(self) -> tuple[GroupBatch, ...]:
        """All cache groups, in block table order."""
        return (GroupBatch(self.slot_mapping, self.attention), *self.further_groups)

    @property
    def output_adapters(self) -> AdapterRows | None:
        """Adapters of the tokens whose states are returned; None if no token has one."""
        own = self.adapters
        return None if own is None else AdapterRows(own.slots[self.output_rows], own.used)


@dataclass(frozen=True, slots=True)
class DecodeBounds:
    """Upper bounds of decodes: sequences at once, and tokens of one sequence."""

    max_num_seqs: int
    max_model_len: int


@runtime_checkable
class ReservingAttention(Protocol):
    """Attention with scratch memory that is allocated once."""

    def reserve(self, num_heads: int, head_dim: int, bounds: DecodeBounds) -> None:
        """Allocate the scratch memory of all steps to come.

        Args:
            bounds: Most that decodes may be.
        """
        ...


@runtime_checkable
class SharingAttention(Protocol):
    """Attention that uses the scratch memory of another one."""

    def share_scratch(self, owner: Any) -> None:
        """Use the memory of `owner`, an implementation of the same class, from now on."""
        ...


class ModelBackend(Protocol):
    """A loaded model with its KV cache."""

    @property
    def kv_cache(self) -> KvCache:
        """The blocks that the model reads and writes."""
        ...

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use; part of the numerics fingerprint."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether outputs have the same bits however a sequence is batched, chunked or resumed."""
        ...

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        ...

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states after the last norm, [outputs, hidden]."""
        ...

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones.

        The result also marks rows whose logits are not finite. `adapters` as of `logits`.
        """
        ...

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden].

        Args:
            adapters: Of the rows; None if none has one, which is so in models that take none.
        """
        ...
