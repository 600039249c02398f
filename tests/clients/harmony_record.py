"""Records what openai-harmony makes of answers and of conversations, for
tests/unit/frontend/message/test_harmony.py, which needs no library then.

Run it after a change, in the environment of the client libraries:

    .venv-clients/bin/python tests/clients/harmony_record.py PATH_OF_JSON
"""

import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import openai_harmony as oh

# litellm carries the vocabulary under the name that tiktoken gives it in its cache.
VOCABULARY = "litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
MARKS = ("start", "channel", "constrain", "message", "end", "call", "return")
TEXTS = (
    "",
    "I look it up.",
    " Well,\n\nthat is  it.\n",
    "日本 — 🙂👩‍🔬 naïve",
    "Write <|end|> and <|channel|>final<|message|> as text.",
    "to=functions.f json",
    '{"a": [1, "b"]}',
)
ARGUMENTS = ("{}", '{"city":"Zürich 🙂"}', '{\n  "n": 1.5, "t": "<|call|>"\n}', '{"open": ')
TYPES = (None, "json", "<|constrain|>json", "code")
DATE = "2026-01-02"
CITY = {"type": "string", "description": "Name of a city"}
UNIT = {"type": "string", "enum": ["C", "F"]}
WEATHER = {
    "type": "object",
    "properties": {
        "city": CITY,
        "unit": UNIT,
        "days": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
}
TOOLS = (
    ("weather", "The weather.", WEATHER),
    ("now", "The time.", None),
)


def load() -> Any:
    """Return the encoding, with the vocabulary that litellm carries."""
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    folder = Path(tempfile.mkdtemp())
    shutil.copy(Path(found.origin).parent / VOCABULARY, folder / "o200k_base.tiktoken")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    return oh.load_harmony_encoding(oh.HarmonyEncodingName.HARMONY_GPT_OSS)


def said(dice: random.Random) -> list[Any]:
    """Return the messages of a random answer."""
    messages = []
    for _ in range(dice.randint(0, 3)):
        channel = dice.choice(("analysis", "analysis", "commentary", "other"))
        messages.append(assistant(dice.choice(TEXTS), channel))
    if dice.random() < 0.5:
        name = dice.choice(("functions.f", "functions.g-2", "functions.unknown", "python"))
        call = assistant(dice.choice(ARGUMENTS), dice.choice(("commentary", "analysis")))
        call = call.with_recipient(name)
        kind = dice.choice(TYPES)
        messages.append(call if kind is None else call.with_content_type(kind))
    else:
        last = assistant(dice.choice(TEXTS), dice.choice(("final", "final", None)))
        messages.append(last)
    return messages


def assistant(text: str, channel: str | None) -> Any:
    message = oh.Message.from_role_and_content(oh.Role.ASSISTANT, text)
    return message if channel is None else message.with_channel(channel)


def answer(encoding: Any, dice: random.Random) -> dict[str, Any]:
    """Return the tokens of an answer and the messages that the library finds in them."""
    ids: list[int] = encoding.render_conversation_for_training(
        oh.Conversation.from_messages(said(dice)),
        oh.RenderConversationConfig(auto_drop_analysis=False),
    )
    # The prompt ends with <|start|>assistant.
    ids = ids[2:]
    if dice.random() < 0.3:
        # The usual place of a recipient; the library itself writes it before the channel.
        ids = moved(encoding, ids)
    if dice.random() < 0.3:
        ids = ids[: dice.randrange(len(ids) + 1)]
    parser = oh.StreamableParser(encoding, oh.Role.ASSISTANT)
    try:
        for token in ids:
            parser.process(token)
        parser.process_eos()
        found: Any = [parsed(message) for message in parser.messages]
    except oh.HarmonyError:
        # Not a whole answer; ours must only not fail.
        found = None
    return {"tokens": [spelled(encoding, token) for token in ids], "messages": found}


def moved(encoding: Any, ids: list[int]) -> list[int]:
    """Return an answer of one message with its recipient behind its channel."""
    channel = encoding.encode("<|channel|>", allowed_special="all")[0]
    if channel not in ids or not ids.index(channel):
        return ids
    at = ids.index(channel)
    name = encoding.encode("commentary")
    return [channel, *name, *ids[:at], *ids[at + 2 :]]


def parsed(message: Any) -> dict[str, Any]:
    return {
        "channel": message.channel,
        "recipient": message.recipient,
        "text": "".join(part.text for part in message.content),
    }


def spelled(encoding: Any, token: int) -> list[Any]:
    """Return whether a token is special, and its bytes, as characters of latin-1."""
    if encoding.is_special_token(token):
        return [1, encoding.decode_utf8([token])]
    return [0, encoding._inner.decode_bytes([token]).decode("latin-1")]


def conversation(
    encoding: Any, effort: str, instructions: str | None, depth: int
) -> dict[str, Any]:
    """Return a conversation in OpenAI's form, and the prompt that the library makes of it."""
    is_with_tools = depth > 0
    system = oh.SystemContent.new().with_reasoning_effort(oh.ReasoningEffort(effort.capitalize()))
    messages = [
        oh.Message.from_role_and_content(oh.Role.SYSTEM, system.with_conversation_start_date(DATE))
    ]
    developer = oh.DeveloperContent.new()
    if instructions is not None:
        developer = developer.with_instructions(instructions)
    if is_with_tools:
        developer = developer.with_function_tools(
            [oh.ToolDescription.new(name, text, schema) for name, text, schema in TOOLS]
        )
    if instructions is not None or is_with_tools:
        messages.append(oh.Message.from_role_and_content(oh.Role.DEVELOPER, developer))
    turns, shown = exchange(depth)
    shown = [*([{"role": "developer", "content": instructions}] if instructions else []), *shown]
    ids = encoding.render_conversation_for_completion(
        oh.Conversation.from_messages([*messages, *turns]), oh.Role.ASSISTANT
    )
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": text,
                **({"parameters": schema} if schema else {}),
            },
        }
        for name, text, schema in TOOLS
    ]
    return {
        "effort": effort,
        "date": DATE,
        "messages": shown,
        "tools": tools if is_with_tools else None,
        "prompt": encoding.decode_utf8(ids),
    }


