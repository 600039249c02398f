"""Tool calls with the openai package: openai_tools.py URL MODEL. The calls are forced: the built-in
model knows nothing of tools."""

import json
import sys

import openai
from questions import COPY, turns

PARAMETERS = {
    "type": "object",
    "properties": {"word": {"enum": ["river", "cloud"]}, "is_long": {"type": "boolean"}},
    "required": ["word", "is_long"],
    "additionalProperties": False,
}
READ = {"name": "read", "description": "Reads.", "parameters": PARAMETERS, "strict": True}
LOOK = {"name": "look", "parameters": {**PARAMETERS, "required": ["word"]}, "strict": True}
TOOLS = [{"type": "function", "function": function} for function in (READ, LOOK)]
NAMED = {"type": "function", "function": {"name": "read"}}


def check_arguments(text: str) -> None:
    arguments = json.loads(text)
    assert arguments["word"] in ("river", "cloud")
    assert isinstance(arguments["is_long"], bool)


def whole(client: openai.OpenAI, asked: dict[str, object]) -> None:
    [choice] = client.chat.completions.create(**asked, tool_choice=NAMED).choices
    [call] = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert (call.type, call.function.name) == ("function", "read")
    assert call.id
    check_arguments(call.function.arguments)
    [choice] = client.chat.completions.create(**asked, tool_choice="required").choices
    assert {call.function.name for call in choice.message.tool_calls} <= {"read", "look"}


def streamed(client: openai.OpenAI, asked: dict[str, object]) -> None:
    pieces = []
    reasons = []
    for chunk in client.chat.completions.create(**asked, tool_choice=NAMED, stream=True):
        [choice] = chunk.choices
        pieces += choice.delta.tool_calls or ()
        reasons.append(choice.finish_reason)
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert len(pieces) > 1, "the call came in one piece"
    assert {piece.index for piece in pieces} == {0}
    assert pieces[0].id
    assert pieces[0].function.name == "read"
    assert not any(piece.id or piece.function.name for piece in pieces[1:])
    check_arguments("".join(piece.function.arguments or "" for piece in pieces))
    with client.chat.completions.stream(**asked, tool_choice=NAMED) as events:
        kinds = {event.type for event in events}
        [call] = events.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.done" in kinds
    assert call.function.parsed_arguments["word"] in ("river", "cloud")


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    asked = {"model": model, "messages": turns(COPY), "tools": TOOLS, "max_tokens": 300, "seed": 1}
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        whole(client, asked)
        streamed(client, asked)
    print(openai.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
