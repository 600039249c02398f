"""Blocks between the paged cache, in both of its layouts, and flat payloads."""

import pytest
import torch

from pagewire_worker.kv.block_copy import copy_out, fill_staging, make_staging, write_blocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache

SHAPE = CacheShape(num_layers=3, num_kv_heads=2, head_dim=8)
BLOCK_SIZE = 4
LAYOUTS = {"layers": False, "blocks": True}


@pytest.fixture(params=LAYOUTS)
def random_cache(request):
    return lambda *arguments, **settings: make_cache(LAYOUTS[request.param], *arguments, **settings)


def copy_in(cache, blocks, payloads, staging):
    write_blocks(cache, blocks, fill_staging(cache, payloads, staging))


def make_cache(has_whole_blocks, dtype, seed=0, num_blocks=10):
    cpu = torch.device("cpu")
    cache = KvCache(
        shape=SHAPE,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        device=cpu,
        dtype=dtype,
        has_whole_blocks=has_whole_blocks,
    )
    generator = torch.Generator().manual_seed(seed)
    for layer in cache.layers:
        for side in (layer.key, layer.value):
            side.copy_(torch.randn(side.shape, generator=generator))
    return cache


def sides(cache):
    return [side for layer in cache.layers for side in (layer.key, layer.value)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_arrive_as_they_left(random_cache, dtype):
    source, target = random_cache(dtype), random_cache(dtype, seed=1)
    before = [side.clone() for side in sides(target)]
    staging = make_staging(source, 5 * source.bytes_per_block)
    payloads = [memoryview(row) for row in copy_out(source, [7, 0, 3, 4, 5], staging).numpy()]
    copy_in(target, [1, 8, 9, 4, 0], payloads, make_staging(target, 6 * target.bytes_per_block))
    for mine, theirs, old in zip(sides(source), sides(target), before, strict=True):
        assert torch.equal(mine[[7, 0, 3, 4, 5]], theirs[[1, 8, 9, 4, 0]])
        others = [2, 3, 5, 6, 7]
        assert torch.equal(theirs[others], old[others])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_order_within_a_payload(random_cache, dtype):
    cache = random_cache(dtype)
    (row,) = copy_out(cache, [6], make_staging(cache, 1))
    expected = torch.cat([side[6].flatten() for side in sides(cache)])
    assert torch.equal(row.view(dtype), expected)
    assert len(row) == cache.layout()[0].bytes_per_block == cache.bytes_per_block


def test_a_damaged_byte_changes_its_place_and_no_other(random_cache):
    source, target = random_cache(torch.float32), random_cache(torch.float32)
    (row,) = copy_out(source, [2], make_staging(source, 1))
    data = bytearray(row.numpy().tobytes())
    side_bytes = cache_side_bytes(source)
    # The third side is the keys of layer 1; the element at position 5 of it.
    data[2 * side_bytes + 5 * 4] ^= 0xFF
    copy_in(target, [2], [bytes(data)], make_staging(target, 1))
    for index, (mine, theirs) in enumerate(zip(sides(source), sides(target), strict=True)):
        changed = (mine != theirs).flatten().nonzero().flatten().tolist()
        block_elements = side_bytes // 4
        assert changed == ([2 * block_elements + 5] if index == 2 else [])


def cache_side_bytes(cache):
    return cache.bytes_per_block // (2 * SHAPE.num_layers)


@pytest.mark.parametrize("change", [-4, 4])
def test_a_payload_of_another_size_is_refused(random_cache, change):
    cache = random_cache(torch.float32)
    before = [side.clone() for side in sides(cache)]
    good, bad = bytes(cache.bytes_per_block), bytes(cache.bytes_per_block + change)
    with pytest.raises(ValueError, match="a block has"):
        copy_in(cache, [0, 1], [good, bad], make_staging(cache, 2 * cache.bytes_per_block))
    for old, new in zip(before, sides(cache), strict=True):
        assert torch.equal(old, new)


def test_staging_holds_one_block_at_least(random_cache):
    cache = random_cache(torch.float32)
    assert make_staging(cache, 1).shape == (1, cache.bytes_per_block)
