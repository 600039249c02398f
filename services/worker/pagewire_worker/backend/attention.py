"""What an attention implementation is given and what it must do. Owns no computation."""

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
    """How the layers of a model attend: softmax(softcap(q k^T * scale) + mask) v.

    Attributes:
        window: Positions that a token attends to, itself included; None for all.
        scale: Factor of the scores; None for 1 / sqrt(head_dim).
        softcap: c in c * tanh(scores / c), as in Gemma 2; None for plain scores.
    """

    window: int | None = None
    scale: float | None = None
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """Where the sequences of one flat batch lie; the small arrays stay on the host.

    Attributes:
        query_starts: [num_seqs + 1], where the tokens of each sequence begin and end.
        seq_lens: [num_seqs], tokens of each sequence in the cache once this step has written.
        block_tables: [num_seqs, max_blocks], padded with block 0.
        resident: The same on the device; None where they are only here.
    """

    query_starts: Int64Array
    seq_lens: Int64Array
    block_tables: Int64Array
    resident: ResidentRows | None = None

    def first_visible(self, window: int | None) -> Int64Array:
        """Return the first position that any token of each sequence attends to, [num_seqs].

        The token at position p sees the last `window` positions, p included, or all for None.
        Blocks before it may belong to other sequences by now.
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

    def __call__(self, query: Tensor, cache: LayerCache) -> Tensor:
        """Attend causally over the cache, within the window of the model if it has one.

        Args:
            query: [tokens, heads, head_dim], rotated.
            cache: Keys and values of the layer, those of this step already written.

        Returns:
            [tokens, heads, head_dim] of the type of `query`.
        """
        ...


class AttentionBackend(Protocol):
    """One implementation of attention."""

    @property
    def name(self) -> str:
        """Part of the numerics fingerprint."""
        ...

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a token gets the same bits as a decode and in any chunk, whatever else there
        is."""
        ...

    @property
    def takes_fp8_cache(self) -> bool:
        """Whether keys and values may be 8-bit floats, whatever the type of the queries."""
        ...

    def prepare(self, metadata: AttentionMetadata) -> StepAttention:
        """Do once per step what all layers share."""
        ...
