"""Names of the tiers that KV blocks come from; other stores' connectors may use further names."""

import re
from typing import Final

STORE_TIERS: Final = ("memory", "disk", "redis")
"""Tiers of Pagewire's own store."""

WORKER_TIER: Final = "worker"
"""The worker's own cache, which is not a tier of a store."""

MAX_TIERS: Final = 8
"""Most different tiers in one answer to a load."""

RULE: Final = f"1 to 32 characters of a-z, 0-9, _ and -, and not {WORKER_TIER!r}"

_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_DEVICE = "device"
_OTHER = "other"


def is_tier_name(name: object) -> bool:
    """Return whether a tier of a store may have that name; see RULE."""
    return isinstance(name, str) and name != WORKER_TIER and _NAME.fullmatch(name) is not None


def tier_label(name: str) -> str:
    """Return the metrics label of a tier; all unknown tiers share one label."""
    return name if name in STORE_TIERS else _OTHER


def cache_label(tier: str) -> str:
    """Return the metrics label of the worker's own cache or of a tier.

    The worker's own cache is "device" in metrics, where "worker" means another worker.
    """
    return _DEVICE if tier == WORKER_TIER else tier_label(tier)
