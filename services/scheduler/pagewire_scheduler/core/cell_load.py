"""The load of a cell: running and waiting sequences per frontend and model, and the KV cache usage
of each model's workers."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pagewire_scheduler.core.data.tally import (
    FOR_ADAPTER,
    FOR_CAPACITY,
    FOR_GRAMMAR,
    FOR_KV,
    RUNNING,
)
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.state.frontend import FrontendState
from pagewire_scheduler.core.state.worker import WorkerState


class WaitReason(enum.Enum):
    """The reason why a sequence waits."""

    CAPACITY = "capacity"  # slots, blocks or a worker
    ADAPTER = "adapter"  # its adapter to be in a slot
    GRAMMAR = "grammar"  # its grammar to be compiled
    KV = "kv"  # blocks of a KV store or of another worker
    TRIAL = "trial"  # that it is found out who made a step fail


@dataclass(slots=True)
class SequenceCounts:
    """Sequences of one model."""

    num_running: int = 0
    num_waiting: dict[WaitReason, int] = field(default_factory=lambda: dict.fromkeys(WaitReason, 0))

    def add(self, other: "SequenceCounts") -> None:
        """Add the counts of another frontend."""
        self.num_running += other.num_running
        for reason, count in other.num_waiting.items():
            self.num_waiting[reason] += count


@dataclass(slots=True)
class WorkerLoad:
    """Workers of one model.

    Attributes:
        num_by_roles: Workers by their roles.
        num_blocks: KV blocks of all of them.
        num_used_blocks: Blocks with a holder; a block that is only cached is free.
        block_size: Tokens per block.
        num_adapter_slots, num_adapters: Adapter slots, and adapters in them.
        num_adapter_evictions: Adapters that made room for others, of workers that are there.
        steps_by_tokens, num_step_tokens: See ModelTotals.
    """

    num_by_roles: dict[frozenset[Role], int] = field(default_factory=dict)
    num_blocks: int = 0
    num_used_blocks: int = 0
    block_size: int = 0
    num_adapter_slots: int = 0
    num_adapters: int = 0
    num_adapter_evictions: int = 0
    steps_by_tokens: tuple[int, ...] = ()
    num_step_tokens: int = 0

    @property
    def num_workers(self) -> int:
        """Number of all workers."""
        return sum(self.num_by_roles.values())

    @property
    def usage(self) -> float:
        """Share of the blocks that is in use."""
        return self.num_used_blocks / self.num_blocks if self.num_blocks else 0.0


@dataclass(frozen=True, slots=True)
class CellLoad:
    """The load of a cell.

    Attributes:
        sequences: By frontend and model; frontends that are away for a moment count, too.
        workers: By model.
    """

    sequences: Mapping[bytes, Mapping[str, SequenceCounts]]
    workers: Mapping[str, WorkerLoad]

    def of_all_frontends(self) -> dict[str, SequenceCounts]:
        """Return the sequences of all frontends by model."""
        totals: dict[str, SequenceCounts] = {}
        for by_model in self.sequences.values():
            for model, counts in by_model.items():
                totals.setdefault(model, SequenceCounts()).add(counts)
        return totals


def cell_load(frontends: Iterable[FrontendState], workers: Iterable[WorkerState]) -> CellLoad:
    """Collect the running counts; only workers and sequences on trial are walked."""
    workers = list(workers)
    sequences = {one.frontend_id: _sequences(one) for one in frontends}
    for worker in workers:
        suspended = (*worker.waiting, *worker.aside.returning) if worker.fault_isolation else ()
        for sequence in suspended:
            if sequence.is_live and sequence.placement.place == FOR_CAPACITY:
                request, num_choices = sequence.request, 1 + len(sequence.branch.followers)
                waiting = sequences[request.frontend_id][request.submission.model].num_waiting
                waiting[WaitReason.CAPACITY] -= num_choices
                waiting[WaitReason.TRIAL] += num_choices
    return CellLoad(sequences, _workers(workers))


def _sequences(frontend: FrontendState) -> dict[str, SequenceCounts]:
    for model in [model for model, tally in frontend.tallies.items() if not any(tally)]:
        # None of its sequences is live, or it would be counted.
        del frontend.tallies[model]
    return {
        model: SequenceCounts(
            tally[RUNNING],
            {
                WaitReason.CAPACITY: tally[FOR_CAPACITY],
                WaitReason.ADAPTER: tally[FOR_ADAPTER],
                WaitReason.GRAMMAR: tally[FOR_GRAMMAR],
                WaitReason.KV: tally[FOR_KV],
                WaitReason.TRIAL: 0,
            },
        )
        for model, tally in frontend.tallies.items()
    }


def _workers(workers: Iterable[WorkerState]) -> dict[str, WorkerLoad]:
    by_model: dict[str, WorkerLoad] = {}
    for worker in workers:
        counts = by_model.get(worker.info.model.name)
        if counts is None:
            counts = by_model[worker.info.model.name] = WorkerLoad()
            counts.steps_by_tokens = tuple(worker.totals.steps_by_tokens)
            counts.num_step_tokens = worker.totals.num_step_tokens
        counts.num_by_roles[worker.duty.roles] = counts.num_by_roles.get(worker.duty.roles, 0) + 1
        counts.num_blocks += worker.pool.num_blocks
        counts.num_used_blocks += worker.pool.num_blocks - worker.pool.num_free
        counts.block_size = worker.info.model.block_size
        counts.num_adapter_slots += len(worker.adapters.slots)
        counts.num_adapters += sum(bool(slot.adapter) for slot in worker.adapters.slots)
        counts.num_adapter_evictions += worker.adapters.num_evictions
    return by_model
