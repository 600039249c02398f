"""Attention within a window: equal to transformers, blind to blocks before the window."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire_protos.common.v1 import layout_pb2
from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.families.qwen import qwen_windows
from pagewire_worker.families.windows import no_windows, one_window
from pagewire_worker.offload.layout_convert import layout_to_message
from support.cells.worker_driver import GREEDY, Driver, Running, load, request
from support.checkpoints.checkpoints import make_checkpoint

WINDOW = 13
BLOCK_SIZE = 4
PROMPT = [(37 * i * i + 11 * i) % 512 for i in range(41)]
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama checkpoint under the name of Mistral: the weights have one layout."""
    made = make_checkpoint(tmp_path_factory.mktemp("mistral"), with_tokenizer=False)
    path = made / "config.json"
    config = json.loads(path.read_text())
    config |= {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": WINDOW,
        "head_dim": None,
    }
    path.write_text(json.dumps(config))
    return made


@pytest.fixture(scope="module")
def oracle(folder):
    """Return a function that gives transformers' logits [length, vocab] of a sequence."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert type(model).__name__ == "MistralForCausalLM"

    @torch.inference_mode()
    def logits(ids):
        return model(torch.tensor([ids])).logits[0]

    return logits


@pytest.fixture
def mistral(folder):
    return lambda attention: Driver.of(
        load(folder, block_size=BLOCK_SIZE, attention_backend=attention)
    )


def assert_greedy(oracle, prompt, output):
    expected = oracle([*prompt, *output])[len(prompt) - 1 : -1]
    assert output == expected.argmax(-1).tolist()


@pytest.mark.parametrize("budget", [7, 16, 64])
@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_greedy_tokens_equal_transformers(attention, budget, mistral, oracle):
    (output,) = mistral(attention).generate([PROMPT], max_tokens=NUM_TOKENS, budget=budget)
    assert_greedy(oracle, PROMPT, output)


@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_mixed_batches_equal_transformers(attention, mistral, oracle):
    prompts = [PROMPT[:length] for length in (1, 3, 41, 12, 13, 14, 2, 30)]
    outputs = mistral(attention).generate(prompts, max_tokens=NUM_TOKENS, budget=24)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert_greedy(oracle, prompt, output)


def logprobs_of(driver, prompt):
    """Return the log-probabilities [vocab] behind `prompt`."""
    new = request(0, prompt=prompt, blocks=range(11), num_candidates=512)
    result = driver.run([(0, 0, len(prompt), 1, 0)], new_sequences=[new])
    driver.freed.append(0)
    return result.top_logprobs[np.argsort(result.top_token_ids)]


@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_two_layers_reach_back_two_windows_and_no_further(attention, mistral):
    one = mistral(attention)
    before = logprobs_of(one, PROMPT)
    furthest = len(PROMPT) - 1 - 2 * (WINDOW - 1)
    changed = {}
    for position in (furthest, furthest - 1):
        other = [*PROMPT]
        other[position] = (other[position] + 1) % 512
        changed[position] = logprobs_of(one, other)
    assert np.abs(changed[furthest] - before).max() > 1e-3
    np.testing.assert_allclose(changed[furthest - 1], before, atol=1e-5)


@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_blocks_before_the_window_may_hold_anything(attention, mistral):
    one = mistral(attention)
    prompts = [PROMPT, PROMPT[5:]]
    expected = one.generate(prompts, max_tokens=NUM_TOKENS, budget=16)
    sequences = [Running(slot, p, GREEDY, NUM_TOKENS) for slot, p in enumerate(prompts)]
    num_damaged = 0
    while any(len(s.output) < NUM_TOKENS for s in sequences):
        one.step([s for s in sequences if len(s.output) < NUM_TOKENS], budget=16)
        damaged = list(one.free_blocks)
        for sequence in sequences:
            first_needed = max(0, sequence.num_computed - WINDOW + 1) // BLOCK_SIZE
            damaged += sequence.blocks[:first_needed]
            num_damaged += first_needed
        with torch.inference_mode():
            for layer in one.model_runner.backend.kv_cache.layers:
                layer.key[damaged] = float("nan")
                layer.value[damaged] = float("nan")
    assert num_damaged > 100
    assert [s.output for s in sequences] == expected


@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_a_block_given_back_may_return_to_the_same_sequence(attention, mistral):
    one = mistral(attention)
    (expected,) = one.generate([PROMPT], max_tokens=9, budget=64)
    blocks = list(range(11))
    prompt = request(0, prompt=PROMPT, blocks=blocks)
    tokens = [one.run([(0, 0, len(PROMPT), 1, 0)], new_sequences=[prompt]).token_ids[0]]
    for position in range(len(PROMPT), len(PROMPT) + 8):
        needs_block = position == 11 * BLOCK_SIZE
        # Block 0 holds positions 0 to 3: the window left them behind long ago.
        new = [0] if needs_block else [1] if position == 12 * BLOCK_SIZE else []
        result = one.run_well([(0, position, 1, 1, len(new))], new_block_ids=new)
        tokens.append(result.token_ids[0])
    assert tokens == expected
    assert one.model_runner.audit().findings == ()


def test_a_copy_replaces_the_block_within_the_window(mistral):
    one = mistral("sdpa")
    new = request(0, prompt=PROMPT, blocks=[5, *range(10, 19), 5])
    one.run_well([(0, 0, 41, 0, 0)], new_sequences=[new])
    copy = {"copy_slots": [0], "copy_sources": [5], "copy_destinations": [7]}
    one.run_well([], **copy)
    assert one.model_runner._slots.block_table[0, [0, 10]].tolist() == [5, 7]


def test_the_hello_says_what_kind_of_cache_it_is(folder, checkpoint):
    sliding = layout_to_message(load(folder).info.layout).groups[0]
    full = layout_to_message(load(checkpoint("llama")).info.layout).groups[0]
    assert sliding.kind == layout_pb2.CACHE_KIND_SLIDING
    assert full.kind == layout_pb2.CACHE_KIND_FULL


def test_the_first_visible_position():
    metadata = AttentionMetadata(
        query_starts=np.array([0, 1, 4, 9]),
        seq_lens=np.array([20, 20, 5]),
        block_tables=np.zeros((3, 5), dtype=np.int64),
    )
    assert metadata.first_visible(8).tolist() == [12, 10, 0]
    assert metadata.first_visible(None).tolist() == [0, 0, 0]


SIZES = {"num_hidden_layers": 2}
QWEN = {"use_sliding_window": True, "sliding_window": 9}
SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("rule", "data", "windows"),
    [
        (one_window, {}, (4096, 4096)),
        (one_window, {"sliding_window": None}, (None, None)),
        (one_window, {"sliding_window": 7}, (7, 7)),
        (one_window, {"sliding_window": 7, "layer_types": [SLIDING]}, (7, 7)),
        (qwen_windows, {"sliding_window": 7}, (None, None)),
        (qwen_windows, {"use_sliding_window": False, "sliding_window": 7}, (None, None)),
        (qwen_windows, {**QWEN, "max_window_layers": 0}, (9, 9)),
        (qwen_windows, {**QWEN, "max_window_layers": 1}, (None, 9)),
        (qwen_windows, {**QWEN, "max_window_layers": 2}, (None, None)),
        (qwen_windows, QWEN, (None, None)),
        (qwen_windows, {**QWEN, "layer_types": [SLIDING, FULL]}, (9, None)),
        (no_windows, {"layer_types": [FULL]}, (None, None)),
    ],
)
def test_windows_of_configs(rule, data, windows):
    assert rule({**SIZES, **data}) == windows


@pytest.mark.parametrize(
    ("rule", "data", "named"),
    [
        (one_window, {"sliding_window": 0}, "sliding_window"),
        (one_window, {"sliding_window": "9"}, "sliding_window"),
        (one_window, {"sliding_window": 9, "layer_types": [FULL, SLIDING]}, "layer_types"),
        (one_window, {"sliding_window": None, "layer_types": [SLIDING]}, "layer_types"),
        (qwen_windows, {**QWEN, "sliding_window": None}, "sliding_window"),
        (qwen_windows, {**QWEN, "layer_types": [SLIDING]}, "2 entries"),
        (qwen_windows, {**QWEN, "layer_types": [SLIDING, "chunked"]}, "layer_types"),
        (qwen_windows, {"layer_types": [SLIDING]}, "sliding"),
        (no_windows, {"use_sliding_window": True}, "sliding"),
    ],
)
def test_windows_that_are_refused(rule, data, named):
    with pytest.raises(StartupError, match=named):
        rule({**SIZES, **data})
