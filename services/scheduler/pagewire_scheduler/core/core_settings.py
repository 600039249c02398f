"""What an operator decides about a cell, and what it counts; plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagewire_scheduler.core.load import LoadLimits
from pagewire_scheduler.core.queue_policy import PolicyName


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """What an operator decides."""

    generation: int
    is_caching: bool = True
    policy: PolicyName = "fcfs"
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    limits: LoadLimits = field(default_factory=LoadLimits)
    lease_seconds: float = 5.0


@dataclass(slots=True)
class CoreCounts:
    """Totals since the start, for tests and metrics; nothing decides by them."""

    num_steps: int = 0
    num_preemptions: int = 0
    num_dropped_results: int = 0
    num_rejected: int = 0
