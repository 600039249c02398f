"""What a body of /v1/responses asks for is done, and told again."""

import asyncio
import json

from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import ids_of
from contract.response_gateway import TOOL, URL, say, streamed
from pydantic import BaseModel

from pagewire_protos.common.v1 import sampling_pb2
from support.oracles.response_shapes import check_response, check_stream


class City(BaseModel):
    """What an answer is parsed as."""

    name: str
    size: int


async def test_logprobs_follow_the_text(checkpoint, marked):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.responses.create(
                model="tiny",
                input="hi",
                include=["message.output_text.logprobs"],
                top_logprobs=0,
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.logprobs == 0
        text = "<é>é"
        values = [-float(place) for place in range(len(text.encode()))]
        say(attach, submit, text, logprobs=values)
        answer = await call
    told = answer.output[1].content[0].logprobs
    assert [entry.logprob for entry in told] == values[-2:]
    assert bytes(byte for entry in told for byte in entry.bytes).decode() == "é"


async def test_logprobs_of_a_stream(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"model": "tiny", "input": "hi", "include": ["message.output_text.logprobs"]}
        call = asyncio.create_task(streamed(client, body))
        submit = await attach.next("submit")
        for place, token in enumerate(ids_of("añb")):
            attach.tokens(submit, place, [token], logprobs=[-1.0 - place])
            await asyncio.sleep(0.01)
        attach.finish(submit, 4, reason=sampling_pb2.FINISH_REASON_STOP)
        items = check_stream(await call)
    told = items[0]["content"][0]["logprobs"]
    assert [entry["logprob"] for entry in told] == [-1.0, -2.0, -3.0, -4.0]


async def test_a_parsed_answer(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.responses.parse(model="tiny", input="hi", text_format=City)
        )
        submit = await attach.next("submit")
        schema = json.loads(submit.sampling.structured_outputs.json_schema)
        assert schema["required"] == ["name", "size"]
        say(attach, submit, '{"name":"Ulm","size":3}')
        answer = await call
    assert answer.output_parsed == City(name="Ulm", size=3)
    assert answer.text.format.name == "City"
    assert answer.text.format.schema_["required"] == ["name", "size"]


async def test_echoed_parameters(checkpoint, marked):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.responses.create(
                model="tiny",
                input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
                metadata={"a": "b"},
                temperature=0.5,
                top_p=0.25,
                tools=[TOOL],
                tool_choice={"type": "function", "name": "weather"},
                parallel_tool_calls=False,
                reasoning={"effort": "low", "summary": "auto"},
                prompt_cache_key="k",
                safety_identifier="s",
                user="u",
                service_tier="auto",
                max_output_tokens=20,
                max_tool_calls=3,
                truncation="disabled",
                extra_body={"seed": 7, "top_k": 3, "no_such_field": 1},
            )
        )
        submit = await attach.next("submit")
        assert (submit.sampling.seed, submit.sampling.top_k) == (7, 3)
        assert (submit.sampling.temperature, submit.sampling.top_p) == (0.5, 0.25)
        say(attach, submit, "[weather{}]")
        answer = await call
    shown = answer.model_dump(by_alias=True)
    assert shown["metadata"] == {"a": "b"}
    assert (answer.temperature, answer.top_p, answer.parallel_tool_calls) == (0.5, 0.25, False)
    assert shown["tool_choice"] == {"type": "function", "name": "weather"}
    assert answer.tools[0].parameters == TOOL["parameters"]
    assert (answer.user, answer.prompt_cache_key, answer.safety_identifier) == ("u", "k", "s")
    assert (answer.reasoning.effort, answer.service_tier) == ("low", "default")
    assert (answer.max_output_tokens, answer.max_tool_calls) == (20, 3)
    [use] = marked
    assert (use.mode, use.name, use.is_parallel) == ("required", "weather", False)


async def test_allowed_tools(checkpoint, marked):
    async with gateway(checkpoint) as (client, attach, _):
        choice = {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "weather"}],
        }
        tools = [TOOL, {**TOOL, "name": "other"}]
        body = {"model": "tiny", "input": "hi", "tools": tools, "tool_choice": choice}
        call = post(client, URL, body)
        say(attach, await attach.next("submit"), "x")
        answer = (await call).json()
    check_response(answer)
    assert answer["tool_choice"] == choice
    assert len(answer["tools"]) == 2
    assert [tool.name for tool in marked[0].tools] == ["weather"]
