"""Records of the journal: the output of one choice, a request for a scheduler, the outcomes of
received messages, and the counts for an audit."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagewire_frontend.adapters.adapter_use import AdapterUse
from pagewire_frontend.session.prompt_blocks import PromptBlocks
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.weights.version import WeightsVersion


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of a token before temperature, its alternatives, most likely first,
    and its rank: the number of tokens at least as likely, 0 when it is not known."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """A worker's scores of one position of a prompt; the reader knows the token."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class ReceiveOutcome(enum.Enum):
    """Outcome of receiving a message about a choice or a prompt."""

    ACCEPTED = "accepted"
    """The next position (or the end) of the current epoch; it is in the journal now."""
    DUPLICATE = "duplicate"
    """Known already, or of an epoch before the current one; drop it."""
    GAP = "gap"
    """Positions before it are missing and never waited for: submit again with epoch + 1."""


ACCEPTED = ReceiveOutcome.ACCEPTED
"""For the path of every token: looking a member up in its class costs as much as a call."""


@dataclass(slots=True)
class ChoiceJournal:
    """The output of one choice so far. Positions are indices into `token_ids`."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    is_finished: bool = False

    @property
    def next_position(self) -> int:
        """Position of the token that is wanted next."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRecord:
    """A request as it is sent to a scheduler, for the first time or again."""

    request_id: RequestId
    epoch: int
    handle: int
    model: str
    prompt_token_ids: Sequence[int]
    emitted: tuple[tuple[tuple[int, ...], bool], ...]
    """Per choice: token ids from position 0, and whether it has ended."""
    params: SamplingParams
    eos_token_ids: tuple[int, ...]
    tenant: str | None
    cache_salt: bytes | None
    priority: int
    pooling: PoolingParams | None = None
    prompt_blocks: PromptBlocks | None = None
    adapter: AdapterUse | None = None
    predicted_token_ids: Sequence[int] = ()
    must_be_held: bool = False
    weights: WeightsVersion | None = None
    """What `emitted` was computed with."""
    is_traced: bool = False


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A request as it is listed in a hello after a broken stream."""

    request_id: RequestId
    epoch: int
    handle: int
    next_positions: tuple[int, ...]


FIRST_POSITION = 1
"""Nothing predicts the first token of a prompt."""


@dataclass(slots=True)
class PromptJournal:
    """Positions of one prompt, taken in order, each once.

    Attributes:
        next_position: Position that is wanted next.
    """

    num_tokens: int
    next_position: int = FIRST_POSITION

    @property
    def is_complete(self) -> bool:
        """Whether every position was taken."""
        return self.next_position >= self.num_tokens

    def take(
        self, first_position: int, scores: Sequence[Score]
    ) -> tuple[ReceiveOutcome, list[Score]]:
        """Take exactly the next positions; return the outcome for the piece, and its new part."""
        num_known = self.next_position - first_position
        if num_known < 0:
            return ReceiveOutcome.GAP, []
        if self.is_complete or num_known >= len(scores):
            return ReceiveOutcome.DUPLICATE, []
        new = list(scores[num_known:])
        self.next_position += len(new)
        return ReceiveOutcome.ACCEPTED, new


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency, such as a leaked handle."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeldResources:
    """Open journal entries, handles on one attach stream, and contradictions between the two; and
    how many requests went on after their scheduler was lost."""

    num_open_streams: int
    num_handles: int
    findings: tuple[Finding, ...]
    num_resumed: int = 0
