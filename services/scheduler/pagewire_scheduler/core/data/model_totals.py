"""Totals of one model since the start, for metrics; no decision depends on them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from pagewire_shared.kv.tier import STORE_TIERS, WORKER_TIER, cache_label

NUM_STEP_SIZES = 16
"""Steps of up to 1, 2, 4 ... 16384 tokens, and of more."""

WORKER: Final = "worker"


@dataclass(slots=True)
class ModelTotals:
    """Totals over all workers of a model, including workers that are gone.

    Attributes:
        num_preemptions: Sequences that were preempted.
        num_lost_workers: Workers whose stream ended while they were not draining.
        num_requeued: Sequences queued again because their worker was gone.
        num_prompt_tokens: Prompt tokens in plans, including tokens computed again.
        num_queried_tokens: Prompt tokens looked up in caches, once per sequence.
        prefix_tokens: Prompt tokens found in a cache, by tier.
        num_handed_off_tokens: Prompt tokens that another worker computed and handed off.
        steps_by_tokens: Steps planned, by number of tokens; see NUM_STEP_SIZES.
        num_step_tokens: Tokens of all steps.
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
        """Count a sequence that starts.

        Args:
            num_prompt: Its prompt tokens.
            cached: (tier, prompt tokens) found in caches.
            num_handed_off: Prompt tokens that another worker computed for it.
        """
        self.num_queried_tokens += num_prompt
        self.num_handed_off_tokens += num_handed_off
        for tier, num_tokens in cached:
            self.prefix_tokens[tier] += num_tokens

    def found_tokens(self) -> dict[str, int]:
        """Return the tokens found by the label of their tier; "worker" means computed by another
        worker and handed off."""
        by_label = dict.fromkeys(map(cache_label, (WORKER_TIER, *STORE_TIERS)), 0)
        by_label[WORKER] = self.num_handed_off_tokens
        for tier, count in self.prefix_tokens.items():
            label = cache_label(tier)
            by_label[label] = by_label.get(label, 0) + count
        return by_label

    def note_step(self, num_tokens: int) -> None:
        """Count a planned step of `num_tokens` tokens."""
        size = max(0, num_tokens - 1).bit_length()
        self.steps_by_tokens[min(size, NUM_STEP_SIZES - 1)] += 1
        self.num_step_tokens += num_tokens

    def copy(self) -> "ModelTotals":
        """Return a copy of the present totals."""
        return replace(
            self,
            prefix_tokens=self.prefix_tokens.copy(),
            steps_by_tokens=self.steps_by_tokens.copy(),
        )
