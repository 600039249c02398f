"""Events that the core returns for frontends. Tokens of a choice always come before its end."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.timeline import Timeline
from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs, PackedLogprobs, PromptPiece
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.weights.version import WeightsVersion


class TokensEvent(NamedTuple):
    """Tokens of one choice from `first_position` of its output on.

    A tuple because one is made per token, and a frozen dataclass takes three times as long.

    `logprobs` are those of the whole output; the event uses its own positions, which never change.
    None when the request did not ask.
    """

    frontend_id: bytes
    handle: int
    choice: int
    epoch: int
    first_position: int
    token_ids: tuple[int, ...]
    logprobs: OutputLogprobs | None
    num_cached_tokens: int

    @property
    def token_logprobs(self) -> tuple[PackedLogprobs, ...]:
        """The log-probabilities of the event's tokens, one by one."""
        if self.logprobs is None:
            return ()
        first = self.first_position
        return tuple(self.logprobs.between(first, first + len(self.token_ids)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEvent:
    """The end of one choice; `num_tokens` is the length of its whole output.

    `cached_tokens` is (tier, prompt tokens found there and not computed), "worker" for the worker's
    own cache. Predicted tokens are those of the client that were computed ahead.
    """

    frontend_id: bytes
    request_id: RequestId
    handle: int
    choice: int
    epoch: int
    num_tokens: int
    state: State
    stop_token_id: int | None
    error: PagewireError | None
    cached_tokens: tuple[tuple[str, int], ...] = ()
    num_accepted_predicted: int = 0
    num_rejected_predicted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedEvent:
    """A submission that was refused and holds nothing."""

    frontend_id: bytes
    request_id: RequestId
    handle: int
    epoch: int
    error: PagewireError

    @classmethod
    def of(cls, frontend_id: bytes, submission: Submission, error: PagewireError) -> Self:
        """Return the refusal of `submission`."""
        return cls(
            frontend_id=frontend_id,
            request_id=submission.request_id,
            handle=submission.handle,
            epoch=submission.epoch,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class PromptLogprobsEvent:
    """Log-probabilities of a part of a prompt; they come before the tokens that follow it."""

    frontend_id: bytes
    handle: int
    epoch: int
    piece: PromptPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorEvent:
    """The vector of a request that pools, as little-endian f32; it comes before its end."""

    frontend_id: bytes
    handle: int
    epoch: int
    vector: bytes
    num_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """The timeline of a choice; it replaces the earlier one."""

    frontend_id: bytes
    handle: int
    choice: int
    epoch: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class BegunEvent:
    """The output of a request begins, and is of these weights; it comes before all output."""

    frontend_id: bytes
    handle: int
    epoch: int
    weights: WeightsVersion


Event = (
    TokensEvent
    | FinishedEvent
    | RejectedEvent
    | PromptLogprobsEvent
    | VectorEvent
    | TimelineEvent
    | BegunEvent
)
