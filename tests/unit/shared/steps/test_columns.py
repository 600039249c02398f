"""Every field of a plan and a result is sent under its name, and read as it was sent."""

from dataclasses import fields

import numpy as np
import pytest

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_f32, pack_u32
from pagewire_shared.sampling.convert import pooling_to_message, sampling_to_message
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.convert import (
    plan_from_message,
    plan_to_message,
    result_from_message,
    result_to_message,
)
from pagewire_shared.steps.plan import NO_SLOT, GroupTable, NewSequence, StepPlan
from pagewire_shared.steps.result import PromptLogprobs, StepFailure, StepResult

NAMES = [bytes([byte]) * 16 for byte in range(4)]
SAMPLING = SamplingParams(seed=3, temperature=0.5, logprobs=2)

PLAN_COLUMNS = {
    "freed_slots": [9, 8],
    "fork_slots": [1],
    "fork_sources": [0],
    "fork_choices": [2],
    "appended_slots": [4, 5],
    "appended_token_ids": [70_000, 7],
    "slots": [0, 1, NO_SLOT - 1],
    "starts": [0, 40, 41],
    "num_new_tokens": [40, 0, 1],
    "num_new_blocks": [2, 0, 1],
    "new_block_ids": [11, 12, 13],
    "copy_slots": [1],
    "copy_sources": [3],
    "copy_destinations": [6],
    "named_blocks": [11, 12],
    "named_slots": [0, NO_SLOT],
}
RESULT_COLUMNS = {
    "slots": [0, 1],
    "counts": [1, 0],
    "token_ids": [70_000],
    "ranks": [4],
    "num_top": [2],
    "top_token_ids": [5, 6],
    "failed_slots": [1],
    "num_drafts": [5, 0],
}
PROMPT_COLUMNS = {
    "slots": [0],
    "first_positions": [1],
    "counts": [2],
    "ranks": [1, 3],
    "num_top": [0, 1],
    "top_token_ids": [8],
}


def as_arrays(columns):
    return {name: np.array(values, np.uint32) for name, values in columns.items()}


def packed(columns):
    return {name: pack_u32(values) for name, values in columns.items()}


def new_sequence(**fields):
    return NewSequence(
        slot=2,
        request_id=b"r" * 16,
        choice=1,
        prompt_token_ids=(1, 2),
        emitted_token_ids=[3],
        sampling=SAMPLING,
        block_ids=(4, 5),
        eos_token_ids=(6,),
        **fields,
    )


def new_request(sampling, **fields):
    return wire.NewRequest(
        slot=2,
        request_id=b"r" * 16,
        choice=1,
        prompt_token_ids=pack_u32([1, 2]),
        emitted_token_ids=pack_u32([3]),
        sampling=sampling,
        block_tables=[wire.BlockTable(block_ids=pack_u32([4, 5]))],
        eos_token_ids=pack_u32([6]),
        **fields,
    )


NEW = {"tenant": "blue", "prefix_slot": 7, "num_prefix_tokens": 9, "adapter_slot": 0}


@pytest.mark.parametrize("as_columns", [dict, as_arrays])
def test_the_bytes_of_a_plan(as_columns):
    plan = StepPlan(
        2**63,
        3,
        4,
        samples=[1, 1, 0],
        names=NAMES[:2],
        released_grammars=NAMES[2:],
        new_sequences=[new_sequence(**NEW)],
        **as_columns(PLAN_COLUMNS),
    )
    expected = wire.StepPlan(
        generation=2**63,
        incarnation=3,
        step_id=4,
        samples=b"\1\1\0",
        names=b"".join(NAMES[:2]),
        released_grammars=b"".join(NAMES[2:]),
        new_requests=[new_request(sampling_to_message(SAMPLING), **NEW)],
        **packed(PLAN_COLUMNS),
    )
    assert plan_to_message(plan).SerializeToString() == expected.SerializeToString()
    read = plan_from_message(expected)
    assert {name: getattr(read, name).tolist() for name in PLAN_COLUMNS} == PLAN_COLUMNS
    assert (read.samples.tolist(), read.names, read.released_grammars) == (
        [1, 1, 0],
        NAMES[:2],
        NAMES[2:],
    )
    assert (read.generation, read.incarnation, read.step_id) == (2**63, 3, 4)
    (new,) = read.new_sequences
    assert (new.slot, new.request_id, new.choice, new.tenant) == (2, b"r" * 16, 1, "blue")
    assert (new.prefix_slot, new.num_prefix_tokens, new.sampling) == (7, 9, SAMPLING)
    assert new.adapter_slot == 0
    columns = (new.prompt_token_ids, new.emitted_token_ids, new.block_ids, new.eos_token_ids)
    assert [column.tolist() for column in columns] == [[1, 2], [3], [4, 5], [6]]


def test_block_tables_of_further_cache_groups():
    further = (GroupTable([8], 1), GroupTable([9, 10]))
    plan = StepPlan(1, 2, 3, new_sequences=[new_sequence(further_tables=further)])
    message = plan_to_message(plan)
    tables = [wire.BlockTable(block_ids=pack_u32(ids)) for ids in ([4, 5], [8], [9, 10])]
    tables[1].num_before = 1
    assert list(message.new_requests[0].block_tables) == tables
    (read,) = plan_from_message(message).new_sequences
    found = [(table.block_ids.tolist(), table.num_before) for table in read.further_tables]
    assert found == [([8], 1), ([9, 10], 0)]
    message.new_requests[0].block_tables[0].num_before = 1
    with pytest.raises(WireError, match="the first one lacks blocks"):
        plan_from_message(message)
    message.new_requests[0].ClearField("block_tables")
    with pytest.raises(WireError, match="there is no table"):
        plan_from_message(message)


