"""Harmony through real processes, by a model that knows nothing: what a grammar holds it to is read
by the openai client, and any sequence of the format's tokens is read somehow."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from pagewire import LLM
from support.cells.guided_cell import SETTINGS, make_guided_checkpoint
from support.checkpoints.harmony_models import TOKENS, add_harmony
from support.oracles.json_schema import is_valid
from support.processes.processes import free_port

DAYS: dict[str, Any] = {
    "type": "object",
    "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["days"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "parameters": DAYS, "strict": True}
TURNS: list[Any] = [{"role": "user", "content": "Go."}]
SEEDS = range(2)
ANY: dict[str, Any] = {"model": "model", "temperature": 1.0}
"""Every token may come, not only the likely ones."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[openai.OpenAI, Any]]:
    """A client, and the ids of the format's tokens."""
    folder = make_guided_checkpoint(
        tmp_path_factory.mktemp("harmony") / "model", num_added=len(TOKENS)
    )
    add_harmony(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = {token: str(tokenizer.token_to_id(token)) for token in TOKENS}
    with (
        LLM(str(folder), port=free_port(), grpc_port=free_port(), **SETTINGS) as llm,
        openai.OpenAI(
            base_url=f"{llm.cluster.http_url}/v1", api_key="none", max_retries=0
        ) as client,
    ):
        yield client, ids


def chat(client: openai.OpenAI, seed: int, *, ignore_eos: bool = False, **more: Any) -> Any:
    """Return the choice of a chat, which is the same streamed."""
    fields = {
        **ANY,
        "messages": TURNS,
        "seed": seed,
        "max_tokens": 150,
        "extra_body": {"min_p": 0, "ignore_eos": ignore_eos},
        **more,
    }
    [whole] = client.chat.completions.create(**fields).choices
    said = {"reasoning_content": "", "content": "", "arguments": ""}
    reason = None
    for chunk in client.chat.completions.create(**fields, stream=True):
        [choice] = chunk.choices
        reason = choice.finish_reason or reason
        said["content"] += choice.delta.content or ""
        said["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
        for item in choice.delta.tool_calls or ():
            said["arguments"] += item.function.arguments
    message = whole.message
    assert said == {
        "reasoning_content": getattr(message, "reasoning_content", ""),
        "content": message.content or "",
        "arguments": "".join(item.function.arguments for item in message.tool_calls or ()),
    }
    assert reason == whole.finish_reason
    return whole


def test_what_is_held_is_read(served: tuple[openai.OpenAI, Any]) -> None:
    client, ids = served
    # A random model would not end its thoughts.
    more = {"logit_bias": {ids["<|end|>"]: 7}}
    form = {"type": "json_schema", "json_schema": {"name": "days", "schema": DAYS}}
    tools = [{"type": "function", "function": FUNCTION}]
    thoughts = []
    for seed in SEEDS:
        called = chat(client, seed, tools=tools, tool_choice="required", **more)
        [call] = called.message.tool_calls
        final = chat(client, seed, response_format=form, **more)
        assert (called.finish_reason, final.finish_reason) == ("tool_calls", "stop")
        assert (called.message.content, call.function.name) == (None, "weather")
        assert is_valid(json.loads(call.function.arguments), DAYS)
        assert is_valid(json.loads(final.message.content), DAYS)
        thoughts += [getattr(one.message, "reasoning_content", "") for one in (called, final)]
    assert any(thoughts)
    assert not all(thoughts)


def test_responses_stream_calls_and_thoughts(served: tuple[openai.OpenAI, Any]) -> None:
    client, _ = served
    kinds = set()
    for seed in range(6, 9):
        stream = client.responses.create(
            **ANY,
            input="Go.",
            max_output_tokens=40,
            tools=[{"type": "function", **FUNCTION}],  # type: ignore[list-item]
            tool_choice="required",
            stream=True,
            extra_body={"seed": seed, "min_p": 0},
        )
        arguments = ""
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                arguments += event.delta
        assert event.type in ("response.completed", "response.incomplete")
        kinds |= {item.type for item in event.response.output}
        if event.type == "response.completed":
            call = event.response.output[-1]
            assert call.arguments == arguments
            assert is_valid(json.loads(arguments), DAYS)
    assert kinds == {"reasoning", "function_call"}


def test_any_sequence_of_tokens_is_read(served: tuple[openai.OpenAI, Any]) -> None:
    """Nothing holds the model, which says the format's tokens at every other place."""
    client, ids = served
    bias = dict.fromkeys(ids.values(), 6)
    texts = [
        chat(client, seed, logit_bias=bias, max_tokens=60, ignore_eos=True).message
        for seed in SEEDS
    ]
    said = "".join(text.content or "" for text in texts)
    assert said
    assert not any("\ufdd0" <= char <= "\ufdef" for char in said)
    assert not any(token in said for token in TOKENS)
