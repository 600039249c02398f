"""The worker on a CUDA device: the same code, the same tokens."""

from pathlib import Path

import pytest

from pagewire import LLM, SamplingParams
from support.oracles.golden_cases import (
    CHECKPOINTS,
    NUM_TOKENS,
    make_golden_checkpoint,
    make_prompts,
)
from support.oracles.greedy import assert_equal_but_for_near_ties, greedy_by_transformers

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]


@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
@pytest.mark.parametrize("budget", [64, 2048])
@pytest.mark.parametrize("attention", ["sdpa", "triton"])
def test_greedy_on_cuda_equals_transformers(
    tmp_path: Path, name: str, budget: int, attention: str
) -> None:
    folder = make_golden_checkpoint(tmp_path, name)
    prompts = make_prompts()
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM(
        str(folder),
        device="cuda",
        dtype="float32",
        attention_backend=attention,
        max_num_batched_tokens=budget,
        max_model_len=720,
        kv_cache_memory="256MiB",
    ) as llm:
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in outputs]
    expected = greedy_by_transformers(folder, prompts, NUM_TOKENS)
    assert_equal_but_for_near_ties(tokens, expected, f"cuda {name} {attention} {budget}")
