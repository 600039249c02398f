"""A prompt that begins like that of another slot: it is copied there, whatever else is asked."""

import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.plan.plan_error import PlanError
from support.cells.worker_driver import GREEDY, PROMPT, request, start

OTHER = [*PROMPT[:32], 5, 6, 7]
PENALIZED = SamplingParams(
    temperature=0.8,
    seed=3,
    repetition_penalty=1.5,
    frequency_penalty=0.7,
    prompt_logprobs=2,
    max_tokens=None,
)


def run_alone(driver, sampling, **prefix):
    """Run OTHER and some of its output from its own blocks, its prompt told as `prefix` says."""
    told = {"prompt": OTHER, "emitted_token_ids": [9, 8], **prefix}
    new = request(1, blocks=[100, 101, 102], sampling=sampling, **told)
    rows = [(1, 0, len(OTHER) + 2, 1, 0)]
    results = [driver.run_well(rows, new_sequences=[new])]
    for position in range(len(OTHER) + 2, len(OTHER) + 7):
        results.append(driver.run_well([(1, position, 1, 1, 0)]))
    driver.freed.append(1)
    return results


@pytest.mark.parametrize("sampling", [GREEDY, PENALIZED], ids=["greedy", "penalized"])
def test_a_copied_prefix_is_the_prompt(sampling, llama):
    start(llama)
    expected = run_alone(llama, sampling)
    results = run_alone(llama, sampling, prompt=OTHER[32:], prefix_slot=0, num_prefix_tokens=32)
    for one, other in zip(results, expected, strict=True):
        assert list(one.token_ids) == list(other.token_ids)
        assert (one.prompt is None) == (other.prompt is None)
        if one.prompt is not None:
            assert one.prompt.logprobs.tolist() == other.prompt.logprobs.tolist()


def test_a_prefix_may_come_from_the_same_plan_and_be_all_of_the_prompt(llama):
    expected = llama.generate([PROMPT, OTHER, PROMPT], max_tokens=1, budget=200)
    new = [
        request(0, blocks=[10, 11, 12]),
        request(1, prompt=OTHER[32:], blocks=[13, 14, 15], prefix_slot=0, num_prefix_tokens=32),
        request(2, prompt=[], blocks=[16, 17, 18], prefix_slot=0, num_prefix_tokens=40),
    ]
    rows = [(0, 0, 40, 1, 0), (1, 0, 35, 1, 0), (2, 0, 40, 1, 0)]
    result = llama.run_well(rows, new_sequences=new)
    assert [[token] for token in result.token_ids] == expected


def test_a_slot_freed_and_filled_by_the_same_plan_is_the_new_one(llama):
    (expected,) = llama.generate([OTHER], max_tokens=1)
    start(llama, prompt=[3] * 40)
    llama.freed.append(0)
    new = [
        request(0, blocks=[10, 11, 12]),
        request(1, prompt=OTHER[32:], blocks=[13, 14, 15], prefix_slot=0, num_prefix_tokens=32),
    ]
    result = llama.run_well([(0, 0, 40, 1, 0), (1, 0, 35, 1, 0)], new_sequences=new)
    assert [result.token_ids[1]] == expected


BAD_PREFIXES = {
    "prefix_slot 7 is empty": {"prefix_slot": 7, "num_prefix_tokens": 1},
    "prefix_slot 4000 is empty": {"prefix_slot": 4000, "num_prefix_tokens": 1},
    "prefix_slot 1 is empty": {"prefix_slot": 1, "num_prefix_tokens": 1},
    "num_prefix_tokens is 41, the prompt in slot 0 has 40": {
        "prefix_slot": 0,
        "num_prefix_tokens": 41,
    },
    "a sequence of 300 tokens": {"prefix_slot": 0, "num_prefix_tokens": 260},
}


@pytest.mark.parametrize("message", BAD_PREFIXES)
def test_a_prefix_that_is_not_there_fails_the_step_and_names_the_slot(message, llama):
    first = start(llama)
    bad = request(1, prompt=[1] * 40, blocks=[4, 5, 6], **BAD_PREFIXES[message])
    result = llama.run([(1, 0, 40, 1, 0)], new_sequences=[bad])
    assert result.failure is not None
    assert message in result.failure.message
    assert result.failure.culprit_slots == (1,)
    assert llama.model_runner.audit().slots == (0,)
    again = llama.run_well([(0, len(PROMPT), 1, 1, 0)])
    assert len(again.token_ids) == len(first.token_ids)


def test_a_slot_without_a_prefix_is_not_looked_at():
    table = SlotTable(
        SlotLimits(num_slots=2, num_blocks=4, block_size=16, max_model_len=32, vocab_size=100),
        torch.device("cpu"),
    )
    table.install(request(0, prompt=[1], blocks=[0], prefix_slot=4000), 0)
    table.free(0)
    with pytest.raises(PlanError, match="empty"):
        table.install(request(1, prompt=[], blocks=[0], prefix_slot=0, num_prefix_tokens=1), 0)


def test_a_prompt_that_is_pooled_may_be_copied(llama):
    pooling = PoolingParams(pooling="last", normalize=True)
    start(llama)
    new = request(
        1,
        prompt=OTHER[32:],
        blocks=[13, 14, 15],
        pooling=pooling,
        prefix_slot=0,
        num_prefix_tokens=32,
    )
    told = llama.run_well([(1, 0, 35, 1, 0)], new_sequences=[new]).vectors
    new = request(2, prompt=OTHER, blocks=[16, 17, 18], pooling=pooling)
    assert told == llama.run_well([(2, 0, 35, 1, 0)], new_sequences=[new]).vectors
