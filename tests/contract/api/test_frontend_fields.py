"""Every sampling field of a body, as the scheduler is told it."""

import asyncio

import grpc.aio
import pytest
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import attached_frontend, ids_of

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.sampling.convert import sampling_from_message
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

FIELDS = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 7,
    "min_p": 0.1,
    "seed": 5,
    "min_tokens": 2,
    "ignore_eos": True,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.2,
    "logit_bias": {"7": -3, "0": 2.5},
    "allowed_token_ids": [3, 4, 5],
    "stop_token_ids": [9],
    "bad_words": ["a", "bc"],
    "prompt_logprobs": 3,
    "max_tokens": 20,
}
EXPECTED = {
    **FIELDS,
    "logit_bias": {7: -3.0, 0: 2.5},
    "allowed_token_ids": (3, 4, 5),
    "stop_token_ids": (9,),
    "bad_token_sequences": (tuple(ids_of("a")), tuple(ids_of("bc"))),
}
del EXPECTED["bad_words"]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


async def submitted(client, attach, path, body):
    """Post a body, return its Submit, and leave."""
    call = post(client, path, body)
    submit = await attach.next("submit")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await attach.next("abort")
    return submit


def told(submit) -> SamplingParams:
    return sampling_from_message(submit.sampling, defaults=SamplingParams(max_tokens=None))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_every_field_reaches_the_scheduler(checkpoint, path):
    prompt = {"prompt": "xy", "messages": [{"role": "user", "content": "x"}]}
    async with gateway(checkpoint) as (client, attach, _):
        submit = await submitted(client, attach, path, {**prompt, **FIELDS})
    params = told(submit)
    for name, value in EXPECTED.items():
        assert getattr(params, name) == value, name
    assert submit.eos_token_ids == b""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
                }
            },
            {"json": SCHEMA},
        ),
        ({"structured_outputs": {"json": SCHEMA}}, {"json": SCHEMA}),
        ({"structured_outputs": {"json": '{"type": "null"}'}}, {"json": '{"type": "null"}'}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ("a", "b")}),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
        ({"structured_outputs": {"json_object": True, "regex": None}}, {"json_object": True}),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            {"json": SCHEMA, "disable_any_whitespace": True},
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": True}},
            {"json": {**SCHEMA, "additionalProperties": False}},
        ),
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ("a", "b")}),
        ({"guided_grammar": 'start: "A"'}, {"grammar": 'start: "A"'}),
        ({"guided_regex": "a", "response_format": {"type": "text"}}, {"regex": "a"}),
    ],
)
async def test_what_the_answer_must_look_like(checkpoint, body, expected):
    async with gateway(checkpoint) as (client, attach, _):
        for path, prompt in (
            ("/v1/completions", {"prompt": "x"}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ):
            submit = await submitted(client, attach, path, {**prompt, **body})
            outputs = told(submit).structured_outputs
            assert outputs == (StructuredOutputsParams(**expected) if expected else None)


async def test_a_prompt_is_cut_where_the_client_allows_it(checkpoint):
    text = "0123456789" * 60
    async with gateway(checkpoint) as (client, attach, _):
        for kept, max_tokens, expected in ((5, 9, 5), (-1, 9, 503), (-1, None, 511)):
            body = {"truncate_prompt_tokens": kept, "max_tokens": max_tokens}
            messages = [{"role": "user", "content": text}]
            submit = await submitted(
                client, attach, "/v1/chat/completions", {**body, "messages": messages}
            )
            ids = unpack_u32(submit.prompt_token_ids)
            assert len(ids) == expected
            assert submit.sampling.max_tokens == (max_tokens or 1)
        body = {"prompt": text, "truncate_prompt_tokens": 5, "max_tokens": 9}
        submit = await submitted(client, attach, "/v1/completions", body)
        assert unpack_u32(submit.prompt_token_ids) == ids_of("56789")


async def test_a_turn_is_gone_on_with(checkpoint):
    turns = [{"role": "user", "content": "say"}, {"role": "assistant", "content": "Well, "}]
    async with gateway(checkpoint) as (client, attach, _):
        for body in (
            {"continue_final_message": True},
            {"continue_final_message": True, "add_generation_prompt": False},
        ):
            submit = await submitted(
                client, attach, "/v1/chat/completions", {"messages": turns, **body}
            )
            ids = unpack_u32(submit.prompt_token_ids)
            assert ids[-6:] == ids_of("Well, ")
        closed = await submitted(
            client,
            attach,
            "/v1/chat/completions",
            {"messages": turns, "add_generation_prompt": False},
        )
    assert unpack_u32(closed.prompt_token_ids)[: len(ids)] == ids
    assert len(unpack_u32(closed.prompt_token_ids)) > len(ids)


async def test_the_same_over_grpc(checkpoint):
    sampling = sampling_pb2.SamplingParams(
        max_tokens=9,
        presence_penalty=0.5,
        logit_bias=[sampling_pb2.LogitBias(token_id=7, bias=-3)],
        bad_token_sequences=[sampling_pb2.TokenSequence(token_ids=[4, 5])],
    )
    sampling.structured_outputs.regex = "a+"
    options = pb.GenerationOptions(sampling=sampling, bad_words=["a"], truncate_prompt_tokens=3)
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = frontend.stub.Complete(
            pb.CompleteRequest(text="hello", options=options, add_special_tokens=False)
        )
        submit = await attach.next("submit")
        assert unpack_u32(submit.prompt_token_ids) == ids_of("llo")
        params = told(submit)
        assert (params.presence_penalty, params.logit_bias) == (0.5, {7: -3.0})
        assert params.bad_token_sequences == ((4, 5), tuple(ids_of("a")))
        assert params.structured_outputs == StructuredOutputsParams(regex="a+")
        call.cancel()
        await attach.next("abort")
        request = pb.ChatRequest(
            messages=[pb.ChatMessage(role=pb.CHAT_ROLE_ASSISTANT, content="So")],
            continue_final_message=True,
        )
        request.template_arguments.update({"depth": 3, "style": "x"})
        call = frontend.stub.Chat(request)
        assert unpack_u32((await attach.next("submit")).prompt_token_ids)[-2:] == ids_of("So")
        call.cancel()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (
            pb.ChatRequest(add_generation_prompt=True, continue_final_message=True),
            "continue_final_message",
        ),
        (pb.ChatRequest(template_arguments={"tools": "x"}), "template_arguments"),
        (pb.ChatRequest(template_arguments={"x": {"y": 1}}), "template_arguments"),
        (pb.ChatRequest(options=pb.GenerationOptions(bad_words=[" "])), "bad_words"),
        (
            pb.ChatRequest(options=pb.GenerationOptions(truncate_prompt_tokens=-2)),
            "truncate_prompt_tokens",
        ),
    ],
)
async def test_bad_chats_over_grpc_name_their_field(checkpoint, request_, field):
    request_.messages.append(pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="x"))
    async with attached_frontend(checkpoint) as (frontend, _):
        await frontend.status.wait("ready")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in frontend.stub.Chat(request_):
                pass
    assert from_rpc_error(caught.value).field == field
