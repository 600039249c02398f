"""Plans made by hand: results, slots, names, copies, failures and what they leave behind."""

import numpy as np
import pytest

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from support.cells.worker_driver import PROMPT, Running, request, start


def test_result_carries_the_plans_identity(llama):
    plan = StepPlan(
        generation=5,
        incarnation=6,
        step_id=9,
        new_sequences=[request(2)],
        slots=[2],
        starts=[0],
        num_new_tokens=[len(PROMPT)],
        samples=[1],
        num_new_blocks=[0],
    )
    result = llama.model_runner.run(plan)
    assert (result.generation, result.incarnation, result.step_id) == (5, 6, 9)
    assert result.slots.tolist() == [2]
    assert result.counts.tolist() == [1]
    assert result.model_time_us > 0
    assert len(result.logprobs) == len(result.num_top) == 0


def test_a_chunk_that_does_not_sample_answers_nothing(llama):
    result = llama.run([(0, 0, 10, 0, 0)], new_sequences=[request(0)])
    assert result.failure is None
    assert len(result.slots) == len(result.token_ids) == 0


def test_logprobs_are_packed_per_token(llama):
    wanted = SamplingParams(temperature=0, max_tokens=None, logprobs=3)
    only_own = SamplingParams(temperature=0, max_tokens=None, logprobs=0)
    requests = [
        request(0, sampling=wanted),
        request(1, blocks=[3, 4, 5]),
        request(2, blocks=[6, 7, 8], sampling=only_own),
    ]
    rows = [(slot, 0, len(PROMPT), 1, 0) for slot in range(3)]
    result = llama.run(rows, new_sequences=requests)
    assert result.num_top.tolist() == [3, 0, 0]
    assert result.top_token_ids[0] == result.token_ids[0]
    assert result.top_logprobs[0] == pytest.approx(result.logprobs[0])
    assert np.isnan(result.logprobs).tolist() == [False, True, False]


def test_resume_continues_the_same_sample(llama):
    sampling = SamplingParams(seed=77, max_tokens=None)
    sequence = Running(slot=0, prompt=PROMPT, sampling=sampling, max_tokens=12)
    while len(sequence.output) < 12:
        llama.step([sequence], budget=64)
    llama.release(sequence)
    emitted = sequence.output[:5]
    again = request(3, sampling=sampling, emitted_token_ids=emitted, blocks=[10, 11, 12])
    first = llama.run([(3, 0, len(PROMPT) + 5, 1, 0)], new_sequences=[again])
    second = llama.run([(3, len(PROMPT) + 5, 1, 1, 0)])
    assert [int(first.token_ids[0]), int(second.token_ids[0])] == sequence.output[5:7]


def test_choices_draw_different_noise(llama):
    sampling = SamplingParams(seed=77, temperature=2.0, max_tokens=None)
    requests = [
        request(c, sampling=sampling, choice=c, blocks=[3 * c, 3 * c + 1, 3 * c + 2])
        for c in range(8)
    ]
    rows = [(c, 0, len(PROMPT), 1, 0) for c in range(8)]
    assert len(set(llama.run(rows, new_sequences=requests).token_ids.tolist())) > 1


def test_same_seed_alone_and_among_31_others(driver):
    sampled = SamplingParams(seed=4242, temperature=1.0, top_p=0.95, max_tokens=None)
    others = [
        SamplingParams(seed=i, temperature=0.5 + i / 20, top_k=i, max_tokens=None)
        for i in range(31)
    ]
    prompts = [[(7 * i + j) % 512 for j in range(3 + i)] for i in range(31)]
    one = driver("qwen3", block_size=16)
    (alone,) = one.generate([PROMPT], sampled, max_tokens=24)
    together = one.generate([*prompts, PROMPT], [*others, sampled], max_tokens=24, budget=100)
    assert together[-1] == alone


def test_a_prefix_hit_reads_what_another_request_wrote(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    start(llama, slot=0)
    hit = request(1, blocks=[0, 1, 9])
    result = llama.run([(1, 32, len(PROMPT) - 32, 1, 0)], new_sequences=[hit])
    assert result.token_ids.tolist() == expected[:1]


def test_a_prefix_is_shared_within_the_step_that_writes_it(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=1)
    requests = [request(0), request(1, blocks=[0, 1, 9])]
    rows = [(0, 0, len(PROMPT), 1, 0), (1, 32, len(PROMPT) - 32, 1, 0)]
    assert llama.run(rows, new_sequences=requests).token_ids.tolist() == expected * 2


def test_block_copies_happen_before_the_forward_pass(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=2)
    first = start(llama, slot=0)
    fork = request(1, blocks=[0, 1, 2], emitted_token_ids=first.token_ids.tolist())
    result = llama.run(
        [(1, len(PROMPT), 1, 1, 0)],
        new_sequences=[fork],
        copy_slots=[1, 1, 1],
        copy_sources=[0, 1, 2],
        copy_destinations=[20, 21, 22],
    )
    assert result.token_ids.tolist() == expected[1:]


def test_steps_run_without_the_scheduler_knowing_the_tokens(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=4)
    start(llama)
    results = [llama.run([(0, len(PROMPT) + i, 1, 1, 0)]) for i in range(3)]
    assert [int(r.token_ids[0]) for r in results] == expected[1:]


def test_names_live_until_their_block_is_begun_anew(llama):
    name = b"n" * 16
    llama.run(
        [(0, 0, len(PROMPT), 1, 0)],
        new_sequences=[request(0)],
        named_blocks=[0, 1],
        names=[name, b"m" * 16],
    )
    assert llama.model_runner.blocks.held_names() == {0: name, 1: b"m" * 16}
    llama.run([(0, len(PROMPT), 1, 1, 0)])
    assert len(llama.model_runner.blocks.held_names()) == 2
    llama.run([(1, 0, 16, 0, 0)], freed_slots=[0], new_sequences=[request(1, blocks=[1, 7, 8])])
    assert llama.model_runner.blocks.held_names() == {0: name}
    llama.run([], copy_slots=[1], copy_sources=[1], copy_destinations=[0])
    assert llama.model_runner.blocks.held_names() == {}


def test_dropping_slots_keeps_names(llama):
    llama.run(
        [(0, 0, len(PROMPT), 1, 0)],
        new_sequences=[request(0)],
        named_blocks=[0],
        names=[b"n" * 16],
    )
    llama.model_runner.drop_slots()
    audit = llama.model_runner.audit()
    assert audit.slots == ()
    assert audit.num_blocks_in_tables == 0
    assert audit.num_named_blocks == 1


def test_audit_walks_tables(llama):
    start(llama, slot=4)
    llama.run([(2, 0, 1, 0, 0)], new_sequences=[request(2, blocks=[0, 1, 9])])
    audit = llama.model_runner.audit()
    assert audit.slots == (2, 4)
    assert audit.num_blocks_in_tables == 4
    assert audit.findings == ()
    llama.model_runner._slots.num_blocks[7] = 3
    assert [kind for kind, _ in llama.model_runner.audit().findings] == ["leaked_slot"]


def test_a_plan_without_slots_frees(llama):
    start(llama, slot=4)
    result = llama.run([], freed_slots=[4])
    assert result.failure is None
    assert llama.model_runner.audit().slots == ()
