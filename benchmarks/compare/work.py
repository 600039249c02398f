"""Requests, what came of them, and the percentiles of that. Sends nothing and starts nothing."""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

# Low ids are single bytes, and characters of several bytes reach a client late; ids at the end are
# special.
FIRST_ID = 256
USED_PART_OF_VOCAB = 0.9


class RunFailedError(Exception):
    """A server refused a request, broke off, or took too long; the text says which."""


@dataclass(frozen=True, slots=True)
class Request:
    """A greedy completion that does not end before `max_tokens`.

    Attributes:
        prompt: Token ids.
        max_tokens: Tokens that are generated.
    """

    prompt: tuple[int, ...]
    max_tokens: int


@dataclass(slots=True)
class Timed:
    """What came of a request, in seconds of time.perf_counter.

    Attributes:
        sent: When it was sent.
        arrivals: When each event with tokens came; an event may hold several.
        num_tokens: Tokens that came.
    """

    sent: float
    arrivals: list[float] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def ttft(self) -> float:
        """From sending to the first token."""
        return self.arrivals[0] - self.sent

    @property
    def gaps(self) -> list[float]:
        """Between events with tokens."""
        return [after - before for before, after in itertools.pairwise(self.arrivals)]

    @property
    def seconds_per_token(self) -> float:
        """Mean time between tokens, however they were packed into events."""
        return (self.arrivals[-1] - self.arrivals[0]) / (self.num_tokens - 1)


def seconds_for_all(batch: Sequence[Timed]) -> float:
    """Return the time from the first request to the last token."""
    return max(one.arrivals[-1] for one in batch) - min(one.sent for one in batch)


def output_rate(batch: Sequence[Timed]) -> float:
    """Return the output tokens per second of all requests together."""
    return sum(one.num_tokens for one in batch) / seconds_for_all(batch)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, linear between neighbours as numpy's default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


@dataclass(frozen=True, slots=True)
class Ids:
    """Where prompts come from.

    Attributes:
        vocab: Size of the model's vocabulary.
        dice: Seeded by what is measured, so that all servers get the same prompts and no two runs
            share one.
    """

    vocab: int
    dice: random.Random

    def draw(self, count: int) -> tuple[int, ...]:
        """Return `count` token ids."""
        end = int(self.vocab * USED_PART_OF_VOCAB)
        first = min(FIRST_ID, end // 2)
        return tuple(self.dice.randrange(first, end) for _ in range(count))

    def requests(
        self, count: int, num_prompt: int, max_tokens: int, prefix: tuple[int, ...] = ()
    ) -> list[Request]:
        """Return requests with `num_prompt` tokens of their own after `prefix`."""
        return [Request(prefix + self.draw(num_prompt), max_tokens) for _ in range(count)]
