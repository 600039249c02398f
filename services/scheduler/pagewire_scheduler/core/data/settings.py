"""Settings of a cell, and the totals that the core counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pagewire_scheduler.core.costs.handoff_cost import HandoffReason
from pagewire_scheduler.core.costs.load_cost import LoadReason
from pagewire_scheduler.core.data.model_totals import ModelTotals
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_shared.kv.load import LoadOutcome

PolicyName = Literal["fcfs", "fair"]
HandoffPolicy = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadLimits:
    """Limits beyond which requests are refused.

    Attributes:
        max_num_waiting: Sequences that wait for workers of one model.
        max_waiting_tokens: Tokens of those sequences, each prompt counted once.
        max_request_bytes: Memory that all live requests take here, and will take soon.
    """

    max_num_waiting: int = 4096
    max_waiting_tokens: int = 16 * 2**20
    max_request_bytes: int = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """Settings of an operator.

    Attributes:
        is_sharing_between_tenants: Tenants find each other's prefixes. Salts of submissions
            already follow it; it is reported to frontends.
        is_load_forced: Load from KV stores whatever the cost of computing.
        asks_outside_stores: Order loads from stores whose content is not known.
        handoff: When prompts are computed on other workers: auto, always or never.
        num_stores: KV stores of the cell.
        num_copies: Stores that keep a block that was loaded.
        stream_limits: Credits of the stream to a worker.
        notes_cache_changes: Pools note what enters and leaves their prefix caches.
    """

    generation: int
    is_caching: bool = True
    policy: PolicyName = "fcfs"
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    limits: OverloadLimits = field(default_factory=OverloadLimits)
    lease_seconds: float = 5.0
    is_sharing_between_tenants: bool = False
    is_load_forced: bool = False
    asks_outside_stores: bool = True
    handoff: HandoffPolicy = "auto"
    num_stores: int = 0
    num_copies: int = 1
    stream_limits: StreamLimits = field(default_factory=StreamLimits)
    notes_cache_changes: bool = False


@dataclass(slots=True)
class LoadCounts:
    """Totals of loads from KV stores.

    Attributes:
        outcomes: Loads answered.
        num_overdue: Loads whose answer did not come in time.
        blocks: Blocks that came, by the label of their tier.
        tokens: Tokens of those blocks, by tier.
        verdicts: Decisions to load or to compute, where a store had the blocks.
        num_uncopied: Blocks ordered of which too few stores had a copy.
    """

    outcomes: Counter[LoadOutcome] = field(default_factory=Counter)
    num_overdue: int = 0
    blocks: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[LoadReason] = field(default_factory=Counter)
    num_uncopied: int = 0

    def copy(self) -> "LoadCounts":
        """Return a copy of the present totals."""
        counters = (self.blocks.copy(), self.tokens.copy(), self.verdicts.copy())
        return LoadCounts(
            self.outcomes.copy(), self.num_overdue, *counters, num_uncopied=self.num_uncopied
        )


@dataclass(slots=True)
class HandoffCounts:
    """Totals of hand-offs between workers.

    Attributes:
        verdicts: Decisions about the worker that computes a prompt, where several could.
        outcomes: Pulls answered.
        num_blocks: Blocks that came.
        num_moves: Sequences that took their blocks along to another worker.
    """

    verdicts: Counter[HandoffReason] = field(default_factory=Counter)
    outcomes: Counter[LoadOutcome] = field(default_factory=Counter)
    num_blocks: int = 0
    num_moves: int = 0

    def copy(self) -> "HandoffCounts":
        """Return a copy of the present totals."""
        return replace(self, verdicts=self.verdicts.copy(), outcomes=self.outcomes.copy())


@dataclass(slots=True)
class CoreCounts:
    """Totals since the start, for tests and metrics; no decision depends on them.

    `models` has the totals of each model that ever had a worker.
    """

    num_steps: int = 0
    num_preemptions: int = 0
    num_dropped_results: int = 0
    num_rejected: int = 0
    loads: LoadCounts = field(default_factory=LoadCounts)
    handoffs: HandoffCounts = field(default_factory=HandoffCounts)
    models: dict[str, ModelTotals] = field(default_factory=dict)

    def of(self, model: str) -> ModelTotals:
        """Return the totals of a model; the caller may add to them."""
        return self.models.setdefault(model, ModelTotals())

    def copy(self) -> "CoreCounts":
        """Return a copy of the present totals."""
        models = {model: totals.copy() for model, totals in self.models.items()}
        return replace(self, loads=self.loads.copy(), handoffs=self.handoffs.copy(), models=models)
