"""Greedy tokens equal transformers in float32, whatever happens between prompt and token: computed
by the kernels for CPUs and by torch."""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from support.cells.engine import Engine, Setup
from support.kernels.fused_kernels import needs_kernels, position_of
from support.oracles.golden_cases import (
    CHECKPOINTS,
    NUM_TOKENS,
    Combination,
    combinations,
    make_golden_checkpoint,
    make_prompts,
)
from support.oracles.greedy import Greedy, assert_equal_but_for_near_ties, greedy_by_transformers

GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)

# Fits the longest sequence and about a tenth of 32 average ones.
SMALL_POOL_TOKENS = 1280
AMPLE_POOL_TOKENS = 32768

BLOCK_SIZES = {"fused": (16, 32), "torch": (8, 16)}

# Every factor but the number at once has both of its values in them.
IN_SHORT_RUN = {
    "32-at-once_small-blocks_chunk-16_cold_1-step_small-pool",
    "32-at-once_small-blocks_whole_warm_1-step_ample",
    "32-at-once_large-blocks_whole_cold_2-steps_ample",
}

IN_LONG_RUN = {
    ("llama", "fused"): "alone_small-blocks_whole_cold_2-steps_small-pool",
    ("qwen2", "fused"): "32-at-once_small-blocks_whole_warm_1-step_ample",
    ("qwen3", "fused"): "32-at-once_small-blocks_chunk-16_cold_1-step_small-pool",
}


@pytest.fixture(scope="module")
def prepare(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[Path, list[Greedy]]]:
    """Make a checkpoint and its reference the first time its name is asked for."""

    @functools.cache
    def make(name: str) -> tuple[Path, list[Greedy]]:
        folder = make_golden_checkpoint(tmp_path_factory.mktemp("golden"), name)
        return folder, greedy_by_transformers(folder, make_prompts(), NUM_TOKENS)

    return make


Prepare = Callable[[str], tuple[Path, list[Greedy]]]


def setup_of(combination: Combination, cpu_backend: str) -> Setup:
    small, large = BLOCK_SIZES[cpu_backend]
    block_size = small if combination.is_small_block else large
    num_tokens = SMALL_POOL_TOKENS if combination.is_small_pool else AMPLE_POOL_TOKENS
    return Setup(
        num_at_once=1 if combination.is_alone else 32,
        block_size=block_size,
        # 16 tokens a step: no longer prompt is ever computed in one piece.
        max_num_batched_tokens=16 if combination.is_chunked else 2048,
        num_blocks=num_tokens // block_size,
        is_caching=True,
        steps_in_flight=1 if combination.is_one_step else 2,
        cpu_backend=cpu_backend,
    )


def test_combinations_cover_every_pair_of_values() -> None:
    rows = combinations()
    assert len(set(rows)) >= 12
    for first, second in itertools.combinations([f.name for f in fields(Combination)], 2):
        pairs = {(getattr(row, first), getattr(row, second)) for row in rows}
        assert len(pairs) == 4, (first, second)
    short = [row for row in rows if str(row) in IN_SHORT_RUN]
    assert len(short) == len(IN_SHORT_RUN)
    assert set(IN_LONG_RUN.values()) <= {str(row) for row in rows}
    for name in [f.name for f in fields(Combination) if f.name != "is_alone"]:
        assert {getattr(row, name) for row in short} == {True, False}, name


def marks_of(name: str, cpu_backend: str, row: Combination | None = None) -> list[Any]:
    """Return the marks of a case.

    IN_SHORT_RUN of one model is in the short run. The long run has one combination of each other
    model, and one request at a time, by the kernels; the rest of the product is a command.
    """
    needed = [] if cpu_backend == "torch" else [needs_kernels]
    if name == "llama" and (row is None or str(row) in IN_SHORT_RUN):
        return needed
    is_in_long_run = str(row) in {IN_LONG_RUN.get((name, cpu_backend))}
    return [*needed, pytest.mark.long, *([] if is_in_long_run else [pytest.mark.whole])]


def cases() -> list[Any]:
    """Return triples of checkpoint, implementation and combination."""
    return [
        pytest.param(name, cpu, row, id=f"{name}-{cpu}-{row}", marks=marks_of(name, cpu, row))
        for name in sorted(CHECKPOINTS)
        for cpu in BLOCK_SIZES
        for row in combinations()
    ]


