"""A client's request: a prompt in one of three forms, and the parameters to go on from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.session.events import Closed, Delta, Event, Finished, FinishReason
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A text, or a pair of texts; the tokenizer's special tokens are added."""

    text: str
    add_special_tokens: bool = True
    second: str | None = None


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, taken as they are."""

    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, rendered by the model's chat template.

    Attributes:
        add_generation_prompt: Append the opening of an assistant turn.
        template_arguments: Values for the template besides the turns, checked by
            `template_arguments.checked_arguments`.
        continue_final_message: Leave the last turn open; not with add_generation_prompt.
        tools: `tools` of the template, in OpenAI's form; None for none.
    """

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool = True
    template_arguments: Mapping[str, Any] | None = None
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request.

    Attributes:
        params: Sampling; `max_tokens` None takes the rest of the context.
        pooling: Set when a vector is wanted and no text; `params` has no meaning then.
        prediction: What the answer is expected to be; None for nothing.
        marks: What stands for tokens in the text of the answer, by token id.
        request_id: Its id; drawn when None.
        must_be_held: Only go on with a request of that id that a scheduler has.
        is_split: Tokens are delivered one by one, however many come at once.
    """

    model: LoadedModel
    prompt: Prompt
    params: SamplingParams
    pooling: PoolingParams | None = None
    tenant: str | None = None
    cache_salt: str | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    prediction: str | None = None
    marks: Mapping[int, str] = field(default_factory=dict)
    request_id: RequestId | None = None
    must_be_held: bool = False
    is_split: bool = False


def check_continuation(add_generation_prompt: bool, continue_final_message: bool) -> None:
    """Raise InvalidRequestError when a turn is to be both opened and continued."""
    if add_generation_prompt and continue_final_message:
        raise InvalidRequestError(
            "continue_final_message and add_generation_prompt exclude each other",
            field="continue_final_message",
        )


def prompt_field(request: GenerationRequest) -> str:
    """Return the field that the prompt came in."""
    if isinstance(request.prompt, ChatPrompt):
        return "messages"
    return "prompt" if request.pooling is None else "input"


def echo_text(request: GenerationRequest, token_ids: Sequence[int]) -> str:
    """Return the text before the answer: the prompt, or the last turn of the assistant."""
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        last = prompt.messages[-1]
        return str(last["content"]) if last["role"] == "assistant" else ""
    if isinstance(prompt, TextPrompt) and request.params.truncate_prompt_tokens is None:
        return prompt.text
    return request.model.tokenizer.decode(token_ids, skip_special_tokens=False)


def without_tokens(end: Finished) -> Finished:
    """Return the end of a choice for a request that wants no tokens."""
    return Finished(end.choice, FinishReason.LENGTH)


def without_output(event: Event) -> Event | None:
    """Return the event for a request that wants no tokens; None for no event."""
    if isinstance(event, Delta):
        return None
    if isinstance(event, Finished):
        return without_tokens(event)
    if isinstance(event, Closed):
        return Closed(replace(event.usage, completion_tokens=0), event.timings)
    return event
