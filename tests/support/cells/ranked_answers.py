"""Greedy answers of a model that is computed by ranks, or by one process."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pagewire_shared.sampling.params import SamplingParams
from support.adapters.model_adapters import MadeAdapter
from support.cells.rank_threads import end_ranks
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.fallback_checkpoints import VOCAB
from support.oracles.family_checkpoints import MAX_POSITIONS

GREEDY = SamplingParams(temperature=0.0, max_tokens=None, logprobs=3)


@dataclass(frozen=True, slots=True)
class RankedAnswers:
    """Tokens of each prompt, the log-probability of each token, and what computed them."""

    tokens: list[list[int]]
    logprobs: list[list[float]]
    kernel_set: str


def prompts(lengths: Sequence[int] = (1, 41, 3, 90, 17)) -> list[list[int]]:
    """Return random prompts."""
    generator = random.Random(3)
    return [[generator.randrange(3, VOCAB) for _ in range(size)] for size in lengths]


def generated(
    folder: Path,
    given: Sequence[Sequence[int]],
    budget: int = 24,
    adapters: Sequence[MadeAdapter] = (),
    first_slot: int | None = None,
    **settings: Any,
) -> RankedAnswers:
    """Return the answers to prompts that run together, with at most `budget` tokens a step.

    Args:
        adapters: The prompts have the model alone, and these, in turn.
        first_slot: Adapter slot of the first prompt.
    """
    if adapters:
        settings = {
            "enable_lora": True,
            "max_loras": len(adapters),
            "max_lora_rank": 24,
            **settings,
        }
    replica = load(
        folder,
        max_model_len=MAX_POSITIONS,
        max_num_batched_tokens=64,
        **{"kv_cache_memory": 1 << 23, **settings},
    )
    try:
        for slot, adapter in enumerate(adapters):
            adapter.fill(replica.model_runner, slot)
        slots = [None, *range(len(adapters))]
        begin = slots.index(first_slot)
        sequences = [
            Running(slot, prompt, GREEDY, 12, adapter_slot=slots[(begin + slot) % len(slots)])
            for slot, prompt in enumerate(given)
        ]
        results = Driver.of(replica).finish(sequences, budget=budget)
    finally:
        end_ranks(replica)
    found: list[list[float]] = [[] for _ in given]
    for result in results:
        place = 0
        for slot, count in zip(result.slots, result.counts, strict=True):
            found[slot] += np.asarray(result.logprobs[place : place + count]).tolist()
            place += count
    kernel_set = replica.model_runner.backend.kernel_set
    return RankedAnswers([one.output for one in sequences], found, kernel_set)