@pytest.mark.parametrize(("name", "cpu_backend", "combination"), cases())
def test_greedy_equals_transformers(
    prepare: Prepare, name: str, cpu_backend: str, combination: Combination
) -> None:
    checkpoint, expected = prepare(name)
    engine = Engine(checkpoint, setup_of(combination, cpu_backend))
    assert engine.replica.model_runner.backend.kernel_set.startswith(cpu_backend)
    prompts = make_prompts()
    if combination.is_warm:
        engine.generate(prompts, GREEDY.with_(max_tokens=1))
    outputs = engine.generate(prompts, GREEDY)
    assert_equal_but_for_near_ties(outputs, expected, f"{name} {cpu_backend} {combination}")
    if combination.is_small_pool and not combination.is_alone:
        assert engine.core.counts.num_preemptions > 0


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "cpu_backend",
    [pytest.param("fused", marks=needs_kernels), pytest.param("torch", marks=pytest.mark.long)],
)
def test_same_seed_same_tokens_alone_and_among_others(
    tmp_path_factory: pytest.TempPathFactory, cpu_backend: str, seed: int
) -> None:
    folder = make_golden_checkpoint(tmp_path_factory.mktemp("seed"), "qwen3")
    prompts = [prompt[:100] for prompt in make_prompts(seed)][:32]
    generator = random.Random(seed)
    params = [
        SamplingParams(
            seed=generator.getrandbits(64),
            temperature=generator.choice([0.7, 1.0, 1.5]),
            top_p=generator.choice([0.9, 1.0]),
            top_k=generator.choice([0, 40]),
            min_p=generator.choice([0.0, 0.02]),
            max_tokens=32,
            ignore_eos=True,
        )
        for _ in prompts
    ]
    together, alone = (
        Engine(folder, Setup(num_at_once=most, cpu_backend=cpu_backend)).generate(prompts, params)
        for most in (32, 1)
    )
    assert together == alone
    assert len({tuple(output) for output in alone}) == len(prompts)


class Damage:
    """Changes the KV cache of every sequence right after its prompt was computed, once.

    "block": the content of a block in the middle becomes that of the first block. "position": keys
    and values of one position in the middle become those of the position before it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @torch.inference_mode()
    def __call__(self, engine: Engine, plan: StepPlan) -> None:
        worker = engine.core.workers[engine.info.worker_id]
        size = engine.setup.block_size
        for slot, start in zip(plan.slots, plan.starts, strict=True):
            sequence = worker.slots.owners[slot]
            if sequence is None or start != sequence.num_prompt:
                continue
            assert sequence.table is not None
            middle = sequence.num_prompt // 2
            block = sequence.table.blocks[middle // size]
            for layer in engine.replica.model_runner.backend.kv_cache.layers:
                for states in (layer.key, layer.value):
                    if self.kind == "block":
                        states[block] = states[sequence.table.blocks[0]]
                        continue
                    at = max(1, middle % size)
                    if engine.setup.cpu_backend == "torch":
                        states[block, at] = states[block, at - 1]
                    else:
                        is_key = states is layer.key
                        before = position_of(states[block], at - 1, is_key=is_key)
                        position_of(states[block], at, is_key=is_key).copy_(before)


@pytest.mark.parametrize(
    ("name", "cpu_backend"),
    [
        pytest.param(name, cpu, marks=marks_of(name, cpu))
        for name in sorted(CHECKPOINTS)
        for cpu in BLOCK_SIZES
    ],
)
@pytest.mark.parametrize(
    ("kind", "shortest", "longest"), [("block", 32, 600), ("position", 2, 200)]
)
def test_damage_shows_in_the_outputs(
    prepare: Prepare, name: str, cpu_backend: str, kind: str, shortest: int, longest: int
) -> None:
    """What the comparison above could not see would prove nothing: one bad block must change
    outputs."""
    checkpoint, expected = prepare(name)
    prompts = make_prompts()
    which = [i for i, prompt in enumerate(prompts) if shortest <= len(prompt) <= longest]
    setup = Setup(is_caching=False, steps_in_flight=1, cpu_backend=cpu_backend)
    engine = Engine(checkpoint, setup, on_step=Damage(kind))
    outputs = engine.generate([prompts[i] for i in which], GREEDY)
    changed = sum(
        tuple(output) != expected[i].token_ids for output, i in zip(outputs, which, strict=True)
    )
    assert len(which) >= 40
    assert changed >= 0.95 * len(which), f"{changed} of {len(which)} changed"
