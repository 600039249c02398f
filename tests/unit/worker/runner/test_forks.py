"""Slots that become copies of others: choices of one prompt, copy on write, and what is undone."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from support.cells.worker_driver import PROMPT, Running, request, start

SAMPLING = SamplingParams(seed=77, temperature=1.0, top_p=0.95, logprobs=2, max_tokens=None)
NUM_TOKENS = 12


def separate_choices(driver, num_choices):
    """Return tokens and logprobs of choices that compute the prompt each for itself."""
    tokens, logprobs = [], []
    for choice in range(num_choices):
        one = Running(10 + choice, PROMPT, SAMPLING, NUM_TOKENS, choice=choice)
        while len(one.output) < NUM_TOKENS:
            driver.step([one], budget=64)
        tokens.append(one.output)
        logprobs.append([float(result.logprobs[0]) for result in one.results])
        driver.release(one)
    return tokens, logprobs


def forked_choices(driver, first_steps, forks):
    """Run `first_steps`, the last of which forks, then decode all three; tokens are never fed."""
    *before, (rows, fields) = first_steps
    for earlier, given in before:
        driver.run_well(earlier, **given)
    results = [driver.run_well(rows, **fields, **forks)]
    # The last block of the prompt is shared until here: two of the three get a copy.
    copies = {"copy_slots": [1, 2], "copy_sources": [202, 202], "copy_destinations": [205, 206]}
    for position in range(len(PROMPT), len(PROMPT) + NUM_TOKENS - 1):
        is_full = position % 16 == 0
        rows = [(slot, position, 1, 1, int(is_full)) for slot in range(3)]
        blocks = [207, 208, 209] if is_full else []
        results.append(driver.run_well(rows, new_block_ids=blocks, **copies))
        copies = {}
    return np.array([r.token_ids for r in results]).T, np.array([r.logprobs for r in results]).T


def prompt_request(**fields):
    return request(0, sampling=SAMPLING, **{"blocks": [200, 201, 202], **fields})


IDLE = [(1, 40, 0, 1, 0), (2, 40, 0, 1, 0)]
GROWING = [(slot, start, num, 1, 1) for slot, start, num in ((0, 32, 8), (1, 40, 0), (2, 40, 0))]
FIRST_STEPS = {
    "one chunk": [([(0, 0, 40, 1, 0), *IDLE], {"new_sequences": [prompt_request()]})],
    "two chunks": [
        ([(0, 0, 32, 0, 0)], {"new_sequences": [prompt_request()]}),
        ([(0, 32, 8, 1, 0), *IDLE], {}),
    ],
    "a last chunk with a new block": [
        ([(0, 0, 32, 0, 0)], {"new_sequences": [prompt_request(blocks=[200, 201])]}),
        (GROWING, {"new_block_ids": [202, 202, 202]}),
    ],
    "the source is not the first row": [
        ([(0, 0, 32, 0, 0)], {"new_sequences": [prompt_request()]}),
        ([IDLE[0], (0, 32, 8, 1, 0), IDLE[1]], {}),
    ],
}


@pytest.mark.parametrize("attention", ["reference", "sdpa"])
@pytest.mark.parametrize("name", FIRST_STEPS)
def test_forked_choices_equal_separate_ones(name, attention, driver):
    one = driver("llama", block_size=16, attention_backend=attention)
    expected, expected_logprobs = separate_choices(one, 3)
    forks = {"fork_slots": [1, 2], "fork_sources": [0, 0], "fork_choices": [1, 2]}
    tokens, logprobs = forked_choices(one, FIRST_STEPS[name], forks)
    if name == "the source is not the first row":
        # Results come in the order of the rows of the step.
        tokens[[0, 1], 0], logprobs[[0, 1], 0] = tokens[[1, 0], 0], logprobs[[1, 0], 0]
    assert tokens.tolist() == expected
    np.testing.assert_allclose(logprobs, expected_logprobs, atol=1e-4)
    assert len({tuple(choice) for choice in expected}) == 3


def test_a_copy_leaves_the_sibling_untouched(llama):
    llama.run_well(
        [(0, 0, 40, 1, 0), (1, 40, 0, 1, 0)],
        new_sequences=[request(0)],
        fork_slots=[1],
        fork_sources=[0],
        fork_choices=[1],
    )
    assert llama.model_runner.audit().num_blocks_in_tables == 3
    layers = llama.model_runner.backend.kv_cache.layers
    before = [layer.key[2].clone() for layer in layers]
    copy = {"copy_slots": [1], "copy_sources": [2], "copy_destinations": [7]}
    llama.run_well([(1, 40, 1, 1, 0)], **copy)
    for layer, kept in zip(layers, before, strict=True):
        assert torch.equal(layer.key[2], kept)
        # One token more, whatever the order within a block.
        assert 0 < (layer.key[7] != kept).sum() <= kept[0].numel()
        assert not torch.equal(layer.key[7, 8], kept[8])
    audit = llama.model_runner.audit()
    assert audit.num_blocks_in_tables == 4
    assert audit.findings == ()


def test_all_sources_are_read_before_any_block_is_written(llama):
    start(llama)
    layer = llama.model_runner.backend.kv_cache.layers[1]
    first, second = layer.value[0].clone(), layer.value[1].clone()
    copies = {"copy_slots": [0, 0], "copy_sources": [0, 1], "copy_destinations": [1, 9]}
    llama.run_well([], **copies)
    assert torch.equal(layer.value[1], first)
    assert torch.equal(layer.value[9], second)


def test_a_copied_block_has_no_name(llama):
    names = {"named_blocks": [1, 7], "names": [b"a" * 16, b"b" * 16]}
    llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)], **names)
    llama.run_well([], copy_slots=[0], copy_sources=[1], copy_destinations=[7])
    assert llama.model_runner.blocks.held_names() == {1: b"a" * 16}


def other(slot, **fields):
    return request(slot, request_id=b"another request!", **fields)


FORK = {"fork_slots": [1], "fork_sources": [0], "fork_choices": [1]}
COPY = {"copy_slots": [0], "copy_sources": [2], "copy_destinations": [9]}
NEXT = (0, 40, 1, 1, 0)
BAD_PLANS = {
    "is empty": ([NEXT], {**FORK, "fork_sources": [8]}),
    "slot 4000 does not exist": ([NEXT], {**FORK, "fork_slots": [4000]}),
    "slot 4001 does not exist": ([NEXT], {**FORK, "fork_sources": [4001]}),
    "taken by another": ([NEXT], {**FORK, "fork_slots": [3]}),
    "named twice": ([NEXT], {name: [value[0]] * 2 for name, value in FORK.items()}),
    "differ in length: 1 fork_slots": ([NEXT], {**FORK, "fork_choices": []}),
    "nothing to compute": ([NEXT, (3, 40, 0, 1, 0)], FORK),
    "neither computes nor samples": ([NEXT, (1, 40, 0, 0, 0)], FORK),
    "does not sample now": ([(1, 40, 0, 1, 0)], FORK),
    "does not sample": ([(0, 40, 1, 0, 0), (1, 41, 0, 1, 0)], FORK),
    "not where its source": ([NEXT, (1, 40, 0, 1, 0)], FORK),
    "its source 3 does not sample": (
        [NEXT, (4, 40, 0, 1, 0)],
        {"fork_slots": [4], "fork_sources": [3], "fork_choices": [1]},
    ),
    "does not hold block 30": ([NEXT], {**FORK, **COPY, "copy_sources": [30]}),
    "does not hold block 2 ": ([NEXT], {**FORK, **COPY, "copy_slots": [8]}),
    "copy does not exist": ([NEXT], {**FORK, **COPY, "copy_destinations": [10**6]}),
    "copy_destinations: one": (
        [NEXT],
        {**FORK, "copy_slots": [0, 1], "copy_sources": [2, 2], "copy_destinations": [9, 9]},
    ),
    "differ in length: 0 copy_slots": ([NEXT], {**FORK, **COPY, "copy_slots": []}),
    "slot 4002 does not exist": ([NEXT], {**FORK, **COPY, "copy_slots": [4002]}),
    "no beam": ([NEXT], {**FORK, **COPY, "appended_slots": [0], "appended_token_ids": [5]}),
    "tokens that are not known": ([(0, 41, 1, 1, 0)], {**FORK, **COPY}),
}


@pytest.mark.parametrize("text", BAD_PLANS)
def test_a_bad_plan_is_refused_and_changes_nothing(text, llama):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    name = {"named_blocks": [9], "names": [b"n" * 16]}
    first = start(llama)
    llama.run_well([(3, 0, 40, 0, 0)], new_sequences=[other(3, blocks=[4, 5, 6])], **name)
    layer = llama.model_runner.backend.kv_cache.layers[0]
    before = layer.key.clone()
    rows, fields = BAD_PLANS[text]
    result = llama.run(rows, **fields)
    assert result.failure is not None
    assert text.strip() in result.failure.message
    assert torch.equal(layer.key, before)
    assert llama.model_runner.blocks.held_names() == {9: b"n" * 16}
    audit = llama.model_runner.audit()
    assert (audit.slots, audit.num_blocks_in_tables, audit.findings) == ((0, 3), 6, ())
    second = llama.run_well([NEXT])
    assert [*first.token_ids, *second.token_ids] == expected[:2]


def test_a_fork_is_undone_when_the_model_breaks(llama, monkeypatch):
    (expected,) = llama.generate([PROMPT], max_tokens=4)
    start(llama)
    with monkeypatch.context() as patch:
        patch.setattr(llama.model_runner.backend, "forward", lambda batch: 1 / 0)
        assert llama.run([NEXT, (1, 41, 0, 1, 0)], **FORK, **COPY).failure is not None
    audit = llama.model_runner.audit()
    assert (audit.slots, audit.num_blocks_in_tables) == ((0,), 3)
    results = [llama.run_well([(0, 40 + i, 1, 1, 0)]) for i in range(3)]
    assert [int(r.token_ids[0]) for r in results] == expected[1:]


def test_a_fork_needs_the_blocks_that_its_source_gets_in_the_same_plan(llama):
    llama.run_well([(0, 0, 32, 0, 0)], new_sequences=[request(0, blocks=[0, 1])])
    result = llama.run([(0, 32, 8, 1, 1), (1, 40, 0, 1, 0)], new_block_ids=[2], **FORK)
    assert "too few blocks" in result.failure.message
    assert result.failure.culprit_slots == (1,)


def test_a_fork_keeps_stop_tokens_and_min_tokens(llama):
    (likely,) = llama.generate([PROMPT], max_tokens=1)
    sampling = SamplingParams(temperature=0, max_tokens=None, min_tokens=1)
    new = request(0, sampling=sampling, eos_token_ids=likely)
    result = llama.run_well([(0, 0, 40, 1, 0), (1, 40, 0, 1, 0)], new_sequences=[new], **FORK)
    assert result.token_ids[0] == result.token_ids[1] != likely[0]
