"""What one choice has emitted; plain data."""

from dataclasses import dataclass, field

from pagewire_frontend.session.token_logprob import TokenLogprob


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
