"""Attention by torch's fused kernel over gathered blocks.

Sequences with one new token are computed together, in groups of similar length. The query heads of
a KV head become query rows: on CPUs this is ten times faster than the kernel's own grouped-query
mode. Longer chunks are computed one by one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pagewire_worker.backend.attention import (
    AttentionMetadata,
    Int64Array,
    StepAttention,
    empty_output,
)
from pagewire_worker.kv.kv_cache import LayerCache

# Sequences share a group if the longest is at most this much longer than the shortest: padding
# costs bandwidth, another group costs a kernel launch per layer.
GROUP_RATIO = 1.25
GROUP_SLACK_TOKENS = 64
MAX_GROUP_TOKENS = 64 * 1024


class SdpaAttention:
    """torch.nn.functional.scaled_dot_product_attention."""

    name = "sdpa"
    is_batch_invariant = False
    takes_fp8_cache = False

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        block_size: int,
        scale: float | None = None,
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._block_size = block_size
        self._scale = scale

    def prepare(self, metadata: AttentionMetadata) -> StepAttention:
        """Build indices and masks, once for all layers."""
        is_decode = metadata.query_lens == 1
        decodes = np.flatnonzero(is_decode)
        groups = [
            self._decode_group(metadata, members)
            for members in group_by_length(decodes, metadata.seq_lens)
        ]
        chunks = [self._chunk(metadata, int(index)) for index in np.flatnonzero(~is_decode)]
        return _SdpaStep(groups, chunks, self._scale)

    def _decode_group(self, metadata: AttentionMetadata, members: Int64Array) -> "_DecodeGroup":
        lengths = metadata.seq_lens[members]
        longest = int(lengths.max())
        num_blocks = -(-longest // self._block_size)
        bias = None
        if int(lengths.min()) < longest:
            is_padding = np.arange(longest)[None, :] >= lengths[:, None]
            bias = self._bias(is_padding)[:, None, None, :]
        return _DecodeGroup(
            rows=self._tensor(metadata.query_starts[members]),
            blocks=self._tensor(metadata.block_tables[members, :num_blocks].reshape(-1)),
            size=len(members),
            longest=longest,
            bias=bias,
        )

    def _chunk(self, metadata: AttentionMetadata, index: int) -> "_Chunk":
        begin, end = metadata.query_starts[index : index + 2].tolist()
        seq_len = int(metadata.seq_lens[index])
        num_new = end - begin
        bias = None
        if num_new < seq_len:
            positions = np.arange(seq_len)
            bias = self._bias(positions[None, :] > positions[seq_len - num_new :, None])
        num_blocks = -(-seq_len // self._block_size)
        blocks = self._tensor(metadata.block_tables[index, :num_blocks])
        return _Chunk(begin=begin, end=end, seq_len=seq_len, blocks=blocks, bias=bias)

    def _bias(self, is_hidden: "np.typing.NDArray[np.bool_]") -> Tensor:
        """Return 0 where visible and -inf where hidden, of the model's type."""
        zeros = torch.zeros(is_hidden.shape, dtype=self._dtype)
        hidden = zeros.masked_fill_(torch.from_numpy(is_hidden), float("-inf"))
        return hidden.to(self._device, non_blocking=True)

    def _tensor(self, array: Int64Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device, non_blocking=True)


def group_by_length(members: Int64Array, lengths: Int64Array) -> list[Int64Array]:
    """Split `members` into groups of similar `lengths`, each padded to at most MAX_GROUP_TOKENS."""
    if len(members) == 0:
        return []
    order = members[np.argsort(lengths[members], kind="stable")]
    groups: list[Int64Array] = []
    begin = 0
    sorted_lengths = lengths[order].tolist()
    for index, length in enumerate(sorted_lengths):
        limit = sorted_lengths[begin] * GROUP_RATIO + GROUP_SLACK_TOKENS
        is_full = length * (index - begin + 1) > MAX_GROUP_TOKENS
        if index > begin and (length > limit or is_full):
            groups.append(order[begin:index])
            begin = index
    groups.append(order[begin:])
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeGroup:
    rows: Tensor  # [size], token index of each sequence
    blocks: Tensor  # [size * num_blocks]
    size: int
    longest: int
    bias: Tensor | None  # [size, 1, 1, longest]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    begin: int
    end: int
    seq_len: int
    blocks: Tensor  # [num_blocks]
    bias: Tensor | None  # [end - begin, seq_len]; None: plainly causal from position 0


@dataclass(frozen=True, slots=True)
class _SdpaStep:
    groups: list[_DecodeGroup]
    chunks: list[_Chunk]
    scale: float | None

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        assert sinks is None
        output = empty_output(query, cache)
        for group in self.groups:
            attended = _attend_decodes(query.index_select(0, group.rows), cache, group, self.scale)
            output.index_copy_(0, group.rows, attended)
        for chunk in self.chunks:
            output[chunk.begin : chunk.end] = _attend_chunk(
                query[chunk.begin : chunk.end], cache, chunk, self.scale
            )
        return output


def _attend_decodes(
    query: Tensor, cache: LayerCache, group: _DecodeGroup, scale: float | None
) -> Tensor:
    """Return [size, heads, value d] for one query token per sequence."""
    size, num_heads, head_dim = query.shape
    # [size * padded, kv_heads, d]
    key, value = (one.to(query.dtype) for one in cache.gather(group.blocks))
    num_kv_heads = key.shape[1]
    keys, values = (one.view(size, -1, num_kv_heads, one.shape[-1]) for one in (key, value))
    attended = scaled_dot_product_attention(
        query.view(size, num_kv_heads, num_heads // num_kv_heads, head_dim),
        keys[:, : group.longest].transpose(1, 2),
        values[:, : group.longest].transpose(1, 2),
        attn_mask=group.bias,
        scale=scale,
    )
    return attended.reshape(size, num_heads, -1)


def _attend_chunk(query: Tensor, cache: LayerCache, chunk: _Chunk, scale: float | None) -> Tensor:
    """Return [tokens, heads, value d] for a chunk of one sequence."""
    group = query.shape[1] // cache.num_kv_heads
    key, value = (one.to(query.dtype) for one in cache.gather(chunk.blocks))
    attended = scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        _spread(key[: chunk.seq_len], group),
        _spread(value[: chunk.seq_len], group),
        attn_mask=chunk.bias,
        is_causal=chunk.bias is None,
        scale=scale,
    )
    return attended[0].transpose(0, 1)


def _spread(states: Tensor, group: int) -> Tensor:
    """Return [1, heads, length, d] from [length, kv_heads, d], each KV head `group` times."""
    return states.transpose(0, 1).repeat_interleave(group, dim=0).unsqueeze(0)
