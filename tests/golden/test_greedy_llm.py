"""The golden comparison once more through `LLM`: frontend, scheduler and worker as processes of
their own."""

from pathlib import Path
from typing import Any

import pytest

from pagewire import LLM, SamplingParams
from support.oracles.golden_cases import NUM_TOKENS, make_golden_checkpoint, make_prompts
from support.oracles.greedy import assert_equal_but_for_near_ties, greedy_by_transformers

GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)

# (checkpoint, runs before the one that counts, keywords)
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("llama", 0, {"block_size": 16, "max_num_batched_tokens": 32, "steps_in_flight": 1}),
    ("qwen2", 1, {"block_size": 16, "max_num_batched_tokens": 2048, "steps_in_flight": 2}),
    # 1280 tokens of KV cache: 4 layers, 2 KV heads of 64, keys and values in float32.
    ("qwen3", 0, {"block_size": 16, "kv_cache_memory": 1280 * 4 * 2 * 64 * 2 * 4}),
    ("llama", 0, {"block_size": 32, "num_workers": 2, "enable_prefix_caching": False}),
    ("llama", 0, {"block_size": 8, "cpu_backend": "torch"}),
]


@pytest.mark.parametrize(("name", "num_warming", "keywords"), CASES)
def test_greedy_through_llm(
    tmp_path: Path, name: str, num_warming: int, keywords: dict[str, Any]
) -> None:
    folder = make_golden_checkpoint(tmp_path, name)
    prompts = make_prompts()
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    with LLM(str(folder), dtype="float32", max_num_seqs=32, max_model_len=720, **keywords) as llm:
        for _ in range(num_warming):
            llm.generate(requests, GREEDY.with_(max_tokens=1), use_tqdm=False)
        outputs = llm.generate(requests, GREEDY, use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in outputs]
    expected = greedy_by_transformers(folder, prompts, NUM_TOKENS)
    assert_equal_but_for_near_ties(tokens, expected, f"LLM {name} {keywords}")
    assert {output.outputs[0].finish_reason for output in outputs} == {"length"}
