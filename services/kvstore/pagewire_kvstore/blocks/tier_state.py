"""What a tier says of itself. Plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """State of one tier; see TierStats in kv_store.proto.

    Attributes:
        fault: Why it does not work at the moment; None when it does.
    """

    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    num_hits: int
    num_misses: int
    num_corrupt: int = 0
    num_faults: int = 0
    fault: str | None = None
