"""The golden comparison once more through `LLM`: frontend, scheduler and worker as processes of
their own."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast

from pagewire import LLM, SamplingParams
from pagewire_shared.errors import InvalidRequestError
from support.oracles.golden_cases import NUM_TOKENS, make_golden_checkpoint, make_prompts
from support.oracles.greedy import (
    Greedy,
    assert_equal_but_for_near_ties,
    greedy_by_transformers,
    greedy_of_model,
)
from support.oracles.nested_checkpoints import make_nested_checkpoint
from support.products import WHOLE

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

IN_SHORT_RUN = (1,)
"""Of CASES: a prefix cache that is warm. Small pools and two workers are in tests of their own."""


Prepare = Callable[[str], tuple[Path, list[Greedy]]]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Make a checkpoint and its reference the first time its name is asked for."""

    @functools.cache
    def make(name: str) -> tuple[Path, list[Greedy]]:
        folder = make_golden_checkpoint(tmp_path_factory.mktemp("golden"), name)
        return folder, greedy_by_transformers(folder, make_prompts(), NUM_TOKENS)

    return make


@pytest.mark.parametrize(
    ("name", "num_warming", "keywords"),
    [
        pytest.param(*case, marks=[] if number in IN_SHORT_RUN else WHOLE)
        for number, case in enumerate(CASES)
    ],
)
def test_greedy_through_llm(
    prepare: Prepare, name: str, num_warming: int, keywords: dict[str, Any]
) -> None:
    folder, expected = prepare(name)
    prompts = make_prompts()
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    with LLM(str(folder), dtype="float32", max_num_seqs=32, max_model_len=720, **keywords) as llm:
        for _ in range(num_warming):
            llm.generate(requests, GREEDY.with_(max_tokens=1), use_tqdm=False)
        outputs = llm.generate(requests, GREEDY, use_tqdm=False)
    tokens = [output.outputs[0].token_ids for output in outputs]
    assert_equal_but_for_near_ties(tokens, expected, f"LLM {name} {keywords}")
    assert {output.outputs[0].finish_reason for output in outputs} == {"length"}


PARTS_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_chat_with_the_text_model_of_a_checkpoint_for_images(tmp_path: Path) -> None:
    """Template and limits are where a processor and text_config have them."""
    folder = make_nested_checkpoint(tmp_path, "qwen3-vl", with_tokenizer=True)
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": PARTS_TEMPLATE}))
    said = [[{"role": "user", "content": text}] for text in ("one two", "three")]
    parts = [{"type": "text", "text": "three"}]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    prompts = [
        tokenizer.encode(
            f"<|im_start|>user\n{turns[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
        )
        for turns in said
    ]
    with LLM(str(folder), dtype="float32", max_num_seqs=4, language_model_only=True) as llm:
        outputs = llm.chat([*said, [{"role": "user", "content": parts}]], GREEDY, use_tqdm=False)
        with pytest.raises(InvalidRequestError, match="messages: images are not supported"):
            llm.chat([{"role": "user", "content": [{"type": "image_url"}]}], GREEDY)
    assert [output.prompt_token_ids for output in outputs] == [*prompts, prompts[1]]
    plain = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    expected = greedy_of_model(plain, prompts, NUM_TOKENS)
    tokens = [output.outputs[0].token_ids for output in outputs]
    assert tokens[2] == tokens[1]
    assert_equal_but_for_near_ties(tokens[:2], expected, "text of qwen3-vl")
