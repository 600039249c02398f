"""Slots of beams: alternatives for the scheduler, appended tokens, forks onto occupied slots."""

import numpy as np
import pytest

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.sampling.beam import MAX_BEAM_CANDIDATES
from pagewire_shared.steps.convert import plan_from_message
from support.cells.worker_driver import PROMPT, request

WIDE = 64
END = len(PROMPT)


def alternatives(driver, tokens):
    """Return the most likely tokens behind `tokens`, computed afresh in a slot of its own."""
    new = request(20, prompt=tokens, blocks=[100, 101, 102, 103], num_candidates=WIDE)
    result = driver.run_well([(20, 0, len(tokens), 1, 0)], new_sequences=[new])
    driver.freed.append(20)
    return result.top_token_ids.tolist(), result.top_logprobs


def of_row(result, row):
    return (
        result.top_token_ids.reshape(-1, WIDE)[row].tolist(),
        result.top_logprobs.reshape(-1, WIDE)[row],
    )


def assert_same(found, expected):
    assert found[0][:8] == expected[0][:8]
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4)


def start_beams(driver):
    """Run the prompt as a beam, then go on as two beams with tokens of another choice than the
    worker's."""
    first = driver.run_well(
        [(0, 0, END, 1, 0)],
        new_sequences=[request(0, num_candidates=WIDE)],
    )
    assert first.num_top.tolist() == [WIDE]
    second, third = first.top_token_ids[1:3].tolist()
    result = driver.run_well(
        [(0, END, 1, 1, 0), (1, END, 1, 1, 0)],
        fork_slots=[1],
        fork_sources=[0],
        fork_choices=[1],
        appended_slots=[0, 1],
        appended_token_ids=[second, third],
        copy_slots=[1],
        copy_sources=[2],
        copy_destinations=[7],
    )
    return [*PROMPT, second], [*PROMPT, third], result


def test_beams_grow_by_appended_tokens_only(llama):
    one, two, result = start_beams(llama)
    assert_same(of_row(result, 0), alternatives(llama, one))
    assert_same(of_row(result, 1), alternatives(llama, two))
    assert result.num_top.tolist() == [WIDE, WIDE]


def test_a_sample_of_a_beam_is_not_known(llama):
    start_beams(llama)
    failure = llama.run([(1, END + 1, 1, 1, 0)]).failure
    assert "not known" in failure.message
    assert failure.culprit_slots == (1,)


SWAP = {
    "fork_slots": [0, 1],
    "fork_sources": [1, 0],
    "fork_choices": [0, 1],
    "appended_slots": [0, 1],
    "appended_token_ids": [11, 12],
}
ROWS = [(0, END + 1, 1, 1, 0), (1, END + 1, 1, 1, 0)]


def test_beams_swap_their_slots(llama):
    one, two, _ = start_beams(llama)
    result = llama.run_well(ROWS, **SWAP)
    assert_same(of_row(result, 0), alternatives(llama, [*two, 11]))
    assert_same(of_row(result, 1), alternatives(llama, [*one, 12]))
    assert llama.model_runner.audit().findings == ()


def test_a_swap_is_undone_when_the_step_fails(llama, monkeypatch):
    one, two, _ = start_beams(llama)
    with monkeypatch.context() as patch:
        patch.setattr(llama.model_runner.backend, "forward", lambda batch: 1 / 0)
        assert llama.run(ROWS, **SWAP).failure is not None
    appended = {"appended_slots": [0, 1], "appended_token_ids": [11, 12]}
    result = llama.run_well(ROWS, **appended)
    assert_same(of_row(result, 0), alternatives(llama, [*one, 11]))
    assert_same(of_row(result, 1), alternatives(llama, [*two, 12]))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"appended_slots": [0, 9], "appended_token_ids": [5, 5]}, "no beam"),
        ({"appended_slots": [0, 1], "appended_token_ids": [5, 512]}, "no id"),
        ({"appended_slots": [0, 0], "appended_token_ids": [5, 6]}, "twice"),
        ({"appended_slots": [0], "appended_token_ids": [5, 6]}, "length"),
        ({"appended_slots": [4000], "appended_token_ids": [5]}, "does not exist"),
    ],
)
def test_a_bad_append_changes_nothing(fields, text, llama):
    one, _, _ = start_beams(llama)
    failure = llama.run([(0, END + 1, 1, 1, 0)], **fields).failure
    assert text in failure.message
    good = {"appended_slots": [0], "appended_token_ids": [11]}
    result = llama.run_well([(0, END + 1, 1, 1, 0)], **good)
    assert_same(of_row(result, 0), alternatives(llama, [*one, 11]))


def test_nothing_is_appended_behind_the_context(driver):
    one = driver("llama", block_size=16, max_model_len=END)
    one.run_well([(0, 0, END, 1, 0)], new_sequences=[request(0, num_candidates=1)])
    failure = one.run([], appended_slots=[0], appended_token_ids=[5]).failure
    assert "behind the context" in failure.message


def message(**fields):
    return wire.StepPlan(generation=1, incarnation=1, step_id=1, **fields)


def new_message(**sampling):
    return wire.NewRequest(
        slot=1,
        prompt_token_ids=pack_u32([1]),
        sampling=sampling_pb2.SamplingParams(temperature=0.0, **sampling),
        block_tables=[wire.BlockTable(block_ids=pack_u32([3]))],
        is_beam=True,
    )


@pytest.mark.parametrize("wanted", [64, MAX_BEAM_CANDIDATES, 20, 0])
def test_a_scheduler_may_ask_for_more_alternatives_than_clients(wanted):
    (new,) = plan_from_message(message(new_requests=[new_message(logprobs=wanted)])).new_sequences
    assert new.is_beam
    assert new.num_candidates == wanted
    assert new.sampling.logprobs is None


def test_more_alternatives_than_any_beam_needs_are_refused():
    too_many = MAX_BEAM_CANDIDATES + 1
    with pytest.raises(WireError) as caught:
        plan_from_message(message(new_requests=[new_message(logprobs=too_many)]))
    assert caught.value.field == "logprobs"


@pytest.mark.parametrize(
    "group",
    [
        ("fork_slots", "fork_sources", "fork_choices"),
        ("appended_slots", "appended_token_ids"),
        ("copy_slots", "copy_sources", "copy_destinations"),
    ],
)
def test_arrays_of_one_struct_have_one_length(group):
    values = {name: pack_u32([7, index]) for index, name in enumerate(group)}
    plan = plan_from_message(message(**values))
    assert [getattr(plan, name).tolist() for name in group] == [[7, i] for i in range(len(group))]
    for name in group:
        with pytest.raises(WireError, match=name):
            plan_from_message(message(**{**values, name: pack_u32([7])}))
