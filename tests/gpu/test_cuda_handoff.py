"""Prompts computed on one worker of a CUDA device, tokens generated on another."""

import os
from pathlib import Path

import pytest

from pagewire import LLM, SamplingParams
from pagewire.local.devices import VARIABLE, visible_devices
from support.oracles.golden_cases import (
    CHECKPOINTS,
    NUM_TOKENS,
    make_golden_checkpoint,
    make_prompts,
)
from support.oracles.greedy import assert_equal_but_for_near_ties, greedy_by_transformers

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]


def test_handed_off_tokens_equal_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(visible_devices(os.environ)) == 1:
        # Both workers share it.
        monkeypatch.setenv(VARIABLE, "0,0")
    folder = make_golden_checkpoint(tmp_path, sorted(CHECKPOINTS)[0])
    prompts = make_prompts()
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM(
        str(folder),
        device="cuda",
        dtype="float32",
        max_num_batched_tokens=64,
        max_model_len=720,
        kv_cache_memory="256MiB",
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
    ) as llm:
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in outputs]
    expected = greedy_by_transformers(folder, prompts, NUM_TOKENS)
    assert_equal_but_for_near_ties(tokens, expected, "handed off on cuda")
