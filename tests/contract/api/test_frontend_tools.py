"""Tool calls over HTTP: what the model is asked, and what its text becomes."""

import asyncio
import json
import re

import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import LENGTH
from contract.tool_answers import (
    ARGUMENTS,
    ASKED,
    MARKERS,
    STRICT,
    TOOLS,
    answer,
    bodies_of,
    prompt_of,
)

from support.checkpoints.tool_models import make_tool_model

BOTH = json.dumps(ARGUMENTS, ensure_ascii=False)
FORMATS = {
    "hermes": (
        "<tool_call>",
        f'Wait.\n<tool_call>\n{{"name": "weather", "arguments": {BOTH}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    ),
    "llama3_json": (
        "<|python_tag|>",
        f'<|python_tag|>{{"name": "weather", "parameters": {BOTH}}}; '
        '{"name": "now", "parameters": {}}',
    ),
    "mistral": (
        "[TOOL_CALLS]",
        f'Wait.[TOOL_CALLS][{{"name": "weather", "arguments": {BOTH}}}, '
        '{"name": "now", "arguments": {}}]',
    ),
    "pythonic": ("", "[weather(city='Zürich', days=2), now()]"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models by the format of their calls."""
    root = tmp_path_factory.mktemp("tools")
    return {
        name: make_tool_model(root / name, marker=marker, tokens=MARKERS)
        for name, (marker, _) in FORMATS.items()
    }


def settings_of(name):
    return {"tool_call_parser": (name,)} if name == "pythonic" else {}


@pytest.mark.parametrize("name", FORMATS)
async def test_calls_whole_and_streamed(models, name):
    folder, text = models[name], FORMATS[name][1]
    content = "Wait." if text.startswith("Wait") else None
    async with openai_gateway(folder, **settings_of(name)) as (client, attach):
        create = client.chat.completions.create
        call = asyncio.create_task(create(model="tiny", messages=ASKED, tools=TOOLS))
        submit = await attach.next("submit")
        assert json.dumps(TOOLS[0]["function"]["parameters"]) in prompt_of(submit, folder)
        answer(attach, submit, folder, text)
        [whole] = (await call).choices
        call = asyncio.create_task(create(model="tiny", messages=ASKED, tools=TOOLS, stream=True))
        answer(attach, await attach.next("submit"), folder, text)
        chunks = [chunk async for chunk in await call]
    message = whole.message
    assert (message.content, whole.finish_reason) == (content, "tool_calls")
    assert [item.function.name for item in message.tool_calls] == ["weather", "now"]
    assert json.loads(message.tool_calls[0].function.arguments) == ARGUMENTS
    assert message.tool_calls[1].function.arguments == "{}"
    shape = r"[a-zA-Z0-9]{9}" if name == "mistral" else r"call_[a-zA-Z0-9]{24}"
    assert all(re.fullmatch(shape, item.id) for item in message.tool_calls)
    told = [chunk.choices[0] for chunk in chunks]
    assert [choice.finish_reason for choice in told if choice.finish_reason] == ["tool_calls"]
    assert ("".join(choice.delta.content or "" for choice in told) or None) == content
    joined = {}
    for item in [item for choice in told for item in choice.delta.tool_calls or ()]:
        known = joined.setdefault(item.index, {"name": item.function.name, "arguments": ""})
        assert (item.id is not None) == (known["arguments"] == "")
        assert (item.type, item.function.name is None) == (
            ("function", False) if item.id else (None, True)
        )
        known["arguments"] += item.function.arguments
    assert list(joined.values()) == [
        {"name": item.function.name, "arguments": item.function.arguments}
        for item in message.tool_calls
    ]


async def test_the_clients_own_helper_reads_strict_calls(models):
    folder, text = models["hermes"], FORMATS["hermes"][1]
    async with openai_gateway(folder) as (client, attach):

        async def helper():
            async with client.chat.completions.stream(
                model="tiny", messages=ASKED, tools=STRICT
            ) as stream:
                return await stream.get_final_completion()

        call = asyncio.create_task(helper())
        submit = await attach.next("submit")
        answer(attach, submit, folder, text)
        [choice] = (await call).choices
    first, second = choice.message.tool_calls
    assert first.function.parsed_arguments == ARGUMENTS
    assert second.function.name == "now"


async def test_what_is_absent_is_left_out(models):
    folder = models["hermes"]
    async with gateway(folder) as (client, attach, _):
        for stream in (False, True):
            call = post(
                client,
                "/v1/chat/completions",
                {"messages": ASKED, "tools": TOOLS, "stream": stream},
            )
            answer(attach, await attach.next("submit"), folder, FORMATS["hermes"][1][5:])
            reply = await call
            assert reply.status_code == 200
            if not stream:
                message = reply.json()["choices"][0]["message"]
                assert set(message) == {"role", "content", "refusal", "tool_calls"}
                assert (message["content"], message["refusal"]) == (None, None)
                assert set(message["tool_calls"][0]) == {"id", "type", "function"}
                continue
            lines = reply.text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
            deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
            assert all(None not in delta.values() for delta in deltas)
            assert {key for delta in deltas[1:] for key in delta} == {"tool_calls"}
            calls = [item for delta in deltas[1:] for item in delta.get("tool_calls", ())]
            first = [item for item in calls if "id" in item]
            assert [item["function"]["name"] for item in first] == ["weather", "now"]
            rest = [item for item in calls if "id" not in item]
            assert {tuple(item) for item in rest} == {("index", "function")}
            assert {tuple(item["function"]) for item in rest} == {("arguments",)}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_earlier_calls_and_thoughts_come_back_to_the_model(models, field):
    folder = models["hermes"]
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
    }
    turns = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call], field: "hm"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "wet"}]},
    ]
    async with gateway(folder) as (client, attach, _):
        reply = post(client, "/v1/chat/completions", {"messages": turns, "tools": TOOLS})
        submit = await attach.next("submit")
        answer(attach, submit, folder, "Wet.")
        choice = (await reply).json()["choices"][0]
    prompt = prompt_of(submit, folder)
    assert '(hm)<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}<|im_end|>' in prompt
    assert "<|im_start|>tool\nwet<|im_end|>" in prompt
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Wet.", "stop")
    assert "tool_calls" not in choice["message"]


async def test_a_call_cut_off_ends_with_length(models):
    folder = models["hermes"]
    async with gateway(folder) as (client, attach, _):
        call = post(client, "/v1/chat/completions", {"messages": ASKED, "tools": TOOLS})
        text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Z'
        answer(attach, await attach.next("submit"), folder, text, reason=LENGTH)
        choice = (await call).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Z'


async def test_special_tokens_are_seen_by_the_reader_alone(models):
    folder = models["mistral"]
    async with gateway(folder) as (client, attach, _):
        body = {"messages": ASKED, "tools": TOOLS}
        said = "a<|endoftext|>b[TOOL_CALLS]no[ARGS]c<|im_start|>"
        for more, shown in (({}, "abnoc"), ({"skip_special_tokens": False}, said)):
            call = post(client, "/v1/chat/completions", {**body, **more})
            answer(attach, await attach.next("submit"), folder, said)
            assert (await call).json()["choices"][0]["message"]["content"] == shown


async def test_log_probabilities_are_those_of_all_tokens(models):
    folder, text = models["hermes"], FORMATS["hermes"][1]
    async with gateway(folder) as (client, attach, _):
        for stream in (False, True):
            body = {"messages": ASKED, "tools": TOOLS, "logprobs": True, "stream": stream}
            call = post(client, "/v1/chat/completions", body)
            answer(attach, await attach.next("submit"), folder, text, logprob=-1.0)
            reply = await call
            bodies = bodies_of(reply, stream=stream)

            told = [
                item
                for one in bodies
                for item in (one["choices"][0].get("logprobs") or {"content": []})["content"]
            ]
            assert b"".join(bytes(item["bytes"]) for item in told).decode() == text
            assert [item["logprob"] for item in told] == [-1.0 - i for i in range(len(told))]


async def test_choices_are_read_apart(models):
    folder, text = models["hermes"], FORMATS["hermes"][1]
    async with gateway(folder) as (client, attach, _):
        call = post(client, "/v1/chat/completions", {"messages": ASKED, "tools": TOOLS, "n": 2})
        submit = await attach.next("submit")
        answer(attach, submit, folder, text)
        answer(attach, submit, folder, "No <tool_call> here", choice=1)
        first, second = (await call).json()["choices"]
    assert len(first["message"]["tool_calls"]) == 2
    assert second["message"]["content"] == "No <tool_call> here"
    assert (first["finish_reason"], second["finish_reason"]) == ("tool_calls", "stop")
