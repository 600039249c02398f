"""Cached prompt tokens by where they were: "worker" for the worker's own cache, else the tier of a
KV store. Pure."""

from collections.abc import Mapping
from typing import Any

from pagewire_shared.kv.tier import WORKER_TIER

CachedTiers = Mapping[str, int]
"""Tier to number of tokens; empty when there are none, or nothing is known about them."""


def joined(left: CachedTiers, right: CachedTiers) -> CachedTiers:
    """Return the sums per tier."""
    tiers = dict.fromkeys((*left, *right))
    return {tier: left.get(tier, 0) + right.get(tier, 0) for tier in tiers}


def tier_details(tiers: CachedTiers) -> dict[str, Any]:
    """Return what usage in HTTP bodies says beyond OpenAI's fields: nothing unless tokens came from
    a KV store, so that who knows of none sees no field that is new to it."""
    if not any(num for tier, num in tiers.items() if tier != WORKER_TIER):
        return {}
    return {"cached_tokens_by_tier": dict(tiers)}
