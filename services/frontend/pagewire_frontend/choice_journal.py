"""What one choice has emitted, and what became of a chunk of its tokens; plain data."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pagewire_frontend.token_logprob import TokenLogprob
from pagewire_frontend.verdict import Verdict


class Accepted(NamedTuple):
    """What `accept_tokens` made of a chunk; `token_ids` are only those that were new."""

    verdict: Verdict
    first_position: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(slots=True)
class ChoiceJournal:
    """What one choice has emitted. Positions are indices into `token_ids`."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    is_finished: bool = False

    @property
    def next_position(self) -> int:
        """Position of the token that is wanted next."""
        return len(self.token_ids)
