"""Paged sequences for attention kernels: drawn, stored in shuffled blocks, and their oracle."""

from dataclasses import dataclass, field

import numpy as np
import torch

from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.triton_kernels.chunk_attention import chunk_attention
from pagewire_worker.triton_kernels.decode_attention import (
    Decodes,
    Partials,
    decode_attention,
    first_splits,
)
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences, SplitPlan
from pagewire_worker.triton_kernels.prompt_attention import PROMPT_TILES, prompt_attention
from pagewire_worker.triton_kernels.query_tiles import QueryTiles
from support.kernels.fused_kernels import softmax_with

NUM_LAYERS = 2
SPLIT_PLAN = SplitPlan(split=32, tile=16)
UNTOUCHED = 7.0
CPU = torch.device("cpu")


@dataclass
class PagedCase:
    """Some sequences with chunks of new tokens: (tokens in all, new ones) each."""

    lengths: list[tuple[int, int]]
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    kind: AttentionKind = field(default_factory=AttentionKind)
    cache_dtype: torch.dtype | None = None
    key_scale: float = 1.0
    value_scale: float = 1.0

    def __post_init__(self):
        num_blocks = sum(-(-length // self.block_size) for length, _ in self.lengths) + 2
        # All layers of a block lie together, so that what is not this layer's lies between.
        shape = (num_blocks, NUM_LAYERS, 2, self.block_size, self.kv_heads, self.head_dim)
        stored = torch.randn(shape).to(self.cache_dtype or self.dtype)
        # Nobody may read what no sequence has written.
        unwritten = torch.full(shape, float("nan")).to(stored.dtype)
        is_written = torch.zeros(num_blocks * self.block_size, dtype=torch.bool)
        free = torch.randperm(num_blocks).tolist()
        longest = max(-(-length // self.block_size) for length, _ in self.lengths)
        self.tables = np.zeros((len(self.lengths), longest), dtype=np.int64)
        for row, (length, new) in enumerate(self.lengths):
            count = -(-length // self.block_size)
            self.tables[row, :count] = [free.pop() for _ in range(count)]
            first = 0 if self.kind.window is None else max(0, length - new + 1 - self.kind.window)
            positions = np.arange(first, length)
            is_written[self.slots(row, positions)] = True
        mask = is_written.view(num_blocks, 1, 1, self.block_size, 1, 1)
        wide = torch.where(mask, stored.float(), unwritten.float())
        self.storage = wide.to(stored.dtype)
        cache = LayerCache(self.storage[:, 1, 0], self.storage[:, 1, 1])
        # Some nearly hide all positions, and some nearly change nothing.
        self.sinks = torch.linspace(-4.0, 9.0, self.heads) if self.kind.has_sinks else None
        self.layer = PagedLayer(cache, self.key_scale, self.value_scale, self.sinks)
        new_lens = [new for _, new in self.lengths]
        self.metadata = AttentionMetadata(
            np.concatenate(([0], np.cumsum(new_lens))),
            np.array([length for length, _ in self.lengths]),
            self.tables,
        )
        size = (sum(new_lens), self.heads, self.head_dim)
        self.query = torch.randn(size).to(self.dtype)

    def slots(self, row, positions):
        return self.tables[row, positions // self.block_size] * self.block_size + (
            positions % self.block_size
        )

    def expected(self, row):
        """Attention of one sequence in float64, [new tokens, heads, head_dim]."""
        length, new = self.lengths[row]
        window = self.kind.window or length
        first = max(0, length - new + 1 - window)
        slots = torch.from_numpy(self.slots(row, np.arange(first, length)))
        cache = self.layer.cache
        key = cache.key.float().flatten(0, 1)[slots].double() * self.key_scale
        value = cache.value.float().flatten(0, 1)[slots].double() * self.value_scale
        group = self.heads // self.kv_heads
        key, value = (part.repeat_interleave(group, dim=1) for part in (key, value))
        begin = int(self.metadata.query_starts[row])
        query = self.query[begin : begin + new].double()
        scale = self.head_dim**-0.5 if self.kind.scale is None else self.kind.scale
        scores = torch.einsum("thd,phd->htp", query, key) * scale
        if self.kind.softcap is not None:
            scores = self.kind.softcap * torch.tanh(scores / self.kind.softcap)
        rows = torch.arange(length - new, length)[:, None]
        positions = torch.arange(first, length)[None, :]
        is_seen = (positions <= rows) & (positions > rows - window)
        weights = softmax_with(scores.masked_fill(~is_seen, float("-inf")), self.sinks)
        return torch.einsum("htp,phd->thd", weights, value)


def on_device(case, device):
    """Return queries, keys and values there."""
    storage = case.storage.to(device)
    cache = LayerCache(storage[:, 1, 0], storage[:, 1, 1])
    sinks = None if case.sinks is None else case.sinks.to(device)
    return case.query.to(device), PagedLayer(cache, case.key_scale, case.value_scale, sinks)


def decode(case, which=None, split_plan=SPLIT_PLAN, device=CPU, num_splits=None):
    """Attention of the sequences `which`, all of them by default, as decodes."""
    which = range(len(case.lengths)) if which is None else which
    query, layer = on_device(case, device)
    attended = torch.full_like(query, UNTOUCHED)
    counts = split_plan.seen_splits(case.metadata.seq_lens[list(which)], case.kind.window)
    size = max(num_splits or 0, int(counts.sum()))
    partials = Partials.allocate(size, case.heads, case.head_dim, device)
    for part in (partials.sums, partials.greatest, partials.total):
        part.fill_(float("nan"))
    sequences = PagedSequences.of(case.metadata, device)
    rows = (list(which), first_splits(counts).tolist())
    index, firsts = (torch.tensor(row, dtype=torch.int32, device=device) for row in rows)
    decodes = Decodes(index, firsts, num_splits or int(counts.max()))
    decode_attention(query, layer, sequences, decodes, attended, partials, case.kind, split_plan)
    return attended.cpu()


def chunks(case, which=None, num_rows=16, split_plan=SPLIT_PLAN, device=CPU):
    """The same as chunks."""
    which = range(len(case.lengths)) if which is None else which
    query, layer = on_device(case, device)
    attended = torch.full_like(query, UNTOUCHED)
    sequences = PagedSequences.of(case.metadata, device)
    group = case.heads // case.kv_heads
    index = np.array(list(which), dtype=np.int64)
    tiles = QueryTiles.of(case.metadata, index, group, num_rows, device)
    chunk_attention(query, layer, sequences, tiles, attended, case.kind, split_plan)
    return attended.cpu()


def prompts(case, cut=PROMPT_TILES, device=CPU):
    """The same in one pass over all positions."""
    query, layer = on_device(case, device)
    attended = torch.full_like(query, UNTOUCHED)
    sequences = PagedSequences.of(case.metadata, device)
    index = np.arange(len(case.lengths))
    tiles = QueryTiles.of(case.metadata, index, case.heads // case.kv_heads, cut.rows, device)
    prompt_attention(query, layer, sequences, tiles, attended, case.kind, cut)
    return attended.cpu()


def assert_right(case, attended, tolerance):
    """Fail unless each sequence has what float64 gives."""
    for row, (_, new) in enumerate(case.lengths):
        begin = int(case.metadata.query_starts[row])
        found = attended[begin : begin + new].double()
        torch.testing.assert_close(found, case.expected(row), **tolerance)


def draw_kind(dice):
    return AttentionKind(
        window=dice.choice([None, None, 1, 5, 16, 40]),
        scale=dice.choice([None, None, 0.2]),
        softcap=dice.choice([None, None, 3.0]),
        has_sinks=dice.choice([False, True]),
    )


def draw(dice, dtype, lengths):
    """Return some case with such lengths."""
    kv_heads, group = dice.choice([(1, 1), (2, 1), (1, 4), (2, 3), (1, 7)])
    return PagedCase(
        lengths,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=dice.choice([16, 32, 24]),
        block_size=dice.choice([4, 16]),
        dtype=dtype,
        kind=draw_kind(dice),
    )
