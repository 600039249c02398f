"""What a tier can answer instead of a block. Plain data."""

from dataclasses import dataclass

from pagewire_shared.errors import PagewireError


@dataclass
class TierUnavailableError(PagewireError):
    """A tier could not do what it was asked for; the other tiers can go on without it.

    Attributes:
        tier: Which one, as in metrics: "disk" or "redis".
        reason: Short and of few values, for metrics, such as "ENOSPC".
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
    """No room can be made: too much of the tier is pinned."""

    code: str = "tier_pinned"
    retry_after_ms: int | None = 1000
    status_name = "RESOURCE_EXHAUSTED"