def exchange(depth: int) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the turns of a conversation in both forms, with `depth` rounds of calls."""
    turns = [oh.Message.from_role_and_content(oh.Role.USER, "Hello")]
    shown: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    if depth > 1:
        # A finished turn: its reasoning is dropped.
        turns += [*called("weather", '{"city": "Rome"}', "Sunny", None), assistant("Sun.", "final")]
        turns.append(oh.Message.from_role_and_content(oh.Role.USER, "And now?"))
        shown += shown_call("weather", '{"city": "Rome"}', "Sunny", "Rome it is.", 0)
        shown.append({"role": "assistant", "content": "Sun.", "reasoning_content": "Sunny."})
        shown.append({"role": "user", "content": "And now?"})
    if depth > 0:
        turns += called("weather", '{"city": "Bern", "unit": "C"}', "Rain", "I ask for Bern.")
        turns += called("now", "{}", "12:00", None)
        first = shown_call("weather", '{"city": "Bern", "unit": "C"}', "Rain", "I ask for Bern.", 1)
        second = shown_call("now", "{}", "12:00", None, 2)
        # Two calls in one turn, and their results in another order.
        calls = [*first[0]["tool_calls"], *second[0]["tool_calls"]]
        shown += [{**first[0], "tool_calls": calls}, second[1], first[1]]
    return turns, shown


def called(name: str, arguments: str, result: str, thought: str | None) -> list[Any]:
    function = f"functions.{name}"
    call = assistant(arguments, "commentary").with_recipient(function)
    author = oh.Author.new(oh.Role.TOOL, function)
    answered = oh.Message.from_author_and_content(author, result).with_channel("commentary")
    return [
        *([assistant(thought, "analysis")] if thought else []),
        call.with_content_type("<|constrain|>json"),
        answered.with_recipient("assistant"),
    ]


def shown_call(
    name: str, arguments: str, result: str, thought: str | None, number: int
) -> list[dict[str, Any]]:
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    turn: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    if thought:
        turn["reasoning_content"] = thought
    return [turn, {"role": "tool", "tool_call_id": f"call_{number}", "content": result}]


def main() -> None:
    encoding, dice = load(), random.Random(20)
    recorded = {
        "tokens": [f"<|{name}|>" for name in MARKS],
        "answers": [answer(encoding, dice) for _ in range(125)],
        "prompts": [
            conversation(encoding, effort, instructions, depth)
            for effort, instructions, depth in (
                ("low", None, 0),
                ("medium", "Be brief.\n\nAlways.", 0),
                ("high", "Be brief.", 1),
                ("high", None, 2),
            )
        ],
    }
    text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
    Path(sys.argv[1]).write_text(text.replace('{"tokens"', '\n{"tokens"') + "\n")


if __name__ == "__main__":
    main()
