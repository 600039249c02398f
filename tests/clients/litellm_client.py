"""litellm against a server: litellm_client.py URL MODEL. LITELLM_LOCAL_MODEL_COST_MAP=True keeps it
from asking a host for prices when it is imported."""

import asyncio
import json
import sys
from importlib import metadata

import litellm
from caught import caught
from questions import CAPITAL, COPIED, COPY, FOUND, LOOKUP, UNKNOWN, turns


def chat(asked: dict[str, object]) -> None:
    answer = litellm.completion(messages=turns(COPY), temperature=0, **asked)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == (COPIED, "stop")
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 0
    scored = litellm.completion(messages=turns(COPY), logprobs=True, top_logprobs=2, **asked)
    assert scored.choices[0].logprobs.content
    several = litellm.completion(messages=turns(COPY), n=2, temperature=1, max_tokens=5, **asked)
    assert len(several.choices) == 2


def stream(asked: dict[str, object]) -> None:
    chunks = list(
        litellm.completion(
            messages=turns(LOOKUP),
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            **asked,
        )
    )
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == FOUND
    )
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]
    assert chunks[-1].usage.completion_tokens > 0
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == FOUND


def rest(asked: dict[str, object]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    answer = litellm.completion(
        messages=turns(COPY),
        max_tokens=300,
        temperature=0,
        response_format={
            "type": "json_schema",
            "json_schema": {
                "name": "a",
                "strict": True,
                "schema": {**schema, "additionalProperties": False},
            },
        },
        **asked,
    )
    assert isinstance(json.loads(answer.choices[0].message.content)["a"], bool)
    vectors = litellm.embedding(input=["a red fox", "a river"], **asked)
    assert len({len(item["embedding"]) for item in vectors.data}) == 1


def errors(asked: dict[str, object]) -> None:
    said = {**asked, "messages": turns(COPY)}
    error = caught(litellm.BadRequestError, litellm.completion, **said, temperature=3)
    assert "temperature" in str(error)
    for more in ({"messages": turns("x " * 5000)}, {"max_tokens": 5000}):
        caught(litellm.ContextWindowExceededError, litellm.completion, **{**said, **more})
    caught(litellm.NotFoundError, litellm.completion, **{**said, "model": "openai/nope"})


def text(asked: dict[str, object], model: str) -> None:
    named = {**asked, "model": f"text-completion-openai/{model}"}
    whole = litellm.text_completion(prompt="one", max_tokens=6, temperature=0, **named)
    chunks = litellm.text_completion(
        prompt="one", max_tokens=6, temperature=0, stream=True, **named
    )
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == whole.choices[0].text != ""


async def asynchronous(asked: dict[str, object]) -> None:
    answer = await litellm.acompletion(messages=turns(CAPITAL), temperature=0, **asked)
    assert answer.choices[0].message.content == UNKNOWN
    chunks = await litellm.acompletion(messages=turns(COPY), temperature=0, stream=True, **asked)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == COPIED


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    asked = {"model": f"openai/{model}", "api_base": url, "api_key": "none", "num_retries": 0}
    litellm.suppress_debug_info = True
    chat(asked)
    stream(asked)
    rest(asked)
    errors(asked)
    text(asked, model)
    asyncio.run(asynchronous(asked))
    print(metadata.version("litellm"))


if __name__ == "__main__":
    main(*sys.argv[1:])
