"""Tools over gRPC with the plans that HTTP has: the same refusals, the same calls."""

import grpc.aio
import httpx
import pytest
from contract.chat_clients import FIND, ChatReader, chat, chatting

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import tools_pb2


def function(name="find", **more):
    return {"type": "function", "function": {"name": name, **more}}


BROKEN = '{"type": "object", "properties": {"x": {"not": {}}}}'


@pytest.mark.parametrize(
    ("request_", "body", "field"),
    [
        (
            chat(tools=[FIND], tool_name="other"),
            {"tools": [function()], "tool_choice": function("other")},
            "tool_choice",
        ),
        (chat(tool_mode=tools_pb2.TOOL_MODE_REQUIRED), {"tool_choice": "required"}, "tool_choice"),
        (chat(tools=[tools_pb2.Tool(name="a b")]), {"tools": [function("a b")]}, "tools"),
        (chat(tools=[FIND, FIND]), {"tools": [function()] * 2}, "tools"),
        (
            chat(tools=[tools_pb2.Tool(name=f"f{i}") for i in range(129)]),
            {"tools": [function(f"f{i}") for i in range(129)]},
            "tools",
        ),
        # Nothing says how this model writes calls, so that it cannot be left to it.
        (chat(tools=[FIND]), {"tools": [function()]}, "tools"),
        (
            chat(tools=[tools_pb2.Tool(name="find", parameters=BROKEN)], tool_name="find"),
            {
                "tools": [
                    function(parameters={"type": "object", "properties": {"x": {"not": {}}}})
                ],
                "tool_choice": function(),
            },
            "tools",
        ),
    ],
)
async def test_both_apis_refuse_the_same_in_the_same_words(tmp_path, request_, body, field):
    messages = [{"role": "user", "content": "hi"}]
    async with (
        chatting(tmp_path) as (frontend, _, _),
        httpx.AsyncClient(base_url=frontend.http_url) as http,
    ):
        code, detail = await ChatReader(frontend, request_).error()
        answer = await http.post("/v1/chat/completions", json={"messages": messages, **body})
    error = answer.json()["error"]
    assert (code, answer.status_code) == (grpc.StatusCode.INVALID_ARGUMENT, 400)
    assert (detail.field, detail.code) == (error["param"], error["code"])
    assert detail.message == error["message"]
    assert detail.field == field


async def test_a_forced_call_is_held_to_its_schema_and_comes_typed(tmp_path):
    async with chatting(tmp_path) as (frontend, attach, _):
        reader = ChatReader(frontend, chat(tools=[FIND], tool_name="find", max_tokens=200))
        submit = await attach.next("submit")
        assert submit.sampling.HasField("structured_outputs")
        attach.say(submit, '<tool_call>\n{"name": "find", "arguments": {"x": 1}}\n</tool_call>')
        await reader.end()
    [call] = reader.said[0].calls
    assert call[0]
    assert call[1:] == ["find", '{"x": 1}']
    assert reader.said[0].content.strip() == ""
    # The scripted scheduler says that max_tokens ended it.
    assert reader.said[0].end.reason == sampling_pb2.FINISH_REASON_LENGTH
