"""From the turns and tools of a ChatRequest to plain data: what is kept, and what is refused by
name."""

import pytest

from pagewire_frontend.chat.tool_use import NO_TOOLS, Tool, ToolUse
from pagewire_frontend.grpc_api.chat_convert import chat_turns, tool_use
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import tools_pb2
from pagewire_shared.errors import InvalidRequestError

ASSISTANT, TOOL, USER = pb.CHAT_ROLE_ASSISTANT, pb.CHAT_ROLE_TOOL, pb.CHAT_ROLE_USER
CALL = tools_pb2.ToolCall(id="c1", name="find", arguments='{"x": 1}')


def test_a_whole_conversation_with_a_call():
    turns = chat_turns(
        [
            pb.ChatMessage(role=USER, content="hi", name="ann"),
            pb.ChatMessage(role=ASSISTANT, tool_calls=[CALL], reasoning="hm"),
            pb.ChatMessage(role=TOOL, content="2", tool_call_id="c1", name="find"),
            pb.ChatMessage(role=ASSISTANT, content="two", name="bot"),
        ]
    )
    function = {"name": "find", "arguments": {"x": 1}}
    assert turns == [
        {"role": "user", "content": "hi", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "2", "name": "find", "tool_call_id": "c1"},
        {"role": "assistant", "content": "two", "name": "bot"},
    ]


def test_a_tool_turn_of_an_older_client_names_no_call():
    assert chat_turns([pb.ChatMessage(role=TOOL, content="2")]) == [
        {"role": "tool", "content": "2"}
    ]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.ChatMessage(content="x"), "no role 0"),
        (pb.ChatMessage(role=77, content="x"), "no role 77"),
        (pb.ChatMessage(role=USER, tool_calls=[CALL]), "tool_calls belongs"),
        (pb.ChatMessage(role=TOOL, reasoning=""), "reasoning belongs"),
        (pb.ChatMessage(role=ASSISTANT, tool_call_id="c1"), "tool_call_id belongs"),
        (pb.ChatMessage(role=ASSISTANT, tool_calls=[tools_pb2.ToolCall(id="c1")]), "has no name"),
        (
            pb.ChatMessage(
                role=ASSISTANT, tool_calls=[tools_pb2.ToolCall(name="f", arguments="{")]
            ),
            "no JSON",
        ),
        (
            pb.ChatMessage(
                role=ASSISTANT, tool_calls=[tools_pb2.ToolCall(name="f", arguments="1")]
            ),
            "must be an object",
        ),
    ],
)
def test_a_turn_that_cannot_be_is_named_by_its_place(message, why):
    fine = pb.ChatMessage(role=USER, content="x")
    with pytest.raises(InvalidRequestError, match=rf"^messages\.1: .*{why}") as caught:
        chat_turns([fine, message])
    assert caught.value.field == "messages"


FIND = tools_pb2.Tool(name="find")


@pytest.mark.parametrize(
    ("request_", "use"),
    [
        (pb.ChatRequest(), NO_TOOLS),
        (pb.ChatRequest(tools=[FIND]), ToolUse(tools=(Tool(name="find"),), mode="auto")),
        (
            pb.ChatRequest(tools=[FIND], tool_mode=tools_pb2.TOOL_MODE_NONE),
            ToolUse(tools=(Tool(name="find"),), mode="none"),
        ),
        (
            pb.ChatRequest(tools=[FIND], tool_mode=tools_pb2.TOOL_MODE_REQUIRED),
            ToolUse(tools=(Tool(name="find"),), mode="required"),
        ),
        (
            pb.ChatRequest(tools=[FIND], tool_name="find", parallel_tool_calls=False),
            ToolUse(tools=(Tool(name="find"),), mode="required", name="find", is_parallel=False),
        ),
        # What cannot be is for the place that HTTP asks, too.
        (pb.ChatRequest(tool_name=""), ToolUse(mode="required", name="")),
        (
            pb.ChatRequest(
                tools=[
                    tools_pb2.Tool(
                        name="f", description="d", parameters='{"type": "object"}', is_strict=True
                    )
                ]
            ),
            ToolUse(
                tools=(
                    Tool(name="f", description="d", parameters={"type": "object"}, strict=True),
                ),
                mode="auto",
            ),
        ),
    ],
)
def test_what_is_said_of_tools(request_, use):
    assert tool_use(request_) == use


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ChatRequest(tools=[FIND], tool_mode=tools_pb2.TOOL_MODE_UNSPECIFIED), "tool_choice"),
        (pb.ChatRequest(tools=[FIND], tool_mode=9), "tool_choice"),
        *(
            (pb.ChatRequest(tools=[FIND, tools_pb2.Tool(name="f", parameters=text)]), "tools")
            for text in ("", "{", "[]", "null", '{"a": NaN}', "[" * 60000, '{"a": "' + "x" * 65536)
        ),
    ],
)
def test_tools_that_cannot_be(request_, field):
    with pytest.raises(InvalidRequestError, match=field) as caught:
        tool_use(request_)
    assert caught.value.field == field
