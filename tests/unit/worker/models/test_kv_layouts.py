"""Blocks that lie whole hold what layers by themselves hold, and all who read them see the same."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.attention.sdpa import SdpaAttention
from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.attention.windowed import WindowedAttention
from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.kv.block_copy import copy_out, make_staging
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_copy import (
    block_index,
    bytes_per_layer,
    copy_layers_in,
    copy_layers_out,
)
from pagewire_worker.triton_kernels.paged_sequences import SplitPlan
from pagewire_worker.triton_kernels.rotary_kv_write import rotary_kv_write

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class Pair:
    """The same content in both layouts."""

    def __init__(self, seed, *, is_latent=False):
        self.dice = random.Random(seed)
        torch.manual_seed(seed)
        dice = self.dice
        shape = CacheShape(dice.randint(1, 4), dice.choice([1, 2, 3]), dice.choice([8, 16]))
        self.is_latent = is_latent
        self.shape = replace(shape, latent_dim=5) if is_latent else shape
        self.block_size = dice.choice([1, 4, 16])
        self.num_blocks = dice.randint(2, 9)
        self.dtype = dice.choice(DTYPES)
        self.apart, self.whole = (self._cache(whole) for whole in (False, True))
        for one, other in zip(self.sides(self.apart), self.sides(self.whole), strict=True):
            one.copy_(torch.randn(one.shape))
            other.copy_(one)

    def _cache(self, whole):
        return KvCache(
            shape=self.shape,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            device=CPU,
            dtype=self.dtype,
            has_whole_blocks=whole,
        )

    def sides(self, cache):
        return [side for layer in cache.layers for side in layer.parts]

    def blocks(self, most=None):
        count = self.dice.randint(1, min(most or self.num_blocks, self.num_blocks))
        return self.dice.sample(range(self.num_blocks), count)

    def layers(self):
        first = self.dice.randrange(self.shape.num_layers)
        return first, self.dice.randint(1, self.shape.num_layers - first)

    def states(self, count):
        size = (count, self.shape.num_kv_heads, self.shape.head_dim)
        return torch.randn(size).to(self.dtype)

    def assert_equal(self):
        for one, other in zip(self.sides(self.apart), self.sides(self.whole), strict=True):
            assert torch.equal(one, other)


@pytest.fixture(params=range(12))
def pair(request):
    return Pair(request.param, is_latent=request.param % 3 == 0)


def test_a_block_that_lies_whole_is_one_piece_of_memory(pair):
    blocks = pair.whole.blocks
    assert blocks.is_contiguous()
    assert pair.apart.blocks is pair.apart.block_bytes is None
    assert pair.whole.block_bytes.shape == (pair.num_blocks, pair.whole.bytes_per_block)
    assert pair.whole.layout() == pair.apart.layout()
    heads, size = pair.shape.num_kv_heads, pair.shape.head_dim
    numbers = heads * size if pair.is_latent else 2 * heads * size
    per_token = numbers * pair.dtype.itemsize * pair.shape.num_layers
    assert pair.whole.bytes_per_block == per_token * pair.block_size
    block = pair.dice.randrange(pair.num_blocks)
    expected = torch.cat([side[block].flatten() for side in pair.sides(pair.apart)])
    assert torch.equal(blocks[block].flatten(), expected)
    pair.whole.block_bytes[block].zero_()
    assert not any(side[block].any() for side in pair.sides(pair.whole))


def test_writes_and_gathers_are_the_same(pair):
    num_slots = pair.num_blocks * pair.block_size
    slots = torch.tensor(pair.dice.sample(range(num_slots), pair.dice.randint(1, num_slots)))
    key, value = pair.states(len(slots)), pair.states(len(slots))
    if pair.is_latent:
        value = None
    layer = pair.dice.randrange(pair.shape.num_layers)
    for cache in (pair.apart, pair.whole):
        cache.layers[layer].write(slots, key, value)
    pair.assert_equal()
    found = pair.whole.layers[layer].gather_positions(slots)
    assert torch.equal(found[0], key)
    assert torch.equal(found[1], key[..., :5] if value is None else value)
    blocks = torch.tensor(pair.blocks())
    for one, other in zip(
        pair.apart.layers[layer].gather(blocks),
        pair.whole.layers[layer].gather(blocks),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_copies_within_the_pool_read_before_they_write(pair):
    sources = torch.tensor(pair.blocks())
    destinations = torch.tensor(pair.dice.sample(range(pair.num_blocks), len(sources)))
    before = [side.clone() for side in pair.sides(pair.whole)]
    for cache in (pair.apart, pair.whole):
        cache.copy_blocks(sources, destinations)
    pair.assert_equal()
    for side, old in zip(pair.sides(pair.whole), before, strict=True):
        assert torch.equal(side[destinations], old[sources])


def test_payloads_of_blocks_are_the_same_bytes(pair):
    blocks = pair.blocks()
    found = [
        copy_out(cache, blocks, make_staging(cache, len(blocks) * cache.bytes_per_block)).clone()
        for cache in (pair.apart, pair.whole)
    ]
    assert torch.equal(*found)


def test_payloads_of_layers_are_the_same_bytes_and_go_into_both(pair):
    blocks, (first, count) = pair.blocks(), pair.layers()
    num_bytes = len(blocks) * count * bytes_per_layer(pair.apart)
    found = []
    for cache in (pair.apart, pair.whole):
        payload = torch.empty(num_bytes, dtype=torch.uint8)
        copy_layers_out(cache, block_index(cache, blocks), first, count, payload)
        found.append(payload)
    assert torch.equal(*found)
    into = pair.dice.sample(range(pair.num_blocks), len(blocks))
    for cache in (pair.apart, pair.whole):
        copy_layers_in(cache, block_index(cache, into), first, count, found[0])
    pair.assert_equal()
    layer = pair.dice.randrange(first, first + count)
    shape = (count, pair.shape.num_parts, len(blocks), *pair.apart.layers[0].key.shape[1:])
    key = found[0].view(pair.dtype).view(shape)
    assert torch.equal(pair.whole.layers[layer].key[into], key[layer - first, 0])


def _metadata(dice, block_size, num_blocks):
    """Two sequences over all blocks: a decode and a chunk."""
    tables = np.array(dice.sample(range(num_blocks), num_blocks))
    half = num_blocks // 2
    lengths = [dice.randint(1, half * block_size) for _ in range(2)]
    new = [1, dice.randint(1, lengths[1])]
    starts = np.concatenate(([0], np.cumsum(new)))
    return AttentionMetadata(starts, np.array(lengths), tables[: 2 * half].reshape(2, half))


@pytest.mark.parametrize("name", ["reference", "sdpa", "windowed", "triton"])
@pytest.mark.parametrize("seed", range(3))
def test_attention_sees_the_same_bits(seed, name):
    is_latent = name in ("reference", "sdpa") and seed == 2
    pair = Pair(100 + seed, is_latent=is_latent)
    while pair.num_blocks < 4 or pair.block_size < 4:
        seed += 50
        pair = Pair(seed, is_latent=is_latent)
    window = 5 if name == "windowed" else None
    attention = {
        "reference": lambda: ReferenceAttention(AttentionKind()),
        "sdpa": lambda: SdpaAttention(CPU, pair.dtype, pair.block_size),
        "windowed": lambda: WindowedAttention(
            device=CPU, dtype=pair.dtype, block_size=pair.block_size, window=window
        ),
        "triton": lambda: TritonAttention(CPU, AttentionKind(), SplitPlan(16, 16)),
    }[name]()
    metadata = _metadata(pair.dice, pair.block_size, pair.num_blocks)
    heads = 2 * pair.shape.num_kv_heads
    num_tokens = int(metadata.query_starts[-1])
    query = torch.randn(num_tokens, heads, pair.shape.head_dim).to(pair.dtype)
    layer = pair.dice.randrange(pair.shape.num_layers)
    one, other = (
        attention.prepare(metadata)(query, cache.layers[layer])
        for cache in (pair.apart, pair.whole)
    )
    assert torch.equal(one, other)
    assert one.float().abs().sum() > 0


@pytest.mark.parametrize("seed", range(4))
def test_rotated_heads_are_written_to_the_same_places(seed):
    pair = Pair(200 + seed)
    num_tokens = min(5, pair.num_blocks * pair.block_size)
    slots = torch.tensor(pair.dice.sample(range(pair.num_blocks * pair.block_size), num_tokens))
    size = (num_tokens, (2 + 2 * pair.shape.num_kv_heads) * pair.shape.head_dim)
    qkv = torch.randn(size).to(pair.dtype)
    tables = [torch.rand(num_tokens, pair.shape.head_dim // 2).repeat(1, 2) for _ in range(2)]
    layer = pair.dice.randrange(pair.shape.num_layers)
    before = pair.whole.blocks.clone()
    for cache in (pair.apart, pair.whole):
        one = cache.layers[layer]
        rotary_kv_write(qkv, torch.arange(num_tokens), slots, *tables, one.key, one.value)
    pair.assert_equal()
    assert not torch.equal(pair.whole.blocks, before)


def test_kernels_for_cpus_refuse_blocks_that_lie_whole():
    pair = Pair(1)
    assert pointer(pair.apart.layers[0].key) == pair.apart.layers[0].key.data_ptr()
    with pytest.raises(ValueError, match="contiguous"):
        pointer(pair.whole.layers[0].key)


def test_layers_lie_by_themselves_on_a_cpu():
    assert (
        KvCache(
            shape=CacheShape(2, 1, 8), num_blocks=4, block_size=4, device=CPU, dtype=torch.float32
        ).blocks
        is None
    )
