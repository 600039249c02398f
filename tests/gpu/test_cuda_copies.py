"""Copies of blocks on streams of a CUDA device, beside steps that keep it busy."""

import random
from pathlib import Path

import pytest
import torch

from pagewire import LLM, SamplingParams
from pagewire_worker.kv.block_copy import copy_out, fill_staging, make_staging, write_blocks
from pagewire_worker.kv.cuda_copies import make_copies
from pagewire_worker.kv.device_copies import DeviceCopies
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_copy import (
    block_index,
    bytes_per_layer,
    copy_layers_in,
    copy_layers_out,
)
from pagewire_worker.transfer.staging import Staging
from support.oracles.golden_cases import (
    CHECKPOINTS,
    NUM_TOKENS,
    make_golden_checkpoint,
    make_prompts,
)
from support.oracles.greedy import assert_equal_but_for_near_ties, greedy_by_transformers

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
CUDA = torch.device("cuda")
SHAPE = CacheShape(num_layers=8, num_kv_heads=4, head_dim=64)
NUM_BLOCKS, BLOCK_SIZE = 256, 16


@pytest.fixture
def copies():
    made = make_copies(CUDA)
    yield made
    made.close()


@pytest.fixture
def cache() -> KvCache:
    made = KvCache(
        shape=SHAPE, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, device=CUDA, dtype=torch.bfloat16
    )
    assert made.block_bytes is not None
    made.block_bytes.copy_(torch.randint(256, made.block_bytes.shape, dtype=torch.uint8))
    return made


def keep_busy(milliseconds: int = 200) -> None:
    """Let the computing stream be busy for about so long."""
    torch.cuda._sleep(milliseconds * 1_500_000)


def content(cache: KvCache) -> torch.Tensor:
    torch.cuda.synchronize()
    assert cache.block_bytes is not None
    return cache.block_bytes.cpu()


@pytest.mark.parametrize("seed", range(5))
def test_blocks_come_back_as_they_went_beside_a_busy_stream(
    seed: int, copies: DeviceCopies, cache: KvCache
) -> None:
    dice = random.Random(seed)
    before = content(cache)
    blocks = dice.sample(range(NUM_BLOCKS), 40) if seed else list(range(10, 50))
    staging = make_staging(cache, 40 * cache.bytes_per_block)
    assert staging.is_pinned()
    keep_busy()
    event = copies.copy_out(blocks, lambda: copy_out(cache, blocks, staging))
    assert not event.query()
    # Written over at once: the copy has to come first.
    copies.overwrite(blocks)
    assert cache.blocks is not None
    cache.blocks[torch.tensor(blocks).pin_memory().to(CUDA, non_blocking=True)] = 0.0
    event.synchronize()
    assert torch.equal(staging, before[blocks])
    assert not content(cache)[blocks].any()
    payloads = [memoryview(row.numpy()) for row in staging.clone()]
    rows = fill_staging(cache, payloads, make_staging(cache, 40 * cache.bytes_per_block))
    copies.load(lambda: write_blocks(cache, blocks, rows))
    copies.begin_step()
    assert cache.block_bytes is not None
    found = cache.block_bytes.clone()
    assert torch.equal(found.cpu(), before)


@pytest.mark.parametrize("seed", range(5))
def test_layers_come_back_as_they_went(seed: int, copies: DeviceCopies, cache: KvCache) -> None:
    dice = random.Random(seed)
    before = content(cache)
    blocks = dice.sample(range(NUM_BLOCKS), 30)
    first = dice.randrange(SHAPE.num_layers)
    count = dice.randint(1, SHAPE.num_layers - first)
    staging = Staging(30 * cache.bytes_per_block, is_shared=False, pin=copies.pin)
    staging.make()
    payload = staging.region(0, 30 * count * bytes_per_layer(cache))
    assert payload.is_pinned()
    index = block_index(cache, blocks)
    # Loading a kernel for its first call waits for the device.
    copy_layers_out(cache, index, first, count, payload)
    payload.zero_()
    keep_busy()
    event = copies.copy_out(blocks, lambda: copy_layers_out(cache, index, first, count, payload))
    assert not event.query()
    event.synchronize()
    on_host = KvCache(
        shape=SHAPE,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        device=torch.device("cpu"),
        dtype=torch.bfloat16,
    )
    for layer, stored in enumerate(on_host.layers):
        assert cache.blocks is not None
        stored.key.copy_(cache.blocks[:, layer, 0])
        stored.value.copy_(cache.blocks[:, layer, 1])
    expected = torch.empty_like(payload)
    copy_layers_out(on_host, index, first, count, expected)
    assert torch.equal(payload, expected)
    assert cache.blocks is not None
    cache.blocks[:, first : first + count] = 0.0
    copies.order_loads()
    copies.load(lambda: copy_layers_in(cache, index, first, count, payload.clone()))
    copies.begin_step()
    assert torch.equal(content(cache)[blocks], before[blocks])
    copies.close()
    staging.close()


def test_a_load_and_an_offload_under_steps(tmp_path: Path) -> None:
    """Tokens of prompts whose beginnings come back from a store while others are computed."""
    folder = make_golden_checkpoint(tmp_path, sorted(CHECKPOINTS)[0])
    prompts = make_prompts()
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM(
        str(folder),
        device="cuda",
        dtype="float32",
        max_num_batched_tokens=64,
        max_model_len=720,
        # Little more than a sequence: prompts push each other out, into the store and back.
        kv_cache_memory="4MiB",
        kv_load="always",
    ) as llm:
        for _ in range(3):
            requests = [{"prompt_token_ids": p} for p in prompts]
            outputs = llm.generate(requests, params, use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in outputs]
    expected = greedy_by_transformers(folder, prompts, NUM_TOKENS)
    assert_equal_but_for_near_ties(tokens, expected, "loaded on cuda")
