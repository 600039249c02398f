"""The openai package, major version 2 or 3, against a server: openai_client.py URL MODEL."""

import asyncio
import math
import sys
from typing import Literal

import openai
from caught import caught
from pydantic import BaseModel
from questions import CAPITAL, COPIED, COPY, FOUND, LOOKUP, UNKNOWN, turns


class Reading(BaseModel):
    """What an answer is parsed as."""

    word: Literal["river", "cloud"]
    is_long: bool


def chat(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=turns(COPY), temperature=0, logprobs=True, top_logprobs=2
    )
    [choice] = answer.choices
    assert choice.message.content == COPIED
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    assert choice.message.refusal is choice.message.tool_calls is None
    assert answer.usage.completion_tokens == len(choice.logprobs.content)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    spoken = b"".join(bytes(token.bytes) for token in choice.logprobs.content[:-1])
    assert spoken.decode().startswith(COPIED[:-1])
    assert answer._request_id
    several = client.chat.completions.create(
        model=model, messages=turns(COPY), n=2, temperature=0, stop=["cloud"]
    )
    assert [choice.message.content for choice in several.choices] == ["river, "] * 2


def chat_stream(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.create(
        model=model,
        messages=turns(COPY),
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    *parts, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in parts) == COPIED
    assert [chunk.choices[0].delta.role for chunk in parts] == ["assistant"] + [None] * (
        len(parts) - 1
    )
    assert parts[-1].choices[0].finish_reason == "stop"
    assert (last.choices, last.usage.completion_tokens > 0) == ([], True)
    # Left early: the connection is closed, and the next request works.
    left = client.chat.completions.create(
        model=model, messages=turns("Tell me a story."), stream=True
    )
    next(iter(left))
    left.close()
    with client.chat.completions.stream(
        model=model, messages=turns(CAPITAL), temperature=0
    ) as events:
        kinds = {event.type for event in events}
        assert events.get_final_completion().choices[0].message.content == UNKNOWN
    assert {"chunk", "content.delta", "content.done"} <= kinds


def parsed(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.parse(
        model=model, messages=turns(COPY), response_format=Reading, seed=1, max_tokens=300
    )
    assert isinstance(answer.choices[0].message.parsed, Reading)
    with client.chat.completions.stream(
        model=model, messages=turns(COPY), response_format=Reading, seed=1, max_tokens=300
    ) as events:
        streamed = events.get_final_completion().choices[0].message.parsed
    assert streamed == answer.choices[0].message.parsed


def completions(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=["river, cloud", "one"], n=2, best_of=2, max_tokens=4, logprobs=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(len(choice.logprobs.tokens) <= 4 for choice in answer.choices)
    echoed = client.completions.create(
        model=model, prompt="river, cloud", max_tokens=0, echo=True, logprobs=0
    ).choices[0]
    assert echoed.text == "river, cloud"
    first, *rest = echoed.logprobs.token_logprobs
    assert first is None
    assert rest
    assert all(math.isfinite(value) for value in rest)
    stream = client.completions.create(
        model=model, prompt="one", max_tokens=6, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].text for chunk in stream)
    whole = client.completions.create(model=model, prompt="one", max_tokens=6, temperature=0)
    assert text == whole.choices[0].text != ""


def embeddings(client: openai.OpenAI, model: str) -> None:
    by_default = client.embeddings.create(model=model, input=["a red fox", "a river"])
    as_numbers = client.embeddings.create(
        model=model, input=["a red fox", "a river"], encoding_format="float"
    )
    for one, two in zip(by_default.data, as_numbers.data, strict=True):
        assert all(
            math.isclose(x, y, abs_tol=1e-5)
            for x, y in zip(one.embedding, two.embedding, strict=True)
        )
    assert by_default.data[0].embedding != by_default.data[1].embedding
    assert by_default.usage.total_tokens > 0


def models(client: openai.OpenAI, model: str) -> None:
    [listed] = client.models.list()
    assert (listed.id, listed.object) == (model, "model")
    assert client.models.retrieve(model).model_dump() == listed.model_dump()


def errors(client: openai.OpenAI, model: str) -> None:
    asked = {"model": model, "messages": turns("x")}
    cases = [
        (openai.NotFoundError, {"model": "nope"}, "model_not_found", "model"),
        (openai.BadRequestError, {"temperature": 3}, "invalid_value", "temperature"),
        (openai.BadRequestError, {"n": "2"}, "invalid_type", "n"),
        (openai.BadRequestError, {"max_tokens": 5000}, "context_length_exceeded", "max_tokens"),
        (
            openai.BadRequestError,
            {"messages": turns("x " * 5000)},
            "context_length_exceeded",
            "messages",
        ),
    ]
    for stream in (False, True):
        for kind, changed, code, param in cases:
            fields = {**asked, **changed, "stream": stream}
            error = caught(kind, client.chat.completions.create, **fields)
            assert (error.code, error.param) == (code, param), (changed, error.body)
            assert error.type == "invalid_request_error"
            assert error.request_id
            assert error.message
    caught(openai.NotFoundError, client.images.generate, model=model, prompt="x")
    hasty = client.with_options(timeout=0.001)
    caught(openai.APITimeoutError, hasty.chat.completions.create, **asked)


async def asynchronous(url: str, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def whole(question: str) -> str:
            answer = await client.chat.completions.create(
                model=model, messages=turns(question), temperature=0
            )
            return answer.choices[0].message.content

        async def streamed(question: str) -> str:
            stream = await client.chat.completions.create(
                model=model, messages=turns(question), temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        questions = {COPY: COPIED, LOOKUP: FOUND, CAPITAL: UNKNOWN}
        for ask in (whole, streamed):
            answers = await asyncio.gather(*(ask(question) for question in questions))
            assert answers == list(questions.values())
        assert [found.id async for found in client.models.list()] == [model]
        vector = await client.embeddings.create(model=model, input="a red fox")
        assert len(vector.data[0].embedding) > 1
        kind: type[Exception] | None = None
        try:
            await client.completions.create(model="nope", prompt="x")
        except openai.NotFoundError as error:
            kind = type(error)
        assert kind is openai.NotFoundError


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for part in (chat, chat_stream, parsed, completions, embeddings, models, errors):
            part(client, model)
    asyncio.run(asynchronous(url, model))
    print(openai.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
