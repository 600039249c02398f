"""`pagewire serve` without a model: the openai client gets streamed stories in the corpus
vocabulary."""

import re
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from support.processes import Serve, free_port

VOCABULARY = Path(__file__).parents[2] / "models" / "builtin" / "vocabulary.txt"
STORIES = [
    "Tell me a story about a fox.",
    "Write a short story about Lila and a river.",
    "Tell me a short story about a brave cat.",
]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    port = free_port()
    with Serve("--port", str(port), "--grpc-port", str(free_port())) as serve:
        assert "pagewire-builtin" in serve.wait_ready()
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")


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
    assert set(words) - set(VOCABULARY.read_text().split()) == set()


def test_the_conversation_so_far_is_seen(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="pagewire-builtin",
        messages=[{"role": "user", "content": "Copy this list: river, cloud, apple"}],
        temperature=0,
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 5
    assert answer.choices[0].message.content
