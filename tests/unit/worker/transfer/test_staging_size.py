"""How many blocks go to a store at once: by their size, and by what a copy costs."""

import pytest

from pagewire_worker.offload.block_offloader import (
    ALL_DEVICE_BYTES,
    MIN_BUSY_BLOCKS,
    MIN_DEVICE_STAGING,
    NUM_STAGING,
    STAGING_BYTES,
    staging_size,
)
from pagewire_worker.offload.put_sender import MAX_PUT_BYTES

MIB = 1024**2
QWEN3_8B, LLAMA_70B = 36 * 16 * 2 * 8 * 128 * 2, 80 * 16 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("block_bytes", [3072, QWEN3_8B, LLAMA_70B, 40 * MIB])
def test_buffers_of_a_device_hold_many_blocks_of_any_size(block_bytes: int) -> None:
    size = staging_size(block_bytes, 100_000, is_device=True)
    num_bytes = size.num_blocks * block_bytes
    assert size.num_blocks >= 2 * MIN_BUSY_BLOCKS
    assert num_bytes >= 64 * MIB - block_bytes
    assert MIN_DEVICE_STAGING <= size.num_buffers <= NUM_STAGING
    least = MIN_DEVICE_STAGING * 2 * MIN_BUSY_BLOCKS * block_bytes
    assert size.num_buffers * num_bytes <= max(ALL_DEVICE_BYTES, least)


def test_what_a_step_names_is_on_its_way_at_once() -> None:
    """128 blocks of a step of 2048 tokens, of which 12 were."""
    for block_bytes in (QWEN3_8B, LLAMA_70B):
        size = staging_size(block_bytes, 100_000, is_device=True)
        assert size.num_blocks * size.num_buffers >= 128


def test_no_buffer_is_larger_than_the_pool() -> None:
    assert staging_size(QWEN3_8B, 5, is_device=True).num_blocks == 5


@pytest.mark.parametrize(("block_bytes", "rows"), [(4096, 1024), (MIB, 4), (40 * MIB, 1)])
def test_copies_in_the_model_thread_stay_short(block_bytes: int, rows: int) -> None:
    size = staging_size(block_bytes, 100_000, is_device=False)
    assert size == (rows, NUM_STAGING)
    assert rows * block_bytes <= max(STAGING_BYTES, block_bytes)


def test_a_put_of_small_buffers_still_takes_several() -> None:
    assert MAX_PUT_BYTES >= 4 * STAGING_BYTES
