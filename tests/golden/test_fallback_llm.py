"""A model that only transformers knows, through `LLM`: frontend, scheduler and worker as processes
of their own."""

import random
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from pagewire import LLM, SamplingParams
from support.checkpoints.fallback_checkpoints import MAX_POSITIONS, VOCAB, make_served_checkpoint

NUM_TOKENS = 24
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)


def test_gpt_neox_through_llm(tmp_path: Path) -> None:
    folder = make_served_checkpoint(tmp_path, "gpt-neox", with_tokenizer=True)
    generator = random.Random(8)
    prompts = [
        [generator.randrange(3, VOCAB) for _ in range(length)] for length in (1, 17, 40, 120)
    ]
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    with LLM(
        str(folder),
        dtype="float32",
        block_size=8,
        max_num_batched_tokens=32,
        max_model_len=MAX_POSITIONS,
    ) as llm:
        outputs = llm.generate(requests, GREEDY, use_tqdm=False)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            min_new_tokens=NUM_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
        )[0, len(prompt) :]
        assert list(output.outputs[0].token_ids) == expected.tolist()
