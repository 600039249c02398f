"""instructor against a server: instructor_client.py URL MODEL."""

import asyncio
import sys
from importlib import metadata
from typing import Literal

import instructor
import openai
from pydantic import BaseModel, ConfigDict, Field
from questions import COPY, turns


class Closed(BaseModel):
    """Nothing but its fields, or the model may go on with keys of its own."""

    model_config = ConfigDict(extra="forbid")


class Item(Closed):
    """Part of a report."""

    name: Literal["river", "größer", "日本"]
    count: int = Field(ge=1, le=9)


class Report(Closed):
    """What answers are parsed as."""

    mood: Literal["good", "bad"]
    items: list[Item] = Field(min_length=1, max_length=1)


ASKED = {"messages": turns(COPY), "seed": 4, "max_tokens": 1000, "max_retries": 0}


def whole(client: instructor.Instructor, model: str) -> None:
    report, raw = client.create_with_completion(model=model, response_model=Report, **ASKED)
    assert isinstance(report, Report)
    assert raw.choices[0].finish_reason == "stop"


def streamed(client: instructor.Instructor, model: str) -> None:
    *_, last = client.create_partial(model=model, response_model=Report, **ASKED)
    assert Report.model_validate(last.model_dump())


async def asynchronous(url: str, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
        report = await client.create(model=model, response_model=Report, **ASKED)
        assert isinstance(report, Report)


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
        whole(client, model)
        streamed(client, model)
    asyncio.run(asynchronous(url, model))
    print(metadata.version("instructor"))


if __name__ == "__main__":
    main(*sys.argv[1:])
