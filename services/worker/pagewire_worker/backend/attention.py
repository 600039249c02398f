"""Interface of an attention implementation: its inputs, and the function that it provides."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pagewire_worker.backend.resident_tables import ResidentRows
from pagewire_worker.kv.kv_cache import LayerCache

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """The attention of all layers of a model: softmax(softcap(q k^T * scale) + mask) v.

    Attributes:
        window: Positions that a token attends to, itself included; None for all.
        scale: Factor of the scores; None for 1 / sqrt(head_dim).
        softcap: c in c * tanh(scores / c), as in Gemma 2; None for plain scores.
        has_sinks: The softmax of each head has one more score, without a position and a value: its
            sink (OpenAI, 2025).
    """

    window: int | None = None
    scale: float | None = None
    softcap: float | None = None
    has_sinks: bool = False


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """The sequences of one flat batch in the cache; small arrays stay on the host.

    Attributes:
        query_starts: [num_seqs + 1], begin and end of the tokens of each sequence.
        seq_lens: [num_seqs], tokens of each sequence in the cache after this step has written.
        block_tables: [num_seqs, max_blocks], padded with block 0.
        resident: The same tables on the device; None if they are on the host only.
    """

    query_starts: Int64Array
    seq_lens: Int64Array
    block_tables: Int64Array
    resident: ResidentRows | None = None

    def first_visible(self, window: int | None) -> Int64Array:
        """Return the first position that any token of each sequence attends to, [num_seqs].

        The token at position p sees the last `window` positions, p included, or all for None.
        Earlier blocks may belong to other sequences.
        """
        if window is None:
            return np.zeros_like(self.seq_lens)
        first: Int64Array = np.maximum(self.seq_lens - self.query_lens + 1 - window, 0)
        return first

    @property
    def query_lens(self) -> Int64Array:
        """Tokens of each sequence in this step, [num_seqs]."""
        return np.diff(self.query_starts)


class StepAttention(Protocol):
    """Attention prepared for one step, called once per layer."""

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        """Attend causally over the cache, within the window of the model if there is one.

        Args:
            query: [tokens, heads, head_dim], rotated.
            cache: Keys and values of the layer, with those of this step.
            sinks: Of a kind that has them, float32 [heads]; else None.

        Returns:
            [tokens, heads, numbers of a value] of the type of `query`.
        """
        ...


def empty_output(query: Tensor, cache: LayerCache) -> Tensor:
    """Return memory for what heads see: [tokens, heads, numbers of a value]."""
    return query.new_empty((*query.shape[:2], cache.value_dim))


class AttentionBackend(Protocol):
    """One implementation of attention."""

    @property
    def name(self) -> str:
        """Name of the implementation; part of the numerics fingerprint."""
        ...

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a token gets the same bits as a decode and in any chunk of any batch."""
        ...

    @property
    def takes_fp8_cache(self) -> bool:
        """Whether keys and values may be 8-bit floats, whatever the type of the queries."""
        ...

    def prepare(self, metadata: AttentionMetadata) -> StepAttention:
        """Do the work once per step that all layers share."""
        ...
