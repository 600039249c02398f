"""Copies of whole blocks against torch, bit by bit."""

import pytest
import torch

from pagewire_worker.triton_kernels.block_copy import (
    gather_blocks,
    gather_blocks_oracle,
    scatter_blocks,
    scatter_blocks_oracle,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]


def _random(dice, dtype):
    """Memory, and the view of it that is a cache: often a part of each block, so they lie apart."""
    size = (5, 2, dice.choice([1, 4, 16]), dice.choice([1, 3]), dice.choice([16, 80, 128]))
    memory = torch.randint(256, (*size[:-1], size[-1] * dtype.itemsize), dtype=torch.uint8)
    memory = memory.view(dtype)
    return memory, dice.choice([_whole, _second_half])


def _whole(memory):
    return memory


def _second_half(memory):
    return memory[:, 1]


def _bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_gathers_what_torch_does(seed, dtype, dice):
    memory, part = _random(dice, dtype)
    cache = part(memory)
    blocks = torch.randint(len(cache), (dice.randint(0, 4),))
    gathered = gather_blocks(cache, blocks)
    assert gathered.is_contiguous()
    assert torch.equal(gathered, gather_blocks_oracle(cache, blocks))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_scatters_what_torch_does_and_leaves_other_memory_alone(seed, dtype, dice):
    memory, part = _random(dice, dtype)
    expected = memory.clone()
    cache = part(memory)
    blocks = torch.randperm(len(cache))[: dice.randint(1, 4)]
    if dice.random() < 0.3:
        blocks[0] = -1
    row_bytes = cache[0].numel() * cache.itemsize
    staging = torch.randint(256, (len(blocks), row_bytes), dtype=torch.uint8)
    scatter_blocks_oracle(staging, part(expected), blocks)
    scatter_blocks(staging, cache, blocks)
    assert torch.equal(_bits(memory), _bits(expected))


@pytest.mark.parametrize("seed", range(3))
def test_blocks_come_back_as_they_went(seed, dice):
    memory, part = _random(dice, torch.bfloat16)
    before = _bits(memory).clone()
    blocks = torch.tensor([4, 0, 2])
    staging = gather_blocks(part(memory), blocks)
    part(memory).view(torch.int16)[blocks] = 0
    assert not torch.equal(_bits(memory), before)
    scatter_blocks(staging, part(memory), blocks)
    assert torch.equal(_bits(memory), before)


def test_a_block_that_is_not_contiguous_is_refused():
    cache = torch.zeros(2, 4, 8)[:, :, :4]
    with pytest.raises(AssertionError):
        gather_blocks(cache, torch.tensor([0]))


def test_a_block_of_odd_bytes_is_refused():
    with pytest.raises(AssertionError):
        gather_blocks(torch.zeros(2, 3, dtype=torch.float16), torch.tensor([0]))
