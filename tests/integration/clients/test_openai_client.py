"""The openai client against real processes: what it sends is done, and what it reads is right."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, Field

from support.cells.clusters import Cluster
from support.oracles.transformers_oracle import Oracle

TURNS: list[dict[str, str]] = [{"role": "user", "content": "Say something."}]
TOLERANCE = 1e-4


class Report(BaseModel):
    """What the answers are parsed as."""

    mood: Literal["good", "größer", "日本"]
    level: int = Field(ge=1, le=40)
    tags: list[Literal["a", "b"]] = Field(max_length=3)
    is_done: bool


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{cluster.http_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_logprobs(client: openai.OpenAI, cluster: Cluster, tiny_checkpoint: Path) -> None:
    answer = client.chat.completions.create(
        model=cluster.model,
        messages=TURNS,
        logprobs=True,
        top_logprobs=4,
        max_completion_tokens=12,
        temperature=1,
        seed=3,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )
    [choice] = answer.choices
    tokens = choice.model_extra["token_ids"]
    prompt = answer.model_extra["prompt_token_ids"]
    rows = Oracle(tiny_checkpoint).logprobs([*prompt, *tokens])[len(prompt) - 1 :]
    told = choice.logprobs.content
    assert len(told) == len(tokens) == 12
    for entry, token, row in zip(told, tokens, rows, strict=False):
        assert entry.logprob == pytest.approx(row[token], abs=TOLERANCE)
        best = sorted(row, reverse=True)[:4]
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(best, abs=TOLERANCE)
        assert all(top.bytes for top in entry.top_logprobs)
    assert b"".join(bytes(entry.bytes) for entry in told).decode(errors="replace") == (
        choice.message.content
    )


def test_choices(client: openai.OpenAI, cluster: Cluster) -> None:
    answers = [
        client.chat.completions.create(
            model=cluster.model, messages=TURNS, n=3, seed=8, temperature=1, max_tokens=10
        )
        for _ in range(2)
    ]
    texts = [[choice.message.content for choice in answer.choices] for answer in answers]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    assert [choice.index for choice in answers[0].choices] == [0, 1, 2]


def test_logit_bias_and_stop(client: openai.OpenAI, cluster: Cluster) -> None:
    [letter] = (
        client.completions.create(
            model=cluster.model,
            prompt="x",
            max_tokens=0,
            echo=True,
            extra_body={"return_token_ids": True},
        )
        .choices[0]
        .model_extra["prompt_token_ids"]
    )
    answer = client.chat.completions.create(
        model=cluster.model,
        messages=TURNS,
        logit_bias={str(letter): 100},
        max_tokens=7,
        temperature=0,
    )
    assert answer.choices[0].message.content == "x" * 7
    free = client.completions.create(
        model=cluster.model, prompt="one", max_tokens=20, temperature=0, logprobs=0
    ).choices[0]
    assert all(math.isfinite(value) for value in free.logprobs.token_logprobs)
    stop = free.text[4:6]
    stopped = client.completions.create(
        model=cluster.model, prompt="one", max_tokens=20, temperature=0, stop=[stop]
    ).choices[0]
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.finish_reason == "stop"


def test_parsed_answers(client: openai.OpenAI, cluster: Cluster) -> None:
    """What a model says that knows nothing is a Report."""
    levels = set()
    for seed in range(6):
        answer = client.chat.completions.parse(
            model=cluster.model,
            messages=TURNS,
            response_format=Report,
            temperature=1,
            seed=seed,
            max_tokens=400,
        )
        [choice] = answer.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Report)
        levels.add(choice.message.parsed.level)
        with client.chat.completions.stream(
            model=cluster.model,
            messages=TURNS,
            response_format=Report,
            temperature=1,
            seed=seed,
            max_tokens=400,
        ) as stream:
            streamed = stream.get_final_completion().choices[0].message
        assert streamed.parsed == choice.message.parsed
        assert json.loads(streamed.content) == choice.message.parsed.model_dump()
    assert len(levels) > 1


def test_a_schema_that_cannot_be_is_the_clients_error(
    client: openai.OpenAI, cluster: Cluster
) -> None:
    schema = {"name": "bad", "schema": {"type": "no-such-type"}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=cluster.model,
            messages=TURNS,
            response_format={"type": "json_schema", "json_schema": schema},
        )
    assert caught.value.param == "response_format"
    assert caught.value.code == "invalid_grammar"
