"""Tools and thoughts through the Responses API, in the formats of real models."""

import asyncio
import json

import openai
import pytest
from contract.api.test_frontend_tools import (
    ARGUMENTS,
    FORMATS,
    MARKERS,
    answer,
    prompt_of,
    settings_of,
)
from contract.api.test_frontend_tools import TOOLS as CHAT_TOOLS
from contract.frontend_gateway import gateway, openai_gateway
from contract.response_gateway import URL, events_of

from support.checkpoints.tool_models import TOGGLED, make_tool_model
from support.oracles.response_shapes import check_response, check_stream

TOOLS = [{"type": "function", **tool["function"]} for tool in CHAT_TOOLS]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models by the format of their calls."""
    root = tmp_path_factory.mktemp("tools")
    return {
        name: make_tool_model(root / name, marker=marker, tokens=MARKERS)
        for name, (marker, _) in FORMATS.items()
    }


@pytest.mark.parametrize("name", FORMATS)
async def test_calls_whole_and_streamed(models, name):
    folder, text = models[name], FORMATS[name][1]
    async with gateway(folder, **settings_of(name)) as (client, attach, _):
        body = {"model": "tiny", "input": "How is it?", "tools": TOOLS}
        call = asyncio.create_task(client.post(URL, json=body))
        submit = await attach.next("submit")
        assert json.dumps(TOOLS[0]["parameters"]) in prompt_of(submit, folder)
        answer(attach, submit, folder, text)
        whole = (await call).json()
        call = asyncio.create_task(client.post(URL, json={**body, "stream": True}))
        answer(attach, await attach.next("submit"), folder, text)
        items = check_stream(events_of((await call).text))
    check_response(whole)
    calls = [item for item in whole["output"] if item["type"] == "function_call"]
    assert [item["name"] for item in calls] == ["weather", "now"]
    assert json.loads(calls[0]["arguments"]) == ARGUMENTS
    texts = [item["content"][0]["text"] for item in whole["output"] if item["type"] == "message"]
    assert texts == (["Wait."] if text.startswith("Wait") else [])

    def bare(item):
        return {key: value for key, value in item.items() if key not in ("id", "call_id")}

    assert [bare(items[i]) for i in sorted(items)] == [bare(item) for item in whole["output"]]


async def test_a_call_its_result_and_the_next_turn(models):
    folder, text = models["hermes"], FORMATS["hermes"][1]
    async with openai_gateway(folder) as (client, attach):
        call = asyncio.create_task(
            client.responses.create(
                model="tiny", input="How is it?", tools=TOOLS, tool_choice="required"
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.HasField("structured_outputs")
        answer(attach, submit, folder, text)
        first = await call
        made = [item for item in first.output if item.type == "function_call"]
        outputs = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
            for item in made
        ]
        call = asyncio.create_task(
            client.responses.create(model="tiny", input=outputs, previous_response_id=first.id)
        )
        submit = await attach.next("submit")
        prompt = prompt_of(submit, folder)
        assert prompt.count("rain") == 2
        assert '"name": "weather", "arguments": {"city": "Zürich", "days": 2}' in prompt
        answer(attach, submit, folder, "Wet.")
        assert (await call).output_text == "Wet."


async def test_thoughts(tmp_path):
    folder = make_tool_model(tmp_path / "thinks", opening=TOGGLED)
    async with openai_gateway(folder) as (client, attach):
        create = client.responses.create
        call = asyncio.create_task(create(model="tiny", input="x"))
        answer(attach, await attach.next("submit"), folder, "Hm.\n</think>\n\nYes.")
        thought = await call
        call = asyncio.create_task(create(model="tiny", input="x", reasoning={"effort": "none"}))
        answer(attach, await attach.next("submit"), folder, "Yes.")
        plain = await call
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    assert thought.output[0].content[0].text == "Hm."
    assert thought.usage.output_tokens_details.reasoning_tokens == 3
    assert thought.output_text == plain.output_text == "Yes."
    assert [item.type for item in plain.output] == ["message"]


async def test_tools_that_cannot_be_are_refused(models):
    async with openai_gateway(models["hermes"]) as (client, _):
        bad = {**TOOLS[0], "parameters": {"type": "no-such-type"}, "strict": True}
        for tools, choice, field in (
            ([bad], "required", "tools"),
            ([TOOLS[0], TOOLS[0]], "auto", "tools"),
            ([], "required", "tool_choice"),
            (TOOLS, {"type": "function", "name": "other"}, "tool_choice"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(
                    model="tiny", input="x", tools=tools, tool_choice=choice
                )
            assert caught.value.param == field, (tools, choice)
