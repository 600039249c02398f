"""Tool calls through real processes, by a model that knows nothing: what it is held to parses and
follows its schema, and the openai client reads it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from pagewire import LLM
from support.cells.guided_cell import SETTINGS, make_guided_checkpoint
from support.oracles.json_schema import is_valid
from support.processes.processes import free_port

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F", "日本"]},
    },
    "required": ["city", "days", "unit"],
    "additionalProperties": False,
}
LAMPS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "lamps": {"type": "array", "items": {"$ref": "#/$defs/lamp"}, "maxItems": 2},
    },
    "required": ["lamps"],
    "additionalProperties": False,
    "$defs": {"lamp": {"type": "boolean"}},
}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS = {"weather": WEATHER, "lamps": LAMPS, "now": EMPTY}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]
NAMED: Any = {"type": "function", "function": {"name": "lamps"}}
SEEDS = range(8)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = make_guided_checkpoint(tmp_path_factory.mktemp("tools") / "model")
    with start(folder) as made:
        yield made


def start(folder: Path) -> LLM:
    """Start a model whose calls are read as Llama's, and whose template says nothing of it."""
    parser = ("llama3_json",)
    return LLM(
        str(folder),
        port=free_port(),
        grpc_port=free_port(),
        tool_call_parser=parser,
        **SETTINGS,
    )


@pytest.fixture(scope="module")
def client(llm: LLM) -> Iterator[openai.OpenAI]:
    url = f"{llm.cluster.http_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, seed: int, **more: Any) -> Any:
    fields = {"temperature": 1.0, "max_tokens": 150, "tools": TOOLS, **more}
    turns: list[Any] = [{"role": "user", "content": f"Do {seed}."}]
    [model] = client.models.list().data
    return client.chat.completions.create(model=model.id, messages=turns, seed=seed, **fields)


def followed(name: str, arguments: str) -> bool:
    return is_valid(json.loads(arguments), SCHEMAS[name])


def streamed(chunks: Any) -> tuple[list[tuple[str, str]], str, str]:
    """Return calls, content and why the stream ended."""
    calls: list[tuple[str, str]] = []
    content = reason = ""
    for chunk in chunks:
        [choice] = chunk.choices
        reason = choice.finish_reason or reason
        content += choice.delta.content or ""
        for item in choice.delta.tool_calls or ():
            if item.id is not None:
                assert item.index == len(calls)
                calls.append((item.function.name, ""))
            name, arguments = calls[item.index]
            calls[item.index] = (name, arguments + item.function.arguments)
    return calls, content, reason


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_forced_calls_follow_their_schema(
    client: openai.OpenAI, choice: Any, is_parallel: bool
) -> None:
    ended, names = 0, set()
    for seed in SEEDS:
        more = {"tool_choice": choice, "parallel_tool_calls": is_parallel}
        [whole] = ask(client, seed, **more).choices
        calls = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
        again = streamed(ask(client, seed, stream=True, **more))
        assert again == (calls, whole.message.content or "", whole.finish_reason)
        if whole.finish_reason == "length":
            calls = calls[:-1]
        else:
            assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
            assert len(calls) == 1 or (is_parallel and choice == "required")
            ended += 1
        assert all(followed(name, arguments) for name, arguments in calls), calls
        names |= {name for name, _ in calls}
    assert ended >= len(SEEDS) / 2
    assert names == {"lamps"} if choice is NAMED else len(names) > 1


def test_strict_tools_are_held_when_the_model_calls(client: openai.OpenAI) -> None:
    """A model that knows nothing would not call by itself: what it must not is forbidden."""
    num_calls = 0
    braces = {"logit_bias": bias_for(client, '{"name": "')}
    for seed in SEEDS:
        for more in ({}, braces):
            [choice] = ask(client, seed, **more).choices
            for call in choice.message.tool_calls or ():
                num_calls += 1
                if choice.finish_reason != "length":
                    assert followed(call.function.name, call.function.arguments)
            if choice.finish_reason != "length":
                assert not (choice.message.content or "").lstrip().startswith("{")
    assert num_calls > 0


def bias_for(client: openai.OpenAI, text: str) -> dict[str, int]:
    """Return what makes the first token of `text` likely."""
    [model] = client.models.list().data
    echoed = client.completions.create(
        model=model.id, prompt=text, echo=True, max_tokens=0, extra_body={"return_token_ids": True}
    )
    return {str(echoed.choices[0].model_extra["prompt_token_ids"][0]): 100}


def test_without_a_grammar_nothing_is_called(client: openai.OpenAI) -> None:
    """Or the tests above would say nothing."""
    loose = [{**tool, "function": {**tool["function"], "strict": False}} for tool in TOOLS]
    for seed in SEEDS:
        [choice] = ask(client, seed, tools=loose).choices
        assert choice.message.tool_calls is None
        assert choice.message.content
