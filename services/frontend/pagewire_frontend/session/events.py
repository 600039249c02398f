"""Events of a stream for its reader: the same for gRPC and HTTP."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from pagewire_frontend.metrics.timeline import CachedTiers, Timelines
from pagewire_frontend.session.journal_records import TokenLogprob


class FinishReason(enum.Enum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Opened:
    """The request was accepted by this frontend."""

    request_id: bytes
    model: str
    prompt_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the next tokens of the prompt, from `first_position`, at least 1. All
    come before any delta."""

    first_position: int
    logprobs: tuple[TokenLogprob, ...]


@dataclass(slots=True)
class Delta:
    """New tokens of one choice, all that are ready; `text` may be empty while a character is
    incomplete."""

    choice: int
    first_position: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one choice; `text` was held back until now and belongs after all deltas."""

    choice: int
    reason: FinishReason
    text: str = ""
    stop_string: str | None = None
    stop_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class PredictedTokens:
    """Tokens predicted by the client that were computed ahead: right ones, and wrong ones."""

    num_accepted: int
    num_rejected: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request, its cached tokens by tier where that is known, a timeline per
    choice, the predicted tokens of a request that has a prediction, and the version of the weights
    that computed all of the answer, empty where it is not known."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_tokens_by_tier: CachedTiers = field(default_factory=dict)
    timelines: Timelines = ()
    predicted: PredictedTokens | None = None
    weights_version: str = ""

    @property
    def version_fields(self) -> dict[str, str]:
        """The version of the weights as a field of an answer; nothing where it is not known."""
        return {"weights_version": self.weights_version} if self.weights_version else {}


def joined_versions(version: str, other: str) -> str:
    """Return the versions of the weights of two answers, "" for none yet: each prompt of a request
    has an answer of one version, and two of them may have two."""
    versions = [one for one in version.split(", ") if one]
    return ", ".join(dict.fromkeys([*versions, *([other] if other else [])]))


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations measured by the frontend, and the losses of processes that were survived.

    Attributes:
        num_resumes: How often the request was submitted again after a scheduler was lost.
        num_recoveries: The same, and losses of workers, of the choice that was hit most often.
    """

    first_token_seconds: float
    total_seconds: float
    num_resumes: int
    num_recoveries: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """All choices ended."""

    usage: Usage
    timings: Timings


OnText = Callable[[str], bool]
"""Is offered the next text of a request's one choice; returns whether the text was taken."""

Event = Opened | PromptLogprobs | Delta | Finished | Closed
