"""Errors that a tier raises."""

from dataclasses import dataclass

from pagewire_shared.errors import PagewireError


@dataclass
class TierUnavailableError(PagewireError):
    """A tier could not serve a call; the other tiers can go on without it.

    Attributes:
        tier: Name of the tier as in metrics: "disk" or "redis".
        reason: Short reason of few values for metrics, such as "ENOSPC".
    """

    code: str = "tier_unavailable"
    retry_after_ms: int | None = 1000
    tier: str = ""
    reason: str = ""
    status_name = "UNAVAILABLE"


@dataclass
class RecordTooLargeError(PagewireError):
    """A record is larger than the whole tier."""

    code: str = "record_too_large"
    status_name = "RESOURCE_EXHAUSTED"


@dataclass
class TierPinnedError(PagewireError):
    """Too much of the tier is pinned to make room."""

    code: str = "tier_pinned"
    retry_after_ms: int | None = 1000
    status_name = "RESOURCE_EXHAUSTED"
