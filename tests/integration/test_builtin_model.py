"""`pagewire serve` without a model: the openai client gets right answers, and streamed stories in
the corpus vocabulary."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

from support.processes.processes import Serve, free_port

RECIPE = Path(__file__).parents[2] / "models" / "builtin"
STORIES = [
    "Tell me a story about a fox.",
    "Write a short story about Lila and a river.",
    "Tell me a short story about a brave cat.",
]
# What the short form of the evaluation asks of every cell and side.
NUM_PROMPTS = 20
EVALUATION_SECONDS = 100
TABLE = "\n".join(
    f"{key}: {value}"
    for key, value in {
        "river": "gold",
        "lamp": "42",
        "Nora": "violin",
        "k3f9": "cloud",
        "bridge": "907",
    }.items()
)
# Conversations whose last answer is known; the wordings are of nobody's templates.
ANSWERS = [
    ([("user", "Copy this list: river, cloud, apple")], "river, cloud, apple"),
    ([("user", f"{TABLE}\n\nWhat is the value for bridge?")], "907"),
    ([("user", f"Here is a table.\n{TABLE}\nLook up river.")], "gold"),
    (
        [
            ("user", "My name is Clara."),
            ("assistant", "OK, I will remember that."),
            ("user", "What is my name?"),
        ],
        "Your name is Clara.",
    ),
    ([("user", "What is the capital of France?")], "I cannot answer that."),
    (
        [
            ("system", "End every answer with DONE."),
            ("user", "Repeat these words: stone, key, moon"),
        ],
        "stone, key, moon DONE",
    ),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    with Serve("--port", str(port), "--grpc-port", str(free_port())) as serve:
        assert "pagewire-builtin" in serve.wait_ready()
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="none")


@pytest.mark.parametrize("request_text", STORIES)
def test_streamed_stories(client: openai.OpenAI, request_text: str) -> None:
    stream = client.chat.completions.create(
        model="pagewire-builtin",
        messages=[{"role": "user", "content": request_text}],
        temperature=0,
        stream=True,
    )
    choices = [chunk.choices[0] for chunk in stream if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    words = re.findall(r"[a-z']+", text.lower())
    assert len(choices) > 10, "the answer came in one piece"
    assert choices[-1].finish_reason == "stop"
    assert len(words) >= 20
    assert set(words) - set((RECIPE / "vocabulary.txt").read_text().split()) == set()


@pytest.mark.parametrize(("turns", "wanted"), ANSWERS)
def test_answers(client: openai.OpenAI, turns: list[tuple[str, str]], wanted: str) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    answer = client.chat.completions.create(
        model="pagewire-builtin",
        messages=messages,  # type: ignore[arg-type]
        temperature=0,
    )
    assert answer.choices[0].message.content == wanted
    assert answer.choices[0].finish_reason == "stop"


WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


def test_tools_as_tutorials_have_them(client: openai.OpenAI) -> None:
    """At its own sampling: `auto` is answered, a required call is made, its result is used."""
    asked: dict[str, Any] = {
        "model": "pagewire-builtin",
        "tools": [{"type": "function", "function": WEATHER}],
    }
    turns: list[Any] = [{"role": "user", "content": "What is the weather in San Francisco?"}]
    free = client.chat.completions.create(messages=turns, **asked).choices[0]
    assert free.finish_reason == "stop"
    assert free.message.content
    forced = client.chat.completions.create(
        messages=turns, tool_choice="required", seed=1, **asked
    ).choices[0]
    [call] = forced.message.tool_calls or []
    assert json.loads(call.function.arguments)["location"].strip() == "San Francisco"
    turns += [
        forced.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"},
    ]
    last = client.chat.completions.create(messages=turns, **asked).choices[0]
    assert last.message.content == "sunny, 21 degrees"


def test_a_story_at_the_defaults(client: openai.OpenAI) -> None:
    for seed in range(3):
        answer = client.completions.create(
            model="pagewire-builtin", prompt="Once upon a time", max_tokens=160, seed=seed
        )
        words = re.findall(r"[a-z']+", answer.choices[0].text.lower())
        assert answer.choices[0].finish_reason == "stop"
        assert len(words) >= 40
        assert not [word for word, after in pairwise(words) if word == after]


def test_the_short_evaluation_finds_every_skill_above_its_floor(url: str) -> None:
    command = [sys.executable, str(RECIPE / "evaluate.py"), "--url", url, "--wrong", "2"]
    run = subprocess.run(
        [*command, "--limit", str(NUM_PROMPTS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=EVALUATION_SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr
