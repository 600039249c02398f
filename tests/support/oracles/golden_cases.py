"""The checkpoints, prompts and combinations of the golden tests."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.checkpoints.checkpoints import make_checkpoint

LENGTHS = (1, 2, 15, 16, 17, 33, 64, 75, 100, 129, 170, 200, 256, 333, 450, 600)
NUM_PROMPTS = 4 * len(LENGTHS)
NUM_TOKENS = 64
VOCAB = 512

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "LlamaForCausalLM", "rope_scaling": "llama3", "sharded": True},
    "qwen2": {"architecture": "Qwen2ForCausalLM", "tied": True},
    "qwen3": {"architecture": "Qwen3ForCausalLM", "tied": True, "sharded": True},
}


def make_golden_checkpoint(folder: Path, name: str) -> Path:
    """Write one of CHECKPOINTS: hidden 256, 4 layers, std 0.1."""
    return make_checkpoint(folder / name, hidden=256, layers=4, vocab=VOCAB, **CHECKPOINTS[name])


def make_prompts(seed: int = 11) -> list[list[int]]:
    """Return prompts of 1 to 600 random tokens, in random order.

    Four of each length, so that transformers can take them as a batch without padding; the fourth
    starts like the third, so that there is a prefix to share.
    """
    generator = random.Random(seed)
    prompts = []
    for length in LENGTHS:
        group = [[generator.randrange(3, VOCAB) for _ in range(length)] for _ in range(4)]
        shared = length * 3 // 4
        group[3][:shared] = group[2][:shared]
        prompts.extend(group)
    generator.shuffle(prompts)
    return prompts


@dataclass(frozen=True, slots=True)
class Combination:
    """One value of every factor."""

    is_alone: bool
    is_small_block: bool
    is_chunked: bool
    is_warm: bool
    is_one_step: bool
    is_small_pool: bool

    def __str__(self) -> str:
        words = [
            "alone" if self.is_alone else "32-at-once",
            "small-blocks" if self.is_small_block else "large-blocks",
            "chunk-16" if self.is_chunked else "whole",
            "warm" if self.is_warm else "cold",
            "1-step" if self.is_one_step else "2-steps",
            "small-pool" if self.is_small_pool else "ample",
        ]
        return "_".join(words)


# Plackett and Burman (1946), 12 runs: in any two columns every pair of values occurs three times.
_GENERATOR = (1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0)


def combinations() -> list[Combination]:
    """Return 12 combinations that cover every pair of values of any two factors."""
    rows = [_GENERATOR[-shift:] + _GENERATOR[:-shift] for shift in range(len(_GENERATOR))]
    rows.append((0,) * len(_GENERATOR))
    return [Combination(*(bool(value) for value in row[:6])) for row in rows]
