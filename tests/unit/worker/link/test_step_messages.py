"""Fields of plans and results on the wire that say more than tokens."""

import dataclasses

import numpy as np
import pytest

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, WireError
from pagewire_shared.kv.arrays import pack_f32, pack_names, pack_u32, unpack_f32, unpack_u32
from pagewire_shared.sampling.convert import pooling_to_message, sampling_to_message
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.convert import plan_from_message, result_to_message
from pagewire_shared.steps.result import PromptLogprobs, StepResult
from pagewire_worker.link.convert import hello_to_message

GRAMMAR = b"0123456789abcdef"


def received(**fields):
    """Return the request of a plan that went over the wire."""
    new = wire.NewRequest(slot=3, prompt_token_ids=pack_u32([1]), block_tables=[wire.BlockTable()])
    for name, value in fields.items():
        field = getattr(new, name)
        if isinstance(value, bytes):
            setattr(new, name, value)
        else:
            field.CopyFrom(value)
    data = wire.StepPlan(new_requests=[new]).SerializeToString()
    (request,) = plan_from_message(wire.StepPlan.FromString(data)).new_sequences
    return request


def test_every_sampling_parameter_arrives():
    sampling = SamplingParams(
        max_tokens=7,
        seed=5,
        temperature=0.7,
        prompt_logprobs=3,
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        repetition_penalty=1.3,
        logit_bias={7: -1.5},
        allowed_token_ids=(4, 5),
        bad_token_sequences=((1,), (2, 3)),
    )
    assert received(sampling=sampling_to_message(sampling)).sampling == sampling


def test_a_request_without_grammar_or_pooling():
    request = received()
    assert (request.grammar_id, request.pooling) == (None, None)


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_arrives(pooling, normalize):
    params = PoolingParams(pooling=pooling, normalize=normalize)
    assert received(pooling=pooling_to_message(params)).pooling == params


def test_an_unknown_kind_of_pooling_is_refused():
    message = pooling_to_message(PoolingParams())
    message.kind = 9
    with pytest.raises(InvalidRequestError, match="pooling"):
        received(pooling=message)


def test_a_grammar_id_arrives():
    assert received(grammar_id=GRAMMAR).grammar_id == GRAMMAR


@pytest.mark.parametrize("grammar_id", [b"", b"short", GRAMMAR * 2])
def test_a_grammar_id_of_another_length_is_refused(grammar_id):
    with pytest.raises(WireError) as caught:
        received(grammar_id=grammar_id)
    assert caught.value.field == "grammar_id"


def test_released_grammars_arrive():
    message = wire.StepPlan(released_grammars=pack_names([GRAMMAR, b"x" * 16]))
    assert plan_from_message(message).released_grammars == [GRAMMAR, b"x" * 16]
    with pytest.raises(WireError):
        plan_from_message(wire.StepPlan(released_grammars=b"x" * 17))


PROMPT = PromptLogprobs(
    slots=np.array([4, 2]),
    first_positions=np.array([1, 17]),
    counts=np.array([2, 1]),
    logprobs=np.array([-0.5, -2.0, -3.0], np.float32),
    ranks=np.array([1, 9, 2]),
    num_top=np.array([1, 0, 2]),
    top_token_ids=np.array([8, 7, 6]),
    top_logprobs=np.array([-0.25, -1.0, -1.5], np.float32),
)


def test_results_are_packed():
    result = StepResult(
        generation=1,
        incarnation=2,
        step_id=3,
        slots=[5, 6],
        counts=[1, 0],
        token_ids=[9],
        logprobs=np.array([-1.0], np.float32),
        ranks=[4],
        prompt=PROMPT,
        vectors=pack_f32([0.5, -0.5]),
    )
    message = wire.StepResult.FromString(result_to_message(result).SerializeToString())
    assert unpack_u32(message.ranks) == [4]
    assert unpack_f32(message.vectors) == [0.5, -0.5]
    for field in dataclasses.fields(PROMPT):
        unpack = unpack_f32 if "logprobs" in field.name else unpack_u32
        found = unpack(getattr(message.prompt, field.name))
        assert found == getattr(PROMPT, field.name).tolist(), field.name


def test_a_result_without_them_says_so():
    message = result_to_message(StepResult(generation=1, incarnation=2, step_id=3))
    assert not message.HasField("prompt")
    assert (message.ranks, message.vectors) == (b"", b"")


@pytest.mark.parametrize("size", [0, 64])
def test_the_hello_tells_the_length_of_vectors(replica, size):
    info = dataclasses.replace(replica("llama").info, embedding_size=size)
    hello = hello_to_message(info, incarnation=1, highest_generation=0, held={})
    assert hello.capacity.embedding_size == size
