"""Beam search against transformers, float32: the same four sequences in the same order.

The checkpoints have random weights and no end token of their own, so some tokens are declared to
end a sequence: many searches end before max_tokens, and by all three rules of early_stopping.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire import LLM, SamplingParams
from support.oracles.golden_cases import make_golden_checkpoint, make_prompts
from support.products import WHOLE
from support.traffic.streams import audit

WIDTH = 4
NUM_TOKENS = 24
NUM_PROMPTS = 32
ENDS = tuple(range(40, 60))
RULES: list[tuple[bool | str, float]] = [(False, 1.0), (True, 1.0), ("never", 1.0), (False, 0.0)]


def rule_of(index: int) -> tuple[bool | str, float]:
    return RULES[index % len(RULES)]


def search_by_transformers(folder: Path, prompts: list[list[int]]) -> list[list[list[int]]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = []
    for index, prompt in enumerate(prompts):
        early_stopping, length_penalty = rule_of(index)
        ids = torch.tensor([prompt])
        sequences = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=WIDTH,
            num_return_sequences=WIDTH,
            max_new_tokens=NUM_TOKENS,
            early_stopping=early_stopping,
            length_penalty=length_penalty,
            eos_token_id=list(ENDS),
            pad_token_id=0,
        )
        found.append([cut_at_the_end(row.tolist()[len(prompt) :]) for row in sequences])
    return found


def cut_at_the_end(tokens: list[int]) -> list[int]:
    """Return `tokens` without the padding behind their end token."""
    for position, token in enumerate(tokens):
        if token in ENDS:
            return tokens[: position + 1]
    return tokens


# (checkpoint, whether there are so few blocks that searches give way to each other and start again,
# keywords)
CASES: list[tuple[str, bool, dict[str, Any]]] = [
    ("llama", False, {"block_size": 8, "steps_in_flight": 2}),
    ("qwen3", True, {"block_size": 16, "kv_cache_memory": 1280 * 4 * 2 * 64 * 2 * 4}),
]


@pytest.mark.parametrize(
    ("name", "gives_way", "keywords"), [pytest.param(*CASES[0], marks=WHOLE), CASES[1]]
)
def test_beam_search_equals_transformers(
    tmp_path: Path, name: str, gives_way: bool, keywords: dict[str, Any]
) -> None:
    folder = make_golden_checkpoint(tmp_path, name)
    prompts = [prompt for prompt in make_prompts() if len(prompt) <= 256][:NUM_PROMPTS]
    params = [
        SamplingParams(
            n=WIDTH,
            use_beam_search=True,
            early_stopping=early_stopping,
            length_penalty=length_penalty,
            max_tokens=NUM_TOKENS,
            temperature=0.0,
            stop_token_ids=ENDS,
            ignore_eos=True,
        )
        for early_stopping, length_penalty in map(rule_of, range(len(prompts)))
    ]
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    with LLM(str(folder), dtype="float32", max_num_seqs=32, max_model_len=720, **keywords) as llm:
        outputs = llm.generate(requests, params, use_tqdm=False)
        report = asyncio.run(audit(llm.cluster.grpc_address))
    if gives_way:
        assert report.scheduler.num_preemptions > 0
    found = [[list(one.token_ids) for one in output.outputs] for output in outputs]
    expected = search_by_transformers(folder, prompts)
    assert len(found) == NUM_PROMPTS
    for rule in range(len(RULES)):
        lengths = {len(tokens) for one in expected[rule :: len(RULES)] for tokens in one}
        assert min(lengths) < NUM_TOKENS, f"{RULES[rule]} ended no search"
    wrong = [index for index in range(NUM_PROMPTS) if found[index] != expected[index]]
    assert not wrong, (wrong, found[wrong[0]], expected[wrong[0]])
