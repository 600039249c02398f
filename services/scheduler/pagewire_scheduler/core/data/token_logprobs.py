"""Log-probabilities of the tokens of one output, packed in arrays that only grow."""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Return the part at or after position `begin` and before `end`."""
        own = slice(max(0, begin - self.first_position), end - self.first_position)
        top = slice(own.start * self.num_top, own.stop * self.num_top)
        return PromptPiece(
            first_position=self.first_position + own.start,
            num_top=self.num_top,
            logprobs=self.logprobs[own],
            ranks=self.ranks[own],
            top_token_ids=self.top_token_ids[top],
            top_logprobs=self.top_logprobs[top],
        )


@dataclass(frozen=True, slots=True)
class PackedLogprobs:
    """Log-probability and rank of one emitted token, and the most likely alternatives."""

    logprob: float
    rank: int
    top_token_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


class OutputLogprobs:
    """Log-probabilities of each position of an output, from 0 on.

    An unreported position has NaN, rank 0 and no alternatives, as on the wire. Entries never
    change, so an event names positions instead of copying them.

    Attributes:
        logprobs: f32, one per position.
        ranks: u32, one per position.
        ends: u32, one per position: where its alternatives end in the two below.
        top_token_ids: u32, alternatives of all positions, one after the other.
        top_logprobs: f32, one per alternative.
    """

    __slots__ = ("ends", "logprobs", "ranks", "top_logprobs", "top_token_ids")

    def __init__(self, num_unknown: int = 0) -> None:
        self.logprobs = array("f", [math.nan]) * num_unknown
        self.ranks = array("I", [0]) * num_unknown
        self.ends = array("I", [0]) * num_unknown
        self.top_token_ids = array("I")
        self.top_logprobs = array("f")

    def __len__(self) -> int:
        return len(self.logprobs)

    def arrays(self) -> "tuple[array[float] | array[int], ...]":
        """Return all arrays."""
        return (self.logprobs, self.ranks, self.ends, self.top_token_ids, self.top_logprobs)

    def append(
        self, logprob: float, rank: int, token_ids: Sequence[int], logprobs: Sequence[float]
    ) -> None:
        """Add the next position with its alternatives, as many ids as log-probabilities."""
        self.logprobs.append(logprob)
        self.ranks.append(rank)
        if token_ids:
            self.top_token_ids.extend(token_ids)
            self.top_logprobs.extend(logprobs)
        self.ends.append(len(self.top_token_ids))

    def tops(self, first: int, end: int) -> slice:
        """Return the slice of the alternatives of positions [first, end)."""
        ends = self.ends
        return slice(ends[first - 1] if first else 0, ends[end - 1] if end else 0)

    def num_top(self, first: int, end: int) -> list[int]:
        """Return how many alternatives each of the positions [first, end) has."""
        ends = self.ends
        return [ends[at] - (ends[at - 1] if at else 0) for at in range(first, end)]

    def between(self, first: int, end: int) -> Iterator[PackedLogprobs]:
        """Yield the entries of positions [first, end)."""
        for at in range(first, end):
            top = self.tops(at, at + 1)
            ids, values = self.top_token_ids[top], self.top_logprobs[top]
            yield PackedLogprobs(self.logprobs[at], self.ranks[at], tuple(ids), tuple(values))
