"""Requests whose answers must be the same bits in any batch, and the comparison."""

import random
from pathlib import Path
from typing import Any

from pagewire_shared.sampling.params import SamplingParams
from support.cells.exact_cells import Answer, ExactCell, Request, draw_weather
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.family_checkpoints import make_family_checkpoint

VOCAB = 512
NUM_REQUESTS = 40
"""Per architecture, each computed alone once."""

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "LlamaForCausalLM", "rope_scaling": "llama3"},
    "qwen2": {"architecture": "Qwen2ForCausalLM", "tied": True, "heads": 6, "head_dim": 16},
    "qwen3": {"architecture": "Qwen3ForCausalLM", "head_dim": 32},
    "mistral": {
        "architecture": "LlamaForCausalLM",
        "config": {"architectures": ["MistralForCausalLM"], "sliding_window": 40},
    },
}

FAMILIES = (
    *("gemma2", "gemma3", "phi3-longrope", "smollm3", "granite", "glm4", "olmo2", "starcoder2"),
    *("ministral", "ministral3", "qwen2-mixed", "qwen2-moe", "qwen3-moe", "glm4-moe"),
    "gpt-oss",
    "deepseek-v3",
)
"""Of FAMILY_CHECKPOINTS: those with a feature that the others do not have."""


def make_exact_checkpoint(folder: Path, name: str) -> Path:
    """Write one of CHECKPOINTS or FAMILIES and return its folder."""
    if name in FAMILIES:
        return make_family_checkpoint(folder, name)
    return make_checkpoint(folder / name, vocab=VOCAB, layers=3, **CHECKPOINTS[name])


Case = tuple[ExactCell, list[Request], list[Answer]]


def draw_requests(seed: int) -> list[Request]:
    """Return requests of which many begin alike."""
    generator = random.Random(seed)
    stems = [[generator.randrange(3, VOCAB) for _ in range(200)] for _ in range(3)]
    requests = []
    for _ in range(NUM_REQUESTS):
        stem = generator.choice(stems)[: generator.choice([0, 0, 15, 16, 33, 100])]
        own = [generator.randrange(3, VOCAB) for _ in range(generator.choice([1, 2, 16, 30]))]
        sampling = SamplingParams(
            temperature=generator.choice([0.0, 0.0, 0.8, 1.2]),
            top_p=generator.choice([1.0, 0.9]),
            top_k=generator.choice([0, 20]),
            repetition_penalty=generator.choice([1.0, 1.0, 1.1]),
            seed=generator.getrandbits(64),
            logprobs=generator.choice([None, 0, 3]),
            max_tokens=generator.choice([1, 3, 16, 40, 64]),
            ignore_eos=True,
        )
        requests.append(Request((*stem, *own), sampling))
    return requests


def check_batches(case: Case, num_batches: int, seed: int) -> None:
    """Compare so many random batches with the requests alone."""
    cell, requests, alone = case
    generator = random.Random(seed)
    longest = max(len(one.prompt) + (one.sampling.max_tokens or 0) for one in requests)
    for number in range(num_batches):
        chosen = generator.choices(range(NUM_REQUESTS), k=generator.choice([2, 4, 8, 16]))
        weather = draw_weather(generator, longest)
        answers = cell.run([requests[index] for index in chosen], weather)
        for index, answer in zip(chosen, answers, strict=True):
            assert answer == alone[index], (number, index, weather)
