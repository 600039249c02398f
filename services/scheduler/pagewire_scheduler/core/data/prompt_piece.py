"""A part of what was asked about a prompt: log-probabilities of its tokens; plain data."""

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Log-probabilities of consecutive prompt tokens, with `num_top` alternatives for each."""

    first_position: int
    num_top: int
    logprobs: "array[float]"
    ranks: "array[int]"
    top_token_ids: "array[int]"
    top_logprobs: "array[float]"

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.first_position + len(self.logprobs)

    def between(self, begin: int, end: int) -> "PromptPiece":
        """Return what is at or after position `begin` and before `end`."""
        own = slice(max(0, begin - self.first_position), end - self.first_position)
        top = slice(own.start * self.num_top, own.stop * self.num_top)
        return PromptPiece(
            self.first_position + own.start,
            self.num_top,
            self.logprobs[own],
            self.ranks[own],
            self.top_token_ids[top],
            self.top_logprobs[top],
        )
