"""Where the prompt tokens came from that a sequence did not have to compute."""

from collections import Counter
from collections.abc import Mapping

from pagewire_shared.kv.tier import WORKER_TIER


def tokens_by_tier(
    num_cached: int, loaded: Mapping[int, str], block_size: int
) -> tuple[tuple[str, int], ...]:
    """Return (tier, tokens) of the first `num_cached` tokens, whose sum they are.

    Args:
        num_cached: Prompt tokens found.
        loaded: The tier of each block loaded for the sequence, by its index.
        block_size: In tokens.
    """
    tiers: Counter[str] = Counter()
    for index, tier in loaded.items():
        tokens = min(block_size, num_cached - index * block_size)
        if tokens > 0:
            tiers[tier] += tokens
    num_own = num_cached - sum(tiers.values())
    own = [(WORKER_TIER, num_own)] if num_own > 0 else []
    return (*own, *sorted(tiers.items()))
