"""How many blocks a cache gets of what memory there is: arithmetic, and errors that say why."""

import random
from dataclasses import replace

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.process.sizes import parse_size
from pagewire_worker.config import WorkerConfig
from pagewire_worker.kv.kv_cache import CacheShape, bytes_per_block
from pagewire_worker.loading.cache_budget import (
    CPU_DEFAULT_BYTES,
    CacheBudget,
    DeviceMemory,
    asked_budget,
    cpu_budget,
    device_budget,
    plan_num_blocks,
)

GIB = 1024**3
QWEN3_8B = CacheShape(num_layers=36, num_kv_heads=8, head_dim=128)
MEMORY = DeviceMemory(
    total=80 * GIB, used=17 * GIB, model=16 * GIB, step=3 * GIB, num_tokens=2048, graphs=GIB
)


def num_blocks(budget, shape=QWEN3_8B, **settings):
    bounds = {"max_model_len": 40960, "max_num_seqs": 256, "block_size": 16, **settings}
    return plan_num_blocks(shape, budget, dtype=torch.bfloat16, **bounds)


def test_the_share_less_all_that_is_used_goes_to_the_cache():
    budget = device_budget(MEMORY, 0.9)
    assert budget.num_bytes == 72 * GIB - 17 * GIB - 3 * GIB - GIB
    # 144 KiB a token, 2.25 MiB a block.
    assert num_blocks(budget) == 51 * GIB // (2304 * 1024)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_given_twice_and_nothing_is_left(seed):
    dice = random.Random(seed)
    shape = CacheShape(dice.randint(1, 80), dice.choice([1, 4, 8]), dice.choice([64, 128]))
    block_size = dice.choice([16, 32])
    memory = DeviceMemory(
        total=dice.randrange(60, 150) * GIB,
        used=dice.randrange(1, 20 * GIB),
        model=dice.randrange(1, GIB),
        step=dice.randrange(1, 5 * GIB),
        num_tokens=2048,
        graphs=dice.randrange(GIB),
    )
    utilization = dice.uniform(0.6, 1.0)
    settings = {"block_size": block_size, "max_model_len": 1000, "max_num_seqs": 10**6}
    count = num_blocks(device_budget(memory, utilization), shape, **settings)
    block_bytes = bytes_per_block(shape, block_size, torch.bfloat16)
    taken = memory.used + memory.step + memory.graphs + count * block_bytes
    assert taken <= memory.total * utilization < taken + block_bytes + 1
    larger = device_budget(replace(memory, graphs=memory.graphs + 3 * block_bytes), utilization)
    assert num_blocks(larger, shape, **settings) == count - 3


def test_no_more_than_all_sequences_can_fill_unless_it_is_asked_for():
    bounds = {"max_model_len": 100, "max_num_seqs": 3}
    assert num_blocks(device_budget(MEMORY, 0.9), **bounds) == 3 * 7
    assert num_blocks(cpu_budget(64 * GIB), **bounds) == 3 * 7
    assert num_blocks(asked_budget(GIB, 2 * GIB), **bounds) == GIB // (2304 * 1024)


@pytest.mark.parametrize(
    "memory",
    [
        replace(MEMORY, used=70 * GIB),
        replace(MEMORY, step=52 * GIB),
        replace(MEMORY, graphs=60 * GIB),
    ],
)
def test_too_little_is_an_error_that_says_what_took_the_memory(memory):
    with pytest.raises(StartupError) as caught:
        num_blocks(device_budget(memory, 0.9))
    assert caught.value.field == "gpu_memory_utilization"
    message = caught.value.message
    assert message.startswith("--gpu-memory-utilization: 0.9 of 80.0 GiB are 72.0 GiB; ")
    for part in (
        "16.0 GiB of weights",
        f"{memory.used // GIB - 16}.0 GiB of libraries and other processes",
        f"{memory.step // GIB}.0 GiB for a step of 2048 tokens",
        f"{memory.graphs // GIB}.0 GiB of graphs",
        "less than one sequence of 40960, which takes 5.6 GiB",
        "--max-num-batched-tokens",
        "--max-model-len",
    ):
        assert part in message, message
    assert "\n" not in message


def test_one_sequence_is_just_enough():
    needed = 2560 * 2304 * 1024
    budget = CacheBudget(needed, "x", "told", "advice")
    assert num_blocks(budget) == 2560
    with pytest.raises(StartupError, match="told hold 40944 tokens"):
        num_blocks(replace(budget, num_bytes=needed - 1))


def test_a_cpu_gives_a_quarter_of_what_is_free_and_a_gibibyte_at_most():
    assert cpu_budget(parse_size("1GiB")).num_bytes == 256 * 1024**2
    assert cpu_budget(100 * GIB).num_bytes == CPU_DEFAULT_BYTES


def test_more_than_is_free_cannot_be_asked_for():
    assert asked_budget(GIB, GIB).num_bytes == GIB
    with pytest.raises(StartupError, match=r"--kv-cache-memory: 2\.0 GiB .* 1\.0 GiB are free"):
        asked_budget(2 * GIB, GIB)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(StartupError, match="--gpu-memory-utilization must be") as caught:
        WorkerConfig(model="x", gpu_memory_utilization=share)
    assert caught.value.field == "gpu_memory_utilization"


def test_all_of_a_device_may_be_used():
    assert WorkerConfig(model="x", gpu_memory_utilization=1.0).gpu_memory_utilization == 1.0
    assert WorkerConfig(model="x").gpu_memory_utilization == 0.9


def test_a_fitted_length_needs_only_a_part_of_the_longest_sequence():
    budget = asked_budget(2304 * 1024 * 10, 80 * GIB)
    with pytest.raises(StartupError, match="less than one sequence"):
        num_blocks(budget)
    assert num_blocks(budget, least_len=64) == 10
    with pytest.raises(StartupError, match="less than one sequence"):
        num_blocks(asked_budget(2304 * 1024 * 3, 80 * GIB), least_len=64)
    assert num_blocks(budget, max_model_len=32, least_len=64) == 10
