"""Answers of an OpenAI-compatible server: greedy, many requests at a time, none of them retried."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from openai import APIConnectionError, APIStatusError, AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam

from builtin_recipe.evaluation.grading import Answer
from builtin_recipe.evaluation.questions import Question

_TIMEOUT_SECONDS: Final = 300.0
_CONNECT_SECONDS: Final = 30.0
_MAX_ERROR_CHARACTERS: Final = 160


class EndpointError(Exception):
    """The server cannot be asked at all."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask, and how many requests at a time; `model` None takes the only one served."""

    url: str
    model: str | None = None
    concurrency: int = 32


def ask_endpoint(
    endpoint: Endpoint, questions: Sequence[Question], report: Callable[[int], None]
) -> tuple[str, list[Answer]]:
    """Return the name of the model and one answer per question, in their order.

    `report` is told the number of answers so far. Raises `EndpointError` if the server cannot be
    reached or has no such model; a request that fails later is an answer with an error.
    """
    if not endpoint.url.startswith(("http://", "https://")):
        raise EndpointError(f"{endpoint.url} is no URL such as http://127.0.0.1:8000/v1")
    return asyncio.run(_ask_all(endpoint, questions, report))


async def _ask_all(
    endpoint: Endpoint, questions: Sequence[Question], report: Callable[[int], None]
) -> tuple[str, list[Answer]]:
    # No retries: a request that fails once is a finding.
    async with AsyncOpenAI(
        base_url=endpoint.url, api_key="none", max_retries=0, timeout=_TIMEOUT_SECONDS
    ) as client:
        model = await _find_model(client, endpoint)
        answers: dict[int, Answer] = {}
        waiting = iter(enumerate(questions))

        async def ask_waiting() -> None:
            for index, question in waiting:
                answers[index] = await _ask(client, model, question)
                report(len(answers))

        async with asyncio.TaskGroup() as group:
            for _ in range(endpoint.concurrency):
                group.create_task(ask_waiting())
        return model, [answers[index] for index in range(len(questions))]


async def _find_model(client: AsyncOpenAI, endpoint: Endpoint) -> str:
    """Return the model to ask for, which proves that the server is there."""
    try:
        served = [model.id async for model in client.models.list(timeout=_CONNECT_SECONDS)]
    except APIConnectionError as error:
        cause = error.__cause__ or error
        raise EndpointError(f"no answer from {endpoint.url}: {cause}") from error
    except OpenAIError as error:
        raise EndpointError(f"{endpoint.url}/models: {error_name(error)}") from error
    except (AttributeError, ValueError) as error:  # a page of some other kind of server
        raise EndpointError(f"{endpoint.url} is not OpenAI-compatible: {error}") from error
    if endpoint.model is None and len(served) == 1:
        return served[0]
    names = ", ".join(served) or "nothing"
    if endpoint.model is None:
        raise EndpointError(f"{endpoint.url} serves {names}: choose one with --model")
    if endpoint.model not in served:
        raise EndpointError(f"{endpoint.url} serves {names}, not {endpoint.model}")
    return endpoint.model


async def _ask(client: AsyncOpenAI, model: str, question: Question) -> Answer:
    try:
        reply = await client.chat.completions.create(
            model=model,
            messages=messages(question),
            temperature=0.0,
            max_tokens=question.max_tokens,
        )
    except OpenAIError as error:
        return Answer("", is_stopped=False, error=error_name(error))
    except ValueError as error:
        return Answer("", is_stopped=False, error=f"a reply that is no JSON: {error}")
    if not reply.choices:
        return Answer("", is_stopped=False, error="a reply without choices")
    choice = reply.choices[0]
    return Answer(choice.message.content or "", choice.finish_reason == "stop")


def messages(question: Question) -> list[ChatCompletionMessageParam]:
    """Return the turns as the messages of a chat request."""
    found: list[ChatCompletionMessageParam] = []
    for turn in question.turns:
        match turn.role:
            case "system":
                found.append({"role": "system", "content": turn.text})
            case "user":
                found.append({"role": "user", "content": turn.text})
            case "assistant":
                found.append({"role": "assistant", "content": turn.text})
    return found


def error_name(error: OpenAIError) -> str:
    """Return one short line about a failed request, the same for the same failure."""
    status = f"HTTP {error.status_code}: " if isinstance(error, APIStatusError) else ""
    # The message of a connection error says nothing, its cause does.
    cause = error.__cause__ if isinstance(error, APIConnectionError) else None
    line = " ".join(str(cause or error).split())[:_MAX_ERROR_CHARACTERS]
    return f"{type(error).__name__}: {status}{line}"
