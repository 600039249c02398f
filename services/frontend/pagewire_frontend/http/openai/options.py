"""From checked bodies to what the engine takes. Owns the HTTP defaults and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pagewire_frontend.chat.effort import effort_arguments
from pagewire_frontend.chat.tool_use import ChoiceMode, Tool, ToolUse
from pagewire_frontend.http.body_fields import given_sampling
from pagewire_frontend.http.openai.chat_turns import chat_turns
from pagewire_frontend.http.openai.schemas import (
    MAX_PROMPTS,
    ChatBody,
    ChatMessageBody,
    CompletionBody,
    GenerationBody,
)
from pagewire_frontend.http.openai.structured import structured_outputs
from pagewire_frontend.http.openai.tool_schemas import NamedToolBody, ToolBody
from pagewire_frontend.models.template_arguments import checked_arguments
from pagewire_frontend.prompts.generation_request import (
    ChatPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
    check_continuation,
)
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.fields import HttpBodies
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams


def tool_use(body: ChatBody) -> ToolUse:
    """Return the tools of a chat body, unchecked; without a tool_choice the model decides."""
    tools = _tools(body.tools or ())
    choice = body.tool_choice
    is_parallel = body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolBody):
        name = choice.function.name
        return ToolUse(tools=tools, mode="required", name=name, is_parallel=is_parallel)
    mode: ChoiceMode = choice or ("auto" if tools else "none")
    return ToolUse(tools=tools, mode=mode, is_parallel=is_parallel)


def _tools(bodies: Sequence[ToolBody]) -> list[Tool]:
    functions = [body.function for body in bodies]
    return [
        Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            strict=bool(function.strict),
        )
        for function in functions
    ]


COMPLETION_MAX_TOKENS = 16
_MAX_ID_DIGITS = 10
"""Of an id of 32 bits. Python refuses to read numbers of thousands of digits at all."""


def chat_params(body: ChatBody, defaults: SamplingParams) -> SamplingParams:
    """Return the sampling of a chat body. Raises InvalidRequestError naming the field."""
    num_logprobs = _chat_logprobs(body)
    wanted = body.max_completion_tokens
    max_tokens = wanted if wanted is not None else body.max_tokens
    return _params(body, defaults, max_tokens, num_logprobs)


def completion_params(body: CompletionBody, defaults: SamplingParams) -> SamplingParams:
    """Return the sampling of a completion body. Raises InvalidRequestError naming the field."""
    max_tokens = COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    params = _params(body, defaults, 1 if is_echo_alone(body) else max_tokens, body.logprobs)
    if not body.echo or params.logprobs is None or params.use_beam_search:
        return params
    # An echo shows the log-probabilities of the prompt like those of the answer.
    return params.with_(prompt_logprobs=max(params.logprobs, params.prompt_logprobs or 0))


def is_echo_alone(body: CompletionBody) -> bool:
    """Return whether only the prompt is wanted; one token is generated then, and not shown."""
    return bool(body.echo) and body.max_tokens == 0


class ConversationBody(Protocol):
    """Fields of the prompt in bodies with a conversation."""

    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template_kwargs: dict[str, Any] | None


def chat_prompt(body: ConversationBody, messages: Sequence[ChatMessageBody]) -> ChatPrompt:
    """Return the conversation. Raises InvalidRequestError naming the field."""
    goes_on = bool(body.continue_final_message)
    add = body.add_generation_prompt
    add = not goes_on if add is None else add
    check_continuation(add, goes_on)
    return ChatPrompt(
        chat_turns(messages),
        add_generation_prompt=add,
        template_arguments=_template_arguments(body),
        continue_final_message=goes_on,
    )


def _template_arguments(body: ConversationBody) -> dict[str, Any] | None:
    """Return values for the chat template; what the client names wins over the effort."""
    given = checked_arguments("chat_template_kwargs", body.chat_template_kwargs)
    effort = effort_arguments(getattr(body, "reasoning_effort", None))
    return {**effort, **(given or {})} or None


def completion_prompts(body: CompletionBody) -> list[Prompt]:
    """Return the prompts in order. Raises InvalidRequestError naming prompt."""
    prompts = prompts_of(body.prompt, body.add_special_tokens is not False, field="prompt")
    if not prompts:
        raise InvalidRequestError("prompt must not be empty", field="prompt")
    return prompts


def prompts_of(
    value: str | list[str] | list[int] | list[list[int]], add_special_tokens: bool, *, field: str
) -> list[Prompt]:
    """Return texts and lists of ids in OpenAI's four forms as prompts. Raises
    InvalidRequestError, naming `field`, where there are too many."""
    if isinstance(value, str):
        return [TextPrompt(value, add_special_tokens)]
    if value and isinstance(value[0], int):
        return [TokenPrompt([item for item in value if isinstance(item, int)])]
    if len(value) > MAX_PROMPTS:
        # Before any is made: half a million take most of a second.
        raise InvalidRequestError(
            f"{field} takes at most {MAX_PROMPTS} {field}s, got {len(value)}", field=field
        )
    return [
        TextPrompt(item, add_special_tokens) if isinstance(item, str) else TokenPrompt(item)
        for item in value
        if not isinstance(item, int)
    ]


def _params(
    body: GenerationBody,
    defaults: SamplingParams,
    max_tokens: int | None,
    num_logprobs: int | None,
) -> SamplingParams:
    changes = given_sampling(body, HttpBodies.OPENAI)
    if body.logit_bias:
        changes["logit_bias"] = _logit_bias(body.logit_bias)
    outputs = structured_outputs(body)
    if outputs is not None:
        changes["structured_outputs"] = outputs
    if changes.get("use_beam_search"):
        defaults = defaults.without_filters()
    params = defaults.with_(max_tokens=max_tokens, logprobs=num_logprobs, **changes)
    if body.stream:
        _check_stream(params)
    return params


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    """Return token ids for the texts that JSON has in their place."""
    bias: dict[int, float] = {}
    for key, value in given.items():
        is_number = key.isascii() and key.isdigit() and len(key) <= _MAX_ID_DIGITS
        if not is_number or (len(key) > 1 and key[0] == "0"):
            raise InvalidRequestError(
                f"logit_bias: {key[:100]!r} is no token id", field="logit_bias"
            )
        bias[int(key)] = value
    return bias


def _check_stream(params: SamplingParams) -> None:
    """Refuse to stream what is known at the end only. Raises InvalidRequestError."""
    if params.use_beam_search:
        raise InvalidRequestError(
            "stream cannot be combined with use_beam_search: its choices are known at the end",
            field="stream",
        )
    if params.best_of not in (None, params.n):
        raise InvalidRequestError(
            "best_of larger than n cannot be streamed: the best are known at the end",
            field="best_of",
        )


def _chat_logprobs(body: ChatBody) -> int | None:
    if body.top_logprobs is not None and not 0 <= body.top_logprobs <= MAX_LOGPROBS:
        raise InvalidRequestError(
            f"top_logprobs must be between 0 and {MAX_LOGPROBS}", field="top_logprobs"
        )
    if not body.logprobs:
        if body.top_logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs true", field="top_logprobs")
        return None
    return body.top_logprobs or 0