def test_the_width_of_a_beam_takes_the_place_of_its_log_probabilities():
    beam = new_sequence(num_candidates=64, grammar_id=NAMES[0], pooling=PoolingParams())
    sampling = sampling_to_message(SAMPLING)
    sampling.logprobs = 64
    expected = new_request(
        sampling, is_beam=True, grammar_id=NAMES[0], pooling=pooling_to_message(PoolingParams())
    )
    message = plan_to_message(StepPlan(1, 1, 1, new_sequences=[beam]))
    assert message.new_requests[0].SerializeToString() == expected.SerializeToString()
    (read,) = plan_from_message(message).new_sequences
    assert (read.is_beam, read.num_candidates, read.sampling.logprobs) == (True, 64, None)
    assert (read.grammar_id, read.pooling) == (NAMES[0], PoolingParams())


def test_an_empty_column_is_not_sent():
    assert plan_to_message(StepPlan(0, 0, 0)).ByteSize() == 0
    assert result_to_message(StepResult(0, 0, 0)).ByteSize() == 0


@pytest.mark.parametrize("as_columns", [dict, as_arrays])
def test_the_bytes_of_a_result(as_columns):
    result = StepResult(
        1,
        2,
        3,
        logprobs=[-0.5],
        top_logprobs=[-0.25, -1.5],
        prompt=PromptLogprobs(
            logprobs=[-1.0, -2.0], top_logprobs=[-0.125], **as_columns(PROMPT_COLUMNS)
        ),
        vectors=pack_f32([0.5]),
        failed_reason="broken",
        model_time_us=10,
        step_time_us=20,
        given_up={1: "too late"},
        **as_columns(RESULT_COLUMNS),
    )
    expected = wire.StepResult(
        generation=1,
        incarnation=2,
        step_id=3,
        logprobs=pack_f32([-0.5]),
        top_logprobs=pack_f32([-0.25, -1.5]),
        prompt=wire.PromptLogprobs(
            logprobs=pack_f32([-1.0, -2.0]),
            top_logprobs=pack_f32([-0.125]),
            **packed(PROMPT_COLUMNS),
        ),
        vectors=pack_f32([0.5]),
        failed_reason="broken",
        model_time_us=10,
        step_time_us=20,
        given_up_slots=pack_u32([1]),
        given_up_reasons=["too late"],
        **packed(RESULT_COLUMNS),
    )
    assert result_to_message(result).SerializeToString() == expected.SerializeToString()
    read = result_from_message(expected)
    for name, values in RESULT_COLUMNS.items():
        assert list(getattr(read, name)) == values, name
    for name, values in PROMPT_COLUMNS.items():
        assert getattr(read.prompt, name) == values, name
    assert (read.logprobs, list(read.top_logprobs)) == ([-0.5], [-0.25, -1.5])
    assert (read.prompt.logprobs, read.prompt.top_logprobs) == ([-1.0, -2.0], [-0.125])
    assert (read.vectors, read.given_up) == (pack_f32([0.5]), {1: "too late"})
    assert (read.failed_reason, read.model_time_us, read.step_time_us) == ("broken", 10, 20)


def test_a_failure_arrives():
    failure = StepFailure("why", (3, 4))
    message = result_to_message(StepResult(1, 2, 3, failure=failure))
    assert result_from_message(message).failure == failure


# Fields that have code of their own in convert.py, as the struct and as the message names them.
OWN = {
    "new_sequences": "new_requests",
    "given_up": "given_up_slots given_up_reasons",
    "block_ids": "block_tables",
    "num_candidates": "is_beam",
    "further_tables": "block_tables",
}


@pytest.mark.parametrize(
    ("struct", "message"),
    [
        (StepPlan, wire.StepPlan),
        (NewSequence, wire.NewRequest),
        (StepResult, wire.StepResult),
        (PromptLogprobs, wire.PromptLogprobs),
        (StepFailure, wire.StepFailure),
    ],
)
def test_a_struct_has_every_field_of_its_message(struct, message):
    names = {name for one in fields(struct) for name in OWN.get(one.name, one.name).split()}
    assert names == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("name", ["starts", "samples", "fork_choices", "names", "named_slots"])
def test_columns_of_one_group_have_one_length(name):
    columns = packed(PLAN_COLUMNS) | {"samples": b"\1\1\0", "names": b"".join(NAMES[:2])}
    size = {"samples": 1, "names": 16}.get(name, 4)
    with pytest.raises(WireError, match=rf"differ in length: .*'{name}'"):
        plan_from_message(wire.StepPlan(**columns | {name: columns[name] + bytes(size)}))


def test_drafts_are_counted_per_scheduled_slot():
    names = ("slots", "starts", "num_new_tokens", "num_new_blocks")
    slots = packed({name: [3, 4] for name in names}) | {"samples": b"\1\1"}
    plan = StepPlan(1, 1, 1, slots=[3, 4], num_drafts=[0, 255])
    assert plan_to_message(plan).num_drafts == b"\0\xff"
    read = plan_from_message(wire.StepPlan(num_drafts=b"\0\xff", **slots))
    assert read.num_drafts.tolist() == [0, 255]
    assert len(plan_from_message(wire.StepPlan(**slots)).num_drafts) == 0
    with pytest.raises(WireError, match=r"differ in length: .*num_drafts"):
        plan_from_message(wire.StepPlan(num_drafts=b"\1", **slots))


@pytest.mark.parametrize("name", [*PLAN_COLUMNS, "names", "released_grammars"])
def test_a_torn_column_is_refused(name):
    with pytest.raises(WireError, match="not a multiple"):
        plan_from_message(wire.StepPlan(**{name: b"x" * 17}))
