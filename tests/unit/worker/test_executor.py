"""Plans made by hand: results, slots, names, copies, failures and what they leave behind."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling import SamplingParams
from pagewire_worker.step import NewRequest, StepPlan
from support.worker_driver import GREEDY, Driver, Running

PROMPT = list(range(30, 70))


@pytest.fixture
def llama(driver) -> Driver:
    return driver("llama", block_size=16)


def request(slot, prompt=PROMPT, blocks=(0, 1, 2), **fields):
    defaults = {
        "slot": slot,
        "request_id": bytes([slot]) * 16,
        "choice": 0,
        "prompt_token_ids": prompt,
        "emitted_token_ids": [],
        "sampling": GREEDY,
        "block_tables": [blocks],
    }
    return NewRequest(**{**defaults, **fields})


def start(driver, slot=0, **fields):
    return driver.run([(slot, 0, len(PROMPT), 1, 0)], new_requests=[request(slot, **fields)])


def test_result_carries_the_plans_identity(llama):
    plan = StepPlan(
        generation=5,
        incarnation=6,
        step_id=9,
        new_requests=[request(2)],
        slots=[2],
        starts=[0],
        num_new_tokens=[len(PROMPT)],
        samples=[1],
        num_new_blocks=[0],
    )
    result = llama.executor.run(plan)
    assert (result.generation, result.incarnation, result.step_id) == (5, 6, 9)
    assert result.slots.tolist() == [2]
    assert result.counts.tolist() == [1]
    assert result.model_time_us > 0
    assert len(result.logprobs) == len(result.num_top) == 0


def test_a_chunk_that_does_not_sample_answers_nothing(llama):
    result = llama.run([(0, 0, 10, 0, 0)], new_requests=[request(0)])
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
    result = llama.run(rows, new_requests=requests)
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
    first = llama.run([(3, 0, len(PROMPT) + 5, 1, 0)], new_requests=[again])
    second = llama.run([(3, len(PROMPT) + 5, 1, 1, 0)])
    assert [int(first.token_ids[0]), int(second.token_ids[0])] == sequence.output[5:7]


def test_choices_draw_different_noise(llama):
    sampling = SamplingParams(seed=77, temperature=2.0, max_tokens=None)
    requests = [
        request(c, sampling=sampling, choice=c, blocks=[3 * c, 3 * c + 1, 3 * c + 2])
        for c in range(8)
    ]
    rows = [(c, 0, len(PROMPT), 1, 0) for c in range(8)]
    assert len(set(llama.run(rows, new_requests=requests).token_ids.tolist())) > 1


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
    result = llama.run([(1, 32, len(PROMPT) - 32, 1, 0)], new_requests=[hit])
    assert result.token_ids.tolist() == expected[:1]


def test_a_prefix_is_shared_within_the_step_that_writes_it(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=1)
    requests = [request(0), request(1, blocks=[0, 1, 9])]
    rows = [(0, 0, len(PROMPT), 1, 0), (1, 32, len(PROMPT) - 32, 1, 0)]
    assert llama.run(rows, new_requests=requests).token_ids.tolist() == expected * 2


def test_block_copies_happen_before_the_forward_pass(llama):
    (expected,) = llama.generate([PROMPT], max_tokens=2)
    first = start(llama, slot=0)
    fork = request(1, blocks=[20, 21, 22], emitted_token_ids=first.token_ids.tolist())
    result = llama.run(
        [(1, len(PROMPT), 1, 1, 0)],
        new_requests=[fork],
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
        new_requests=[request(0)],
        named_blocks=[0, 1],
        names=[name, b"m" * 16],
    )
    assert llama.executor.held_names() == {0: name, 1: b"m" * 16}
    llama.run([(0, len(PROMPT), 1, 1, 0)])
    assert len(llama.executor.held_names()) == 2
    llama.run([(1, 0, 16, 0, 0)], freed_slots=[0], new_requests=[request(1, blocks=[1, 7, 8])])
    assert llama.executor.held_names() == {0: name}
    llama.run([], copy_sources=[1], copy_destinations=[0])
    assert llama.executor.held_names() == {}


def test_dropping_slots_keeps_names(llama):
    llama.run(
        [(0, 0, len(PROMPT), 1, 0)],
        new_requests=[request(0)],
        named_blocks=[0],
        names=[b"n" * 16],
    )
    llama.executor.drop_slots()
    audit = llama.executor.audit()
    assert audit.slots == ()
    assert audit.num_blocks_in_tables == 0
    assert audit.num_named_blocks == 1


def test_audit_walks_tables(llama):
    start(llama, slot=4)
    llama.run([(2, 0, 1, 0, 0)], new_requests=[request(2, blocks=[0, 1, 9])])
    audit = llama.executor.audit()
    assert audit.slots == (2, 4)
    assert audit.num_blocks_in_tables == 4
    assert audit.findings == ()
    llama.executor._slots.num_blocks[7] = 3
    assert [kind for kind, _ in llama.executor.audit().findings] == ["leaked_slot"]


def test_a_plan_without_slots_frees(llama):
    start(llama, slot=4)
    result = llama.run([], freed_slots=[4])
    assert result.failure is None
    assert llama.executor.audit().slots == ()


BAD_PLANS = {
    "slot is taken": {"new_requests": [request(0)], "rows": [(0, 0, 8, 0, 0)]},
    "not known": {"rows": [(0, 42, 1, 1, 0)]},
    "too few blocks": {"rows": [(5, 0, 40, 1, 0)], "new_requests": [request(5, blocks=[9])]},
    "unknown slot": {"rows": [(9, 0, 1, 1, 0)]},
    "slot beyond the last": {"rows": [(4000, 0, 1, 1, 0)]},
    "token id": {"rows": [(5, 0, 1, 0, 0)], "new_requests": [request(5, prompt=[512])]},
    "block id": {"rows": [(5, 0, 1, 0, 0)], "new_requests": [request(5, blocks=[10**6])]},
    "nothing to compute": {"rows": [(0, 40, 0, 0, 0)]},
    "sample too early": {"rows": [(5, 0, 8, 1, 0)], "new_requests": [request(5)]},
    "over budget": {"rows": [(5, 0, 600, 1, 0)], "new_requests": [request(5)]},
    "new but not scheduled": {"rows": [(0, 40, 1, 1, 0)], "new_requests": [request(5)]},
    "without a seed": {
        "rows": [(5, 0, 40, 1, 0)],
        "new_requests": [request(5, sampling=SamplingParams(max_tokens=None))],
    },
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_contradictory_plan_fails_and_changes_nothing(name, llama):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    first = start(llama)
    fields = dict(BAD_PLANS[name])
    result = llama.run(fields.pop("rows"), **fields)
    assert result.failure is not None
    assert len(result.slots) == 0
    assert llama.executor.audit().slots == (0,)
    second = llama.run([(0, len(PROMPT), 1, 1, 0)])
    assert [*first.token_ids, *second.token_ids] == expected[:2]


def test_a_culprit_is_named(llama):
    requests = [request(0), request(1, prompt=[9999], blocks=[4])]
    result = llama.run([(0, 0, 40, 1, 0), (1, 0, 1, 1, 0)], new_requests=requests)
    assert result.failure.culprit_slots == (1,)


def test_a_step_that_breaks_in_the_model_is_undone(llama, monkeypatch):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    start(llama)
    forward = llama.executor._backend.forward

    def broken(batch):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(llama.executor._backend, "forward", broken)
    grown = llama.run(
        [(0, len(PROMPT), 1, 1, 1), (1, 0, 40, 1, 0)],
        new_requests=[request(1, blocks=[4, 5, 6])],
        new_block_ids=[3],
        named_blocks=[4],
        names=[b"x" * 16],
    )
    assert grown.failure.message == "RuntimeError: out of memory"
    assert llama.executor.audit().slots == (0,)
    assert llama.executor.audit().num_blocks_in_tables == 3
    assert llama.executor.held_names() == {}
    # The step planned on top of the failed one fails too: its token was never sampled.
    assert llama.run([(0, len(PROMPT) + 1, 1, 1, 0)]).failure is not None
    monkeypatch.setattr(llama.executor._backend, "forward", forward)
    results = [llama.run([(0, len(PROMPT) + i, 1, 1, 0)]) for i in range(2)]
    assert [int(r.token_ids[0]) for r in results] == expected[1:]


def test_a_failed_chunk_fails_the_chunk_behind_it(llama, monkeypatch):
    llama.run([(0, 0, 10, 0, 0)], new_requests=[request(0)])
    forward = llama.executor._backend.forward
    monkeypatch.setattr(llama.executor._backend, "forward", lambda batch: 1 / 0)
    assert llama.run([(0, 10, 10, 0, 0)]).failure is not None
    monkeypatch.setattr(llama.executor._backend, "forward", forward)
    assert "computed" in llama.run([(0, 20, 10, 0, 0)]).failure.message
    assert llama.run([(0, 10, 30, 1, 0)]).failure is None


def test_the_last_position_of_the_context(driver):
    one = driver("llama", max_model_len=48)
    (output,) = one.generate([PROMPT], max_tokens=8)
    assert len(output) == 8
    start(one)
    for i in range(8):
        assert one.run([(0, len(PROMPT) + i, 1, 1, 0)]).failure is None
    assert one.run([(0, 48, 1, 1, 0)]).failure is not None


def test_progress_advances_per_layer(checkpoint):
    from pagewire_worker.config import WorkerConfig
    from pagewire_worker.loader import load_replica

    layers = []
    config = WorkerConfig(model=str(checkpoint("llama")), max_model_len=128, cpu_threads=1)
    loaded = load_replica(config, on_layer=lambda: layers.append(1))
    num_before = len(layers)
    assert num_before > 0
    one = Driver(loaded.executor, num_blocks=loaded.info.num_blocks, block_size=16)
    start(one)
    assert len(layers) - num_before == 2


def test_gradients_are_off(llama):
    start(llama)
    assert not llama.executor._backend.kv_cache.layers[0].key.requires_grad
    assert torch.is_inference(llama.executor._backend.kv_cache.layers[0].key)


def test_steps_planned_before_a_failure_was_known_give_no_names(driver, monkeypatch):
    one = driver("llama", steps_in_flight=2)
    forward = one.executor._backend.forward
    monkeypatch.setattr(one.executor._backend, "forward", lambda batch: 1 / 0)
    names = {"named_blocks": [0], "names": [b"a" * 16]}
    failed = one.run([(0, 0, 16, 0, 0)], new_requests=[request(0)], **names)
    assert failed.failure is not None
    monkeypatch.setattr(one.executor._backend, "forward", forward)
    # Shares block 0, which the failed step never wrote, and would name block 5 after it.
    suspect = {"named_blocks": [5], "names": [b"b" * 16]}
    one.run([(1, 16, 24, 1, 0)], new_requests=[request(1, blocks=[0, 5, 6])], **suspect)
    assert one.executor.held_names() == {}
    one.run([(2, 0, 16, 0, 0)], new_requests=[request(2, blocks=[7, 8, 9])], **names)
    assert one.executor.held_names() == {0: b"a" * 16}
