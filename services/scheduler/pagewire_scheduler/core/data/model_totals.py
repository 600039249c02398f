"""What has happened to the sequences of one model since the start; nothing decides by it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

NUM_STEP_SIZES = 16
"""Steps of up to 1, 2, 4 ... 16384 tokens, and of more."""


@dataclass(slots=True)
class ModelTotals:
    """Totals over all its workers, those that are gone included.

    Attributes:
        num_preemptions: Sequences that gave way to others.
        num_lost_workers: Workers whose stream ended while they were not draining.
        num_requeued: Sequences queued again because their worker was gone.
        num_prompt_tokens: Prompt tokens that plans told workers to compute, again ones included.
        num_queried_tokens: Prompt tokens looked up in caches, once per sequence.
        prefix_tokens: Those found in a cache, by tier.
        num_handed_off_tokens: Those that another worker computed and handed over.
        steps_by_tokens: Steps planned, by how many tokens they compute; see NUM_STEP_SIZES.
        num_step_tokens: Tokens of all of them.
    """

    num_preemptions: int = 0
    num_lost_workers: int = 0
    num_requeued: int = 0
    num_prompt_tokens: int = 0
    num_queried_tokens: int = 0
    prefix_tokens: Counter[str] = field(default_factory=Counter)
    num_handed_off_tokens: int = 0
    steps_by_tokens: list[int] = field(default_factory=lambda: [0] * NUM_STEP_SIZES)
    num_step_tokens: int = 0

    def note_prefix(
        self, num_prompt: int, cached: Iterable[tuple[str, int]], num_handed_off: int
    ) -> None:
        """A sequence starts; `cached` is (tier, prompt tokens) that are there, `num_handed_off`
        what another worker computed for it."""
        self.num_queried_tokens += num_prompt
        self.num_handed_off_tokens += num_handed_off
        for tier, num_tokens in cached:
            self.prefix_tokens[tier] += num_tokens

    def note_step(self, num_tokens: int) -> None:
        """A step of so many tokens is planned."""
        size = max(0, num_tokens - 1).bit_length()
        self.steps_by_tokens[min(size, NUM_STEP_SIZES - 1)] += 1
        self.num_step_tokens += num_tokens

    def copy(self) -> "ModelTotals":
        """Return what they are now."""
        return replace(
            self,
            prefix_tokens=self.prefix_tokens.copy(),
            steps_by_tokens=self.steps_by_tokens.copy(),
        )
