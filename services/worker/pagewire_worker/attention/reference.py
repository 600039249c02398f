"""Attention in the plainest form: one sequence at a time, in float32. Tests compare with it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.backend.attention import (
    AttentionKind,
    AttentionMetadata,
    StepAttention,
    empty_output,
)
from pagewire_worker.kv.kv_cache import LayerCache


class ReferenceAttention:
    """softmax(q k^T / sqrt(d) + causal mask) v, sequence by sequence, with all options."""

    name = "reference"
    is_batch_invariant = False
    takes_fp8_cache = False

    def __init__(self, kind: AttentionKind) -> None:
        self._kind = kind

    def prepare(self, metadata: AttentionMetadata) -> StepAttention:
        """Keep the metadata; the layers share no other work."""
        return _ReferenceStep(metadata, self._kind)


@dataclass(frozen=True, slots=True)
class _ReferenceStep:
    metadata: AttentionMetadata
    kind: AttentionKind

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        output = empty_output(query, cache)
        starts = self.metadata.query_starts.tolist()
        first_visible = self.metadata.first_visible(self.kind.window).tolist()
        for index, seq_len in enumerate(self.metadata.seq_lens.tolist()):
            begin, end = starts[index], starts[index + 1]
            first_block = first_visible[index] // cache.block_size
            num_blocks = -(-seq_len // cache.block_size)
            blocks = torch.from_numpy(self.metadata.block_tables[index, first_block:num_blocks])
            key, value = cache.gather(blocks.to(query.device))
            offset = first_block * cache.block_size
            visible = slice(first_visible[index] - offset, seq_len - offset)
            given = query[begin:end], key[visible], value[visible]
            output[begin:end] = _attend(*given, self.kind, sinks)
        return output


def _attend(
    query: Tensor, key: Tensor, value: Tensor, kind: AttentionKind, sinks: Tensor | None
) -> Tensor:
    """Attend from the last positions of one sequence.

    Args:
        query: [n, heads, d], the last n positions.
        key, value: [length, kv_heads, d of each], the last `length` positions.
        sinks: float32 [heads], or None.
    """
    num_new, num_heads, head_dim = query.shape
    length, num_kv_heads, _ = key.shape
    group = num_heads // num_kv_heads
    wide_query = query.float().view(num_new, num_kv_heads, group, head_dim)
    scores = torch.einsum("nkgd,lkd->kgnl", wide_query, key.float())
    scores = scores * (head_dim**-0.5 if kind.scale is None else kind.scale)
    if kind.softcap is not None:
        scores = kind.softcap * torch.tanh(scores / kind.softcap)
    positions = torch.arange(length, device=query.device)
    own = positions[length - num_new :, None]
    is_hidden = positions[None, :] > own
    if kind.window is not None:
        is_hidden |= positions[None, :] <= own - kind.window
    scores = scores.masked_fill(is_hidden, float("-inf"))
    if sinks is not None:
        column = sinks.view(num_kv_heads, group, 1, 1).expand(-1, -1, num_new, 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = scores.softmax(-1)[..., :length]
    attended = torch.einsum("kgnl,lkd->nkgd", weights, value.float())
    return attended.reshape(num_new, num_heads, -1).to(query.dtype)
