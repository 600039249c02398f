"""Tool calls with langchain-openai, litellm and instructor: library_tools.py URL MODEL. The calls
are forced: the built-in model knows nothing of tools."""

import sys
from typing import Literal

import instructor
import litellm
import openai
from langchain_openai import ChatOpenAI
from openai_tools import NAMED, TOOLS, check_arguments
from pydantic import BaseModel, ConfigDict
from questions import COPY, turns


class Reading(BaseModel):
    """Reads."""

    model_config = ConfigDict(extra="forbid")
    word: Literal["river", "cloud"]
    is_long: bool


def langchain(url: str, model: str) -> None:
    llm = ChatOpenAI(
        model=model, base_url=url, api_key="none", max_retries=0, seed=1, max_tokens=300
    )
    bound = llm.bind_tools([Reading], tool_choice="Reading", strict=True)
    answer = bound.invoke(COPY)
    [call] = answer.tool_calls
    assert (call["name"], answer.invalid_tool_calls) == ("Reading", [])
    assert Reading.model_validate(call["args"])
    total = None
    for chunk in bound.stream(COPY):
        total = chunk if total is None else total + chunk
    [streamed] = total.tool_calls
    assert streamed["args"] == call["args"]
    structured = llm.with_structured_output(Reading, method="function_calling", strict=True)
    assert isinstance(structured.invoke(COPY), Reading)


def with_litellm(url: str, model: str) -> None:
    asked = {
        "model": f"openai/{model}",
        "api_base": url,
        "api_key": "none",
        "messages": turns(COPY),
        "tools": TOOLS,
        "tool_choice": NAMED,
        "seed": 1,
        "max_tokens": 300,
    }
    answer = litellm.completion(**asked)
    [call] = answer.choices[0].message.tool_calls
    check_arguments(call.function.arguments)
    assert answer.choices[0].finish_reason == "tool_calls"
    whole = litellm.stream_chunk_builder(list(litellm.completion(**asked, stream=True)))
    [streamed] = whole.choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments


def with_instructor(url: str, model: str) -> None:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as plain:
        asked = {"model": model, "messages": turns(COPY), "seed": 1, "max_tokens": 300}
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
            client = instructor.from_openai(plain, mode=mode)
            found = client.create(response_model=Reading, max_retries=0, **asked)
            assert isinstance(found, Reading)
        *_, last = client.create_partial(response_model=Reading, max_retries=0, **asked)
        assert Reading.model_validate(last.model_dump())


def main(url: str, model: str) -> None:
    """Run everything; an assertion ends it."""
    for library in (langchain, with_litellm, with_instructor):
        library(url, model)
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
