"""What workers are told about names and tenants, and what they say about themselves."""

from dataclasses import replace

import pytest

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.common.v1.adapter_shapes_pb2 import AdapterShapes, AdapterTarget
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import served_models
from pagewire_scheduler.convert.worker import worker_info
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_shared.errors import PeerRefusedError, WireError
from pagewire_shared.identity.ids import BlockName, RequestId
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.convert import plan_to_message, result_from_message, result_to_message
from pagewire_shared.steps.plan import NO_SLOT, NewSequence, StepPlan
from pagewire_shared.steps.result import StepResult


def new_sequence(tenant: str) -> NewSequence:
    return NewSequence(
        slot=0,
        request_id=RequestId(b"r" * 16),
        choice=0,
        prompt_token_ids=(1, 2),
        emitted_token_ids=(),
        sampling=SamplingParams(seed=1),
        block_ids=(3,),
        eos_token_ids=(),
        tenant=tenant,
    )


def test_plans_say_whose_blocks_are_named() -> None:
    plan = StepPlan(1, 2, 3)
    plan.named_blocks.extend([4, 5])
    plan.names.extend([BlockName(b"a" * 16), BlockName(b"b" * 16)])
    plan.named_slots.extend([0, NO_SLOT])
    assert unpack_u32(plan_to_message(plan).named_slots) == [0, 0xFFFFFFFF]


def test_only_a_tenant_that_has_a_name_is_told() -> None:
    plan = StepPlan(1, 2, 3, new_sequences=[new_sequence("blue"), new_sequence("")])
    blue, default = plan_to_message(plan).new_requests
    assert blue.tenant == "blue"
    assert not default.HasField("tenant")


def test_a_hello_says_what_a_block_weighs_and_whether_it_can_be_loaded() -> None:
    group = layout_pb2.CacheGroup(
        kind=layout_pb2.CACHE_KIND_FULL, block_size=4, bytes_per_block=640, dtype="float32"
    )
    layout = layout_pb2.KvLayout(groups=[group])
    assert worker_info(pb.WorkerHello(layout=layout)).bytes_per_block == 640
    assert not worker_info(pb.WorkerHello(layout=layout)).loads_blocks
    assert worker_info(pb.WorkerHello(layout=layout, loads_blocks=True)).loads_blocks


def test_what_an_adapter_has_to_fit_goes_on_to_frontends() -> None:
    group = layout_pb2.CacheGroup(kind=layout_pb2.CACHE_KIND_FULL, block_size=4)
    layout = layout_pb2.KvLayout(groups=[group])
    assert worker_info(pb.WorkerHello(layout=layout)).adapter_shapes == b""
    target = AdapterTarget(name="model.layers.*.self_attn.q_proj", num_inputs=4, layers=[0, 1])
    hello = pb.WorkerHello(layout=layout, adapter_shapes=AdapterShapes(targets=[target]))
    info = worker_info(hello)
    model = replace(info.model, adapter_shapes=(info.adapter_shapes,))
    (sent,) = served_models([(model, 1)]).models
    assert list(sent.adapter_shapes) == [hello.adapter_shapes]
    hello.adapter_shapes.targets[0].num_experts = 1 << 30
    with pytest.raises(PeerRefusedError, match="adapter_shapes"):
        worker_info(hello)


def test_the_time_of_a_step_is_kept() -> None:
    assert result_from_message(pb.StepResult(model_time_us=1234)).model_time_us == 1234


def test_a_context_counts_as_far_as_a_plan_can_tell_it() -> None:
    group = layout_pb2.CacheGroup(kind=layout_pb2.CACHE_KIND_FULL, block_size=16)
    hello = pb.WorkerHello(layout=layout_pb2.KvLayout(groups=[group]))
    for offered, counted in ((1 << 20, 1 << 20), (1 << 22, StreamLimits().longest_sequence(16))):
        hello.capacity.max_model_len = offered
        assert worker_info(hello).model.max_model_len == counted


def test_a_prefix_is_told_by_its_slot() -> None:
    sequence = replace(new_sequence(""), prefix_slot=7, num_prefix_tokens=32)
    (told,) = plan_to_message(StepPlan(1, 2, 3, new_sequences=[sequence])).new_requests
    assert (told.prefix_slot, told.num_prefix_tokens) == (7, 32)
    assert unpack_u32(told.prompt_token_ids) == [1, 2]


def test_who_was_given_up_is_told_with_the_reason() -> None:
    result = StepResult(
        generation=1,
        incarnation=2,
        step_id=3,
        slots=[4, 5],
        counts=[1, 0],
        token_ids=[9],
        given_up={5: "the grammar is too costly"},
    )
    message = pb.StepResult.FromString(result_to_message(result).SerializeToString())
    read = result_from_message(message)
    assert (read.slots, read.counts, read.token_ids) == ([4, 5], [1, 0], [9])
    assert read.given_up == {5: "the grammar is too costly"}
    message.given_up_reasons.append("one more")
    with pytest.raises(WireError, match="given_up_reasons"):
        result_from_message(message)
