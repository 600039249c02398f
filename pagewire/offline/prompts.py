"""Converts the prompts, conversations and parameters of the offline API to requests of one form."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar

from pagewire.client.client import Turn
from pagewire.client.client_convert import DEFAULT_MAX_TOKENS, Sampling
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import MAX_SEED, SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str


class TokensPrompt(TypedDict):
    """A prompt as token ids, used unchanged."""

    prompt_token_ids: Sequence[int]


Prompt = str | TextPrompt | TokensPrompt
PromptSource = str | Sequence[int]
"""A prompt as text or as token ids."""
Conversation = Sequence[Turn]
Params = TypeVar("Params", SamplingParams, PoolingParams)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt or conversation with its parameters; None for the model's defaults.

    Attributes:
        chat_options: Further keywords of AsyncClient.chat.
        priority: From -100 to 100; lower is earlier.
        model: Name of its adapter; None for the model alone.
    """

    source: "PromptSource | Conversation"
    is_chat: bool
    params: Sampling
    chat_options: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    model: str | None = None


def prompt_requests(
    prompts: Prompt | Sequence[Prompt],
    params: SamplingParams | Sequence[SamplingParams] | None,
) -> list[GenerationRequest]:
    """Return one request per prompt. Raises InvalidRequestError that names an invalid prompt."""
    sources = prompt_sources(prompts)
    pairs = zip(sources, params_per_prompt(params, len(sources)), strict=True)
    return [GenerationRequest(source, False, own) for source, own in pairs]


def with_priorities(
    requests: Sequence[GenerationRequest], priority: int | Sequence[int] | None
) -> list[GenerationRequest]:
    """Return requests with one priority for all or one each. Raises InvalidRequestError."""
    if priority is None:
        return list(requests)
    each = [priority] * len(requests) if isinstance(priority, int) else list(priority)
    if len(each) != len(requests):
        raise InvalidRequestError(
            f"priority: {len(each)} for {len(requests)} prompts", field="priority"
        )
    return [replace(request, priority=own) for request, own in zip(requests, each, strict=True)]


def token_prompts(ids: Sequence[int] | Sequence[Sequence[int]]) -> list["Prompt"]:
    """Return token ids, of one prompt or of several, as prompts."""
    listed: list[Any] = list(ids)
    if listed and isinstance(listed[0], int):
        listed = [listed]
    return [TokensPrompt(prompt_token_ids=one) for one in listed]


def prompt_sources(prompts: Prompt | Sequence[Prompt]) -> list[PromptSource]:
    """Return each prompt as text or token ids. Raises InvalidRequestError for an invalid one."""
    listed = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
    return [_prompt_source(prompt, index) for index, prompt in enumerate(listed)]


def chat_requests(
    messages: Conversation | Sequence[Conversation],
    params: SamplingParams | Sequence[SamplingParams] | None,
    **chat_options: Any,
) -> list[GenerationRequest]:
    """Return one request per conversation; a single conversation is a list of turns."""
    listed: list[Any] = list(messages)
    if not listed or not isinstance(listed[0], list | tuple):
        listed = [listed]
    per_prompt = params_per_prompt(params, len(listed))
    return [
        GenerationRequest(turns, True, own, chat_options)
        for turns, own in zip(listed, per_prompt, strict=True)
    ]


def _prompt_source(prompt: Any, index: int) -> PromptSource:
    match prompt:
        case str():
            return prompt
        case {"prompt_token_ids": token_ids}:
            return list(token_ids)
        case {"prompt": str(text)}:
            return text
    raise InvalidRequestError(
        f'prompts[{index}] is neither a text nor {{"prompt": ...}} nor {{"prompt_token_ids": ...}}',
        field="prompts",
    )


def params_per_prompt(
    params: Params | Sequence[Params] | None, num_prompts: int, name: str = "sampling_params"
) -> Sequence[Params | None]:
    """Return the parameters of each prompt. Raises InvalidRequestError with the field `name`."""
    if params is None or not isinstance(params, Sequence):
        return [params] * num_prompts
    if len(params) != num_prompts:
        raise InvalidRequestError(f"{name}: {len(params)} for {num_prompts} prompts", field=name)
    return params


class SeedSource:
    """Seeds for requests without one, so that an LLM with a seed gives the same results again."""

    def __init__(self, seed: int | None) -> None:
        self._random = None if seed is None else random.Random(seed)

    def seeded(self, params: Sampling) -> Sampling:
        """Return `params` with the next seed; unchanged if they have one or the LLM has no seed."""
        if self._random is None:
            return params
        if params is None:
            params = {"max_tokens": DEFAULT_MAX_TOKENS}
        if not isinstance(params, SamplingParams):
            return {"seed": self._random.randint(0, MAX_SEED), **params}
        if params.seed is not None:
            return params
        return params.with_(seed=self._random.randint(0, MAX_SEED))
