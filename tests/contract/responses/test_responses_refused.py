"""What /v1/responses refuses: by name, with a place, before anything is computed."""

import httpx
import pytest
from contract.frontend_gateway import gateway
from contract.response_gateway import TOOL, URL

BODY = {"model": "tiny", "input": "hi"}
MESSAGE = {"role": "user", "content": "hi"}
UNSUPPORTED = [
    ({"tools": [{"type": "web_search"}]}, "tools", "tools.0: a tool of type 'web_search'"),
    ({"tools": [TOOL, {"type": "mcp", "server_label": "x"}]}, "tools", "tools.1"),
    ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice", "web_search_preview"),
    ({"conversation": "conv_1"}, "conversation", "conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "prompt"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "context"),
    ({"moderation": {"model": "x"}}, "moderation", "moderation"),
    ({"n": 2}, "n", "n is"),
    ({"response_format": {"type": "text"}}, "response_format", "response_format"),
    ({"truncation": "auto"}, "truncation", "truncation auto"),
    ({"text": {"verbosity": "low"}}, "text", "verbosity low"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning", "detailed summary"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "input.0"),
    ({"input": [MESSAGE, {"type": "computer_call"}]}, "input", "input.1"),
    (
        {"input": [{**MESSAGE, "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input",
        "input.0.content.0: images are not supported",
    ),
]
WRONG = [
    ({"input": None}, "input", "input"),
    ({"input": []}, "input", "empty"),
    ({"input": [MESSAGE] * 4097}, "input", "4096"),
    ({"input": [{**MESSAGE, "role": "tool"}]}, "input", "input.0.role"),
    ({"input": [{**MESSAGE, "content": None}]}, "input", "input.0.content"),
    ({"input": [{**MESSAGE, "content": [{"type": "input_text"}]}]}, "input", "input.0.content.0"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "input", "input.0.call_id"),
    ({"input": [{"type": ["message"]}]}, "input", "input.0"),
    (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1]"}]},
        "input",
        "input.0",
    ),
    ({"temperature": "1"}, "temperature", "temperature"),
    ({"temperature": 3}, "temperature", "temperature"),
    ({"top_p": 0}, "top_p", "top_p"),
    ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs", "top_logprobs"),
    ({"include": ["nothing"]}, "include", "include.0"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", "16"),
    ({"metadata": {"x" * 65: "x"}}, "metadata", "64"),
    ({"metadata": {"x": "x" * 513}}, "metadata", "512"),
    ({"metadata": {"x": 1}}, "metadata", "metadata.x"),
    ({"max_tool_calls": 2**64}, "max_tool_calls", "64 bits"),
    ({"tools": [{**TOOL, "parameters": {"maximum": 2**64}}]}, "tools", "64 bits"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "schema"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "name"),
    (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nope"}}}},
        "text.format",
        "",
    ),
    ({"tools": [{"type": "function"}]}, "tools", "tools.0.name"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function"}},
        "tool_choice",
        "tool_choice.name",
    ),
    (
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "other"}],
            },
        },
        "tool_choice",
        "other",
    ),
    ({"priority": 101}, "priority", "priority"),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs", "messages"),
]


async def refused(client: httpx.AsyncClient, body: dict) -> dict:
    answer = await client.post(URL, json={**BODY, **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


async def test_what_is_not_supported_is_refused_by_name(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        for body, field, text in UNSUPPORTED:
            error = await refused(client, body)
            assert (error["code"], error["param"]) == ("unsupported_parameter", field), body
            assert text in error["message"]
            assert "not supported" in error["message"]


async def test_what_is_wrong_is_refused_with_its_place(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        for body, field, text in WRONG:
            error = await refused(client, body)
            assert error["param"] == field, (body, error)
            assert text in error["message"], (body, error)


async def test_a_model_that_is_not_there(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        answer = await client.post(URL, json={**BODY, "model": "nope"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?stream=maybe", "stream"),
        ("?stream=true&starting_after=-1", "starting_after"),
        ("?stream=true&starting_after=x", "starting_after"),
        ("/input_items?order=up", "order"),
        ("/input_items?limit=0", "limit"),
        ("/input_items?after=x", "after"),
    ],
)
async def test_bad_queries(checkpoint, query, field):
    async with gateway(checkpoint) as (client, _, _):
        made = (await client.post(URL, json={**BODY, "background": True})).json()
        answer = await client.get(f"{URL}/{made['id']}{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("name", ["x", "resp_", f"resp_00000000_{'0' * 32}", "x" * 5000])
async def test_names_of_nothing(checkpoint, name):
    async with gateway(checkpoint) as (client, _, _):
        answer = await client.get(f"{URL}/{name}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "response_not_found")
    assert len(error["message"]) < 300
