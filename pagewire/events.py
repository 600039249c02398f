"""What a stream of the public API is made of, as plain data. Knows no messages and no sockets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user, assistant or tool."""

    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The request was accepted: always the first event."""

    request_id: str
    model: str
    prompt_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log-probability and those of the most likely tokens, most likely first.

    Attributes:
        rank: Number of tokens at least as likely, 1 for the most likely; 0 when the server did
            not say.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the next tokens of the prompt, from `first_position`, at least 1. All
    come before any Delta."""

    first_position: int
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens of one choice; `text` may lag behind while a character is incomplete."""

    choice: int
    first_position: int
    token_ids: Sequence[int]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one choice, with text held back until then.

    Attributes:
        stop: The stop string or stop token id that matched; None for the end of sequence.
    """

    choice: int
    reason: FinishReason
    text: str
    stop: str | int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, measured by the frontend from the arrival of the request."""

    time_to_first_token_seconds: float
    total_seconds: float
    num_resumes: int


@dataclass(frozen=True, slots=True)
class Closed:
    """All choices ended: always the last event."""

    usage: Usage
    timings: Timings


Event = Opened | PromptLogprobs | Delta | Finished | Closed


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can be asked for.

    Attributes:
        name: Served name.
        max_model_len: Longest sequence in tokens; None while no worker serves it.
        is_ready: Whether a request would be answered now.
    """

    name: str
    max_model_len: int | None
    is_ready: bool
