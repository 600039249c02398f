"""Tools and calls between OpenAI's mappings, plain data and messages, and the outputs made of
them."""

from typing import Any

import pytest

from pagewire.client.client_convert import (
    chat_request,
    complete_request,
    event_from_message,
    message_message,
)
from pagewire.client.events import Delta, Finished, Message, Opened, ToolCall, ToolCallDelta
from pagewire.client.tool_convert import joined_calls
from pagewire.offline.outputs import OutputCollector
from pagewire.offline.prompts import chat_requests
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2, tools_pb2
from pagewire_shared.errors import InvalidRequestError

TURN = Message("user", "x")
FIND = {"type": "function", "function": {"name": "find"}}


def test_tools_are_sent() -> None:
    schema = {"type": "object", "properties": {"é": {}}}
    function = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    tools = [FIND, {"type": "function", "function": function}]
    request = chat_request([TURN], None, {"tools": tools, "parallel_tool_calls": False})
    [find, other] = request.tools
    assert find == tools_pb2.Tool(name="find")
    text = '{"type": "object", "properties": {"é": {}}}'
    assert other == tools_pb2.Tool(name="f", description="d", parameters=text, is_strict=True)
    assert request.HasField("parallel_tool_calls")
    assert not request.parallel_tool_calls
    assert request.WhichOneof("tool_choice") is None


@pytest.mark.parametrize(
    ("choice", "field", "value"),
    [
        ("none", "tool_mode", tools_pb2.TOOL_MODE_NONE),
        ("auto", "tool_mode", tools_pb2.TOOL_MODE_AUTO),
        ("required", "tool_mode", tools_pb2.TOOL_MODE_REQUIRED),
        (FIND, "tool_name", "find"),
    ],
)
def test_a_tool_choice_is_sent(choice: Any, field: str, value: object) -> None:
    request = chat_request([TURN], None, {"tools": [FIND], "tool_choice": choice})
    assert request.WhichOneof("tool_choice") == field
    assert getattr(request, field) == value


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        *(
            ({"tools": [FIND, bad]}, "tools")
            for bad in (
                {},
                5,
                {"type": "function", "function": {}},
                {"type": "function", "function": {"name": 5}},
                {"type": "function", "function": {"name": "f", "description": 5}},
                {"type": "function", "function": {"name": "f", "strict": "yes"}},
                {"type": "function", "function": {"name": "f", "parameters": {"x": {1}}}},
                {"type": "function", "function": {"name": "f", "parameters": float("nan")}},
            )
        ),
    ],
)
def test_an_invalid_tool_is_named(asked: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=field) as caught:
        chat_request([TURN], None, asked)
    assert caught.value.field == field


def test_turns_with_calls_are_accepted_in_openais_form() -> None:
    function = {"name": "find", "arguments": "{}"}
    said = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        "reasoning_content": "hm",
    }
    whole = Message("assistant", "", tool_calls=[ToolCall("c1", "find", "{}")], reasoning="hm")
    assert message_message(said) == message_message(whole)
    assert message_message(whole) == inference_pb2.ChatMessage(
        role=inference_pb2.CHAT_ROLE_ASSISTANT,
        tool_calls=[tools_pb2.ToolCall(id="c1", name="find", arguments="{}")],
        reasoning="hm",
    )
    result = message_message({"role": "tool", "content": "2", "tool_call_id": "c1"})
    assert result.tool_call_id == "c1"
    assert not message_message(TURN).HasField("tool_call_id")


@pytest.mark.parametrize("calls", [5, "x", [5], [{"id": "c"}], [{"function": {"name": "f"}}]])
def test_an_invalid_call_is_named(calls: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tool") as caught:
        message_message({"role": "assistant", "content": "x", "tool_calls": calls})
    assert caught.value.field == "messages"


def test_a_stream_with_calls_becomes_an_output() -> None:
    collector = OutputCollector(1, False)
    pieces = [(0, "c0", "find", '{"x"'), (1, "c1", "go", ""), (0, None, None, ": 1}")]
    for position, (index, call_id, name, arguments) in enumerate(pieces):
        call = tools_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments)
        delta = inference_pb2.ChoiceDelta(
            first_position=position, token_ids=[7], text="a", reasoning="b", tool_calls=[call]
        )
        event = event_from_message(inference_pb2.ChatResponse(delta=delta))
        assert isinstance(event, Delta)
        assert event.tool_calls == (ToolCallDelta(index, arguments, call_id, name),)
        collector.add(event)
    reason = sampling_pb2.FINISH_REASON_TOOL_CALLS
    end = inference_pb2.ChoiceFinished(reason=reason)
    finished = event_from_message(inference_pb2.ChatResponse(finished=end))
    assert finished == Finished(0, "tool_calls", "", None)
    collector.add(finished)
    [output] = collector.result(None).outputs
    assert (output.text, output.reasoning, output.finish_reason) == ("aaa", "bbb", "tool_calls")
    assert output.tool_calls == [ToolCall("c0", "find", '{"x": 1}'), ToolCall("c1", "go", "")]


def test_an_output_without_calls_has_none() -> None:
    collector = OutputCollector(1, False)
    collector.add(Delta(0, 0, [7], "a"))
    [output] = collector.result(None).outputs
    assert (output.tool_calls, output.reasoning) == ([], None)
    assert joined_calls([]) == []


def test_an_echo_is_requested_and_differs_from_its_absence() -> None:
    asked = [
        chat_request([TURN], None, {"echo": True}),
        complete_request("x", None, None, echo=True),
    ]
    assert all(request.options.echo for request in asked)
    assert not complete_request("x", None, None).options.HasField("echo")
    for echo in (None, ""):
        opened = inference_pb2.StreamOpened(request_id="ab", model="m", echo=echo)
        event = event_from_message(inference_pb2.ChatResponse(opened=opened))
        assert event == Opened("ab", "m", (), 0, echo)


def test_offline_tools_are_sent_with_each_conversation() -> None:
    turn = {"role": "user", "content": "x"}
    requests = chat_requests([[turn], [turn]], None, tools=[FIND], tool_choice="required")
    expected = {"tools": [FIND], "tool_choice": "required"}
    assert [request.chat_options for request in requests] == [expected] * 2
