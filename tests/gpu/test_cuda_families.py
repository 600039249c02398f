"""Families of the native decoder on a CUDA device: tokens equal transformers' own in float32."""

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from support.cells.worker_driver import Driver, load
from support.checkpoints.fallback_checkpoints import VOCAB
from support.oracles.family_checkpoints import (
    FAMILY_CHECKPOINTS,
    MAX_POSITIONS,
    make_family_checkpoint,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

LENGTHS = (1, 41, 3, 90, 17, 64, 2, 33)
NEAR_TIE = 1e-3
"""Sums of a device and of a CPU have other orders."""


@pytest.mark.parametrize("name", sorted(FAMILY_CHECKPOINTS))
@torch.inference_mode()
def test_tokens_equal_transformers(tmp_path: Path, name: str) -> None:
    """Prompts longer than a step's budget, beside sequences that decode in graphs."""
    folder = make_family_checkpoint(tmp_path, name)
    plain = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    replica = load(
        folder,
        device="cuda",
        dtype="float32",
        attention_backend="triton",
        model_impl="native",
        max_model_len=MAX_POSITIONS,
        max_num_seqs=8,
        kv_cache_memory=2**26,
    )
    generator = random.Random(3)
    prompts = [[generator.randrange(3, VOCAB) for _ in range(size)] for size in LENGTHS]
    outputs = Driver.of(replica).generate(prompts, max_tokens=24, budget=24)
    assert len({tuple(output) for output in outputs}) > len(prompts) // 2
    for prompt, output in zip(prompts, outputs, strict=True):
        logits = plain(torch.tensor([[*prompt, *output]]), use_cache=False).logits[0]
        seen = logits[len(prompt) - 1 : -1]
        chosen = seen.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (seen.max(dim=1).values - chosen < NEAR_TIE).all(), (name, len(prompt))
