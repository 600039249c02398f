"""The rules of requests hold in steps: against plain formulas over transformers' logits, in forks,
after failures, with steps in flight, and never for the next request of a slot."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from support.cells.worker_driver import GREEDY, PROMPT, Running, request
from support.oracles.plain_outputs import expected_tokens, ruled_params

NUM_TOKENS = 16
SHORT = PROMPT[:32]
"""Two full blocks: forks write into blocks of their own."""


def prompts(number):
    return [[(31 * row + 7 * place) % 512 for place in range(5 + 9 * row)] for row in range(number)]


@pytest.mark.parametrize("budget", [19, 256])
def test_mixed_batches_follow_the_plain_formulas(budget, llama, transformers_model):
    sequences = [
        Running(slot, prompt, ruled_params(slot), NUM_TOKENS, choice=slot % 3)
        for slot, prompt in enumerate(prompts(8))
    ]
    plain = llama.generate(prompts(8), max_tokens=NUM_TOKENS, budget=budget)
    llama.finish(sequences, budget=budget)
    model = transformers_model("llama")
    for one, unruled in zip(sequences, plain, strict=True):
        wanted = expected_tokens(model, one.prompt, one.output, one.sampling, choice=one.choice)
        assert one.output == wanted
        assert one.output != unruled


def fork_of_three(driver, sampling):
    """Return the outputs of three choices forked from slot 0 when the prompt is computed."""
    blocks = [[20, 21], [22, 23], [24, 25]]
    forks = {"fork_slots": [1, 2], "fork_sources": [0, 0], "fork_choices": [1, 2]}
    first = request(0, prompt=SHORT, sampling=sampling, blocks=blocks[0])
    rows = [(0, 0, 32, 1, 0), (1, 32, 0, 1, 0), (2, 32, 0, 1, 0)]
    results = [driver.run_well(rows, new_sequences=[first], **forks)]
    for place in range(32, 32 + NUM_TOKENS - 1):
        rows = [(slot, place, 1, 1, int(place % 16 == 0)) for slot in range(3)]
        new_blocks = [30 + place + slot for slot in range(3)] if place % 16 == 0 else []
        results.append(driver.run_well(rows, new_block_ids=new_blocks))
    driver.freed = [0, 1, 2]
    return [[int(result.token_ids[slot]) for result in results] for slot in range(3)]


@pytest.mark.parametrize("number", range(4))
def test_forks_carry_rules_and_penalties(number, llama, transformers_model):
    outputs = fork_of_three(llama, ruled_params(number))
    for choice, output in enumerate(outputs):
        sampling = ruled_params(number)
        wanted = expected_tokens(
            transformers_model("llama"), SHORT, output, sampling, choice=choice
        )
        assert output == wanted


def test_a_fork_onto_a_slot_that_had_rules_has_those_of_its_source(llama):
    expected = fork_of_three(llama, GREEDY)
    llama.finish([Running(slot, SHORT, ruled_params(1), 4) for slot in (1, 2)], budget=64)
    assert fork_of_three(llama, GREEDY) == expected


def test_an_undone_fork_leaves_no_rules(llama, monkeypatch):
    (expected,) = llama.generate([SHORT], max_tokens=6)
    forks = {"fork_slots": [1], "fork_sources": [0], "fork_choices": [1]}
    first = request(0, prompt=SHORT, sampling=ruled_params(0))
    with monkeypatch.context() as patch:
        patch.setattr(llama.model_runner.backend, "forward", lambda batch: 1 / 0)
        rows = [(0, 0, 32, 1, 0), (1, 32, 0, 1, 0)]
        assert llama.run(rows, new_sequences=[first], **forks).failure is not None
    for slot in range(2):
        sequence = Running(slot, SHORT, GREEDY, 6)
        llama.finish([sequence], budget=64)
        assert sequence.output == expected


def test_a_slot_used_again_has_none_of_the_rules_before(llama):
    sampled = SamplingParams(seed=5, max_tokens=None)
    for sampling in (GREEDY, sampled):
        (expected,) = llama.generate([PROMPT], sampling, max_tokens=10, slots=[7])
        for number in range(4):
            prompt_too = ruled_params(number).with_(logprobs=3, prompt_logprobs=3, min_tokens=9)
            llama.generate([PROMPT], prompt_too, max_tokens=3, slots=[4])
            again = Running(4, PROMPT, sampling, 10)
            results = llama.finish([again], budget=64)
            assert again.output == expected
            assert all(result.prompt is None for result in results)
            assert all(len(result.logprobs) == 0 for result in results)


def test_an_empty_slot_keeps_nothing(llama):
    llama.generate([PROMPT], ruled_params(1), max_tokens=2, slots=[4])
    llama.run_well([])
    table = llama.model_runner._slots.sampling
    assert (table._rules, table._stop_ids) == ({}, {})


def test_resumed_sequences_count_what_they_emitted(llama):
    whole = Running(0, PROMPT, ruled_params(2), 14)
    llama.finish([whole], budget=64)
    emitted = whole.output[:8]
    again = request(3, sampling=whole.sampling, emitted_token_ids=emitted, blocks=[10, 11, 12])
    outputs = [llama.run_well([(3, 0, 48, 1, 0)], new_sequences=[again]).token_ids]
    for place in range(48, 53):
        blocks = [13] if place == 48 else []
        rows = [(3, place, 1, 1, len(blocks))]
        outputs.append(llama.run_well(rows, new_block_ids=blocks).token_ids)
    assert [int(ids[0]) for ids in outputs] == whole.output[8:]


def test_a_repeated_step_counts_nothing_twice(llama, monkeypatch):
    sampling = SamplingParams(
        temperature=0, max_tokens=None, frequency_penalty=1.0, repetition_penalty=1.2
    )
    (expected,) = llama.generate([SHORT], sampling, max_tokens=12)
    driver, slots = llama, llama.model_runner._slots
    first = request(0, prompt=SHORT, sampling=sampling, blocks=[3, 4])
    output = [int(driver.run_well([(0, 0, 32, 1, 0)], new_sequences=[first]).token_ids[0])]
    for place in range(32, 43):
        blocks = [5] if place == 32 else []
        rows = [(0, place, 1, 1, len(blocks))]
        with monkeypatch.context() as patch:
            # Late: what was sampled has been written behind the sequence.
            patch.setattr(slots, "commit", lambda *arguments: 1 / 0)
            assert driver.run(rows, new_block_ids=blocks).failure is not None
        output.append(int(driver.run_well(rows, new_block_ids=blocks).token_ids[0]))
    assert output == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {3: 1.0, 512: 1.0}),
        ("allowed_token_ids", (3, 600)),
        ("bad_token_sequences", ((3,), (512, 4))),
    ],
)
def test_ids_that_the_vocabulary_lacks_are_refused(field, value, llama):
    sampling = SamplingParams(temperature=0, max_tokens=None, **{field: value})
    new = [request(1, blocks=[3, 4, 5]), request(2, sampling=sampling)]
    rows = [(1, 0, 40, 1, 0), (2, 0, 40, 1, 0)]
    result = llama.run(rows, new_sequences=new)
    assert f"slot 2: {field}: token id {600 if field[0] == 'a' else 512}" in result.failure.message
    assert result.failure.culprit_slots == (2,)
    assert llama.model_runner.audit().slots == ()


def test_only_rows_that_ask_are_counted(llama, monkeypatch):
    counted = []
    history = "pagewire_worker.sampling.token_history.TokenHistory.counts"
    monkeypatch.setattr(history, lambda self, rows, vocab: counted.append(rows) or 1 / 0)
    llama.generate([PROMPT], ruled_params(1).with_(presence_penalty=0), max_tokens=2)
    assert counted == []


def test_a_fork_copies_every_column():
    limits = SlotLimits(num_slots=2, num_blocks=8, block_size=16, max_model_len=64, vocab_size=512)
    sampling = SlotTable(limits, torch.device("cpu")).sampling
    held = [*vars(sampling).values(), *sampling._numbers.values()]
    arrays = [value for value in held if isinstance(value, np.ndarray)]
    assert {id(array) for array in arrays} == {id(array) for array in sampling._columns()}
