"""Attention within a sliding window, by torch's fused kernel over gathered positions.

It reads only positions that a token of the step attends to. Blocks before the window may belong to
other sequences, and positions behind the end were never written: a mask would not keep a NaN there
out of the result. Sequences are grouped as in sdpa.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pagewire_worker.attention.sdpa import group_by_length
from pagewire_worker.backend.attention import AttentionMetadata, Int64Array, StepAttention
from pagewire_worker.kv.kv_cache import LayerCache


class WindowedAttention:
    """torch.nn.functional.scaled_dot_product_attention over the last `window` positions.

    The token at position p attends to the positions k with p - window < k <= p.
    """

    name = "sdpa"
    is_batch_invariant = False
    takes_fp8_cache = False

    def __init__(
        self,
        *,
        device: torch.device,
        dtype: torch.dtype,
        block_size: int,
        window: int,
        scale: float | None = None,
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._block_size = block_size
        self._window = window
        self._scale = scale

    def prepare(self, metadata: AttentionMetadata) -> StepAttention:
        """Build indices and masks, once for all layers."""
        first_visible = metadata.first_visible(self._window)
        lengths = metadata.seq_lens - first_visible
        is_decode = metadata.query_lens == 1
        groups = [
            self._group(metadata, members, first_visible, lengths)
            for members in group_by_length(np.flatnonzero(is_decode), lengths)
        ]
        for index in np.flatnonzero(~is_decode):
            groups.append(self._group(metadata, np.array([index]), first_visible, lengths))
        return _WindowedStep(groups, self._scale)

    def _group(
        self,
        metadata: AttentionMetadata,
        members: Int64Array,
        first_visible: Int64Array,
        lengths: Int64Array,
    ) -> "_Group":
        """Return the group of sequences with equally many new tokens."""
        num_new = int(metadata.query_lens[members[0]])
        longest = int(lengths[members].max())
        first, last = first_visible[members, None], metadata.seq_lens[members, None] - 1
        keys = first + np.arange(longest)
        # Padding repeats the last position: it is hidden, and known to be finite.
        read = np.minimum(keys, last)
        blocks = np.take_along_axis(
            metadata.block_tables[members], read // self._block_size, axis=1
        )
        queries = (last + 1 - num_new + np.arange(num_new))[:, :, None]
        is_hidden = (keys[:, None, :] > queries) | (keys[:, None, :] <= queries - self._window)
        bias = None
        if is_hidden.any():
            zeros = torch.zeros(is_hidden.shape, dtype=self._dtype)
            hidden = zeros.masked_fill_(torch.from_numpy(is_hidden), float("-inf"))
            bias = hidden.unsqueeze(1).to(self._device, non_blocking=True)
        rows = metadata.query_starts[members, None] + np.arange(num_new)
        return _Group(
            rows=self._tensor(rows),
            slot_mapping=self._tensor(blocks * self._block_size + read % self._block_size),
            size=len(members),
            num_new=num_new,
            bias=bias,
        )

    def _tensor(self, array: Int64Array) -> Tensor:
        return torch.from_numpy(array.reshape(-1)).to(self._device, non_blocking=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    rows: Tensor  # [size * num_new], token indices
    slot_mapping: Tensor  # [size * longest], positions read
    size: int
    num_new: int
    bias: Tensor | None  # [size, 1, num_new, longest]


@dataclass(frozen=True, slots=True)
class _WindowedStep:
    groups: list[_Group]
    scale: float | None

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        assert sinks is None
        output = torch.empty_like(query)
        for group in self.groups:
            attended = _attend(query.index_select(0, group.rows), cache, group, self.scale)
            output.index_copy_(0, group.rows, attended)
        return output


def _attend(query: Tensor, cache: LayerCache, group: _Group, scale: float | None) -> Tensor:
    """Return [size * num_new, heads, d] for the new tokens of a group, in `query`."""
    _, num_heads, head_dim = query.shape
    kv_heads = cache.num_kv_heads
    gathered = cache.gather_positions(group.slot_mapping)
    key, value = (one.to(query.dtype) for one in gathered)
    shape = (group.size, -1, kv_heads, head_dim)
    # The query heads of a KV head become query rows, each with the mask of its token.
    wide = query.view(group.size, group.num_new, kv_heads, num_heads // kv_heads, head_dim)
    rows = wide.permute(0, 2, 3, 1, 4).reshape(group.size, kv_heads, -1, head_dim)
    bias = group.bias
    if bias is not None and group.num_new > 1:
        bias = bias.repeat(1, 1, num_heads // kv_heads, 1)
    attended = scaled_dot_product_attention(
        rows,
        key.view(shape).transpose(1, 2),
        value.view(shape).transpose(1, 2),
        attn_mask=bias,
        scale=scale,
    )
    attended = attended.view(group.size, kv_heads, -1, group.num_new, head_dim)
    return attended.permute(0, 3, 1, 2, 4).reshape(-1, num_heads, head_dim)
