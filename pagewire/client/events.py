"""Events of a stream of the public API, and the records in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model made; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of a call; pieces of the same `index` belong together.

    Attributes:
        arguments: The next characters of the arguments.
        id, name: With the first piece of a call, None afterwards.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user, assistant or tool.

    Attributes:
        tool_calls: Calls of an assistant.
        tool_call_id: Id of the call that a tool answers.
        reasoning: Reasoning of an assistant before its answer.
    """

    role: str
    content: str
    name: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The request was accepted: always the first event.

    Attributes:
        echo: The text before the answer; only if requested.
        stream_id: Name of a stream that outlives its connection; empty for another.
    """

    request_id: str
    model: str
    prompt_token_ids: tuple[int, ...]
    seed: int
    echo: str | None = None
    stream_id: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log-probability and those of the most likely tokens, most likely first.

    Attributes:
        rank: Number of tokens at least as likely, 1 for the most likely; 0 when the server does not
            report it.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the next tokens of the prompt, from `first_position`, at least 1.

    All PromptLogprobs come before the first Delta.
    """

    first_position: int
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens of one choice; `text` may lag behind while a character is incomplete.

    Attributes:
        reasoning: In a chat, reasoning of the model before its answer.
        tool_calls: In a chat with tools, pieces of the calls.
    """

    choice: int
    first_position: int
    token_ids: Sequence[int]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one choice, with the text that was held back until then.

    Attributes:
        stop: The stop string or stop token id that matched; None for the end of sequence.
    """

    choice: int
    reason: FinishReason
    text: str
    stop: str | int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts.

    Attributes:
        prompt_tokens: Tokens of all prompts.
        completion_tokens: Tokens of all choices.
        cached_tokens: Prompt tokens that were not computed, because their KV blocks were cached.
        cached_tokens_by_tier: The same by tier of the blocks: "worker" for the worker's own cache,
            "memory", "disk" or "redis" for a KV store. Empty where the tier is unknown.
        weights_version: What computed all of the answer; empty where it is not known.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_tokens_by_tier: dict[str, int] = field(default_factory=dict)
    weights_version: str = ""


@dataclass(frozen=True, slots=True)
class Timings:
    """Times in seconds, measured by the frontend from the arrival of the request.

    Attributes:
        num_resumes: How often the request was submitted again after a scheduler was lost.
        num_recoveries: The same, and losses of workers, of the choice that was hit most often.
    """

    time_to_first_token_seconds: float
    total_seconds: float
    num_resumes: int
    num_recoveries: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """All choices ended: always the last event."""

    usage: Usage
    timings: Timings


Event = Opened | PromptLogprobs | Delta | Finished | Closed


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that the server lists.

    Attributes:
        name: Served name.
        max_model_len: Longest sequence in tokens; None while no worker serves it.
        is_ready: Whether a request would be answered now.
        root: Name of the base model of an adapter; else the model's own name.
        created: Time at which the server loaded it, in seconds since 1970.
    """

    name: str
    max_model_len: int | None
    is_ready: bool
    root: str = ""
    created: int = 0
