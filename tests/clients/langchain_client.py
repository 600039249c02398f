"""langchain-openai against a server: langchain_client.py URL MODEL."""

import asyncio
import json
import sys
from importlib import metadata
from typing import Literal

import openai
from caught import caught
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict
from questions import CAPITAL, COPIED, COPY, FOUND, LOOKUP, TO_JSON, UNKNOWN


class Reading(BaseModel):
    """What an answer is parsed as; closed, or the model may go on with keys of its own."""

    model_config = ConfigDict(extra="forbid")
    word: Literal["river", "cloud"]
    is_long: bool


def chat(llm: ChatOpenAI, model: str) -> None:
    answer = llm.invoke(COPY)
    assert (answer.content, type(answer)) == (COPIED, AIMessage)
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["model_name"] == model
    assert answer.usage_metadata["total_tokens"] > answer.usage_metadata["output_tokens"] > 0
    talk = [
        SystemMessage("End every answer with DONE."),
        HumanMessage("Repeat these words: stone, key, moon"),
    ]
    assert llm.invoke(talk).content == "stone, key, moon DONE"
    assert [answer.content for answer in llm.batch([COPY, LOOKUP, CAPITAL])] == [
        COPIED,
        FOUND,
        UNKNOWN,
    ]


def stream(llm: ChatOpenAI) -> None:
    total = None
    pieces = 0
    for chunk in llm.stream(COPY, stream_usage=True):
        total = chunk if total is None else total + chunk
        pieces += bool(chunk.content)
    assert total.content == COPIED
    assert pieces > 1, "the answer came in one piece"
    assert total.usage_metadata["output_tokens"] > 0
    assert total.response_metadata["finish_reason"] == "stop"
    scored = llm.bind(logprobs=True, top_logprobs=2).invoke(COPY)
    assert len(scored.response_metadata["logprobs"]["content"]) > 2


async def asynchronous(llm: ChatOpenAI) -> None:
    answers = await asyncio.gather(llm.ainvoke(COPY), llm.ainvoke(LOOKUP))
    assert [answer.content for answer in answers] == [COPIED, FOUND]
    assert "".join([chunk.content async for chunk in llm.astream(CAPITAL)]) == UNKNOWN


def structured(llm: ChatOpenAI) -> None:
    short = llm.bind(max_tokens=300)
    for schema in (Reading, Reading.model_json_schema()):
        asked = llm.with_structured_output(schema, method="json_schema", include_raw=True)
        found = asked.invoke(COPY)
        assert found["parsing_error"] is None
        parsed = found["parsed"]
        assert Reading.model_validate(parsed if isinstance(parsed, dict) else parsed.model_dump())
    pieces = list(llm.with_structured_output(Reading, method="json_schema").stream(COPY))
    assert isinstance(pieces[-1], Reading)
    asked = short.bind(response_format={"type": "json_object"})
    assert isinstance(json.loads(asked.invoke(TO_JSON).content), dict)


def rest(options: dict[str, object], model: str) -> None:
    vectors = OpenAIEmbeddings(model=model, check_embedding_ctx_length=False, **options)
    one, two = vectors.embed_documents(["a red fox", "a river"])
    assert len(one) == len(two) > 1
    assert (
        max(abs(x - y) for x, y in zip(one, vectors.embed_query("a red fox"), strict=True)) < 1e-5
    )
    text = OpenAI(model=model, temperature=0, max_tokens=6, **options)
    whole = text.invoke("one")
    assert "".join(text.stream("one")) == whole != ""
    missing = ChatOpenAI(model="nope", **options)
    assert caught(openai.NotFoundError, missing.invoke, input="x").code == "model_not_found"
    llm = ChatOpenAI(model=model, **options)
    caught(ContextOverflowError, llm.invoke, input="x " * 5000)


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    options = {"base_url": url, "api_key": "none", "max_retries": 0}
    llm = ChatOpenAI(model=model, temperature=0, use_responses_api=False, **options)
    chat(llm, model)
    stream(llm)
    structured(llm)
    asyncio.run(asynchronous(llm))
    rest(options, model)
    print(metadata.version("langchain-openai"))


if __name__ == "__main__":
    main(*sys.argv[1:])
