"""How busy a cell is: who runs, who waits and why, per frontend and model, and how full the KV
caches of a model's workers are. Counts when it is asked; decides nothing."""

import enum
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.frontend_state import FrontendState
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.roles import Role
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_state import WorkerState


class WaitReason(enum.Enum):
    """What a sequence waits for."""

    CAPACITY = "capacity"  # slots, blocks or a worker
    GRAMMAR = "grammar"  # its grammar to be compiled
    KV = "kv"  # blocks of a KV store or of another worker
    TRIAL = "trial"  # that it is found out who made a step fail


_REASONS: Final = tuple(WaitReason)
_CAPACITY, _GRAMMAR, _KV, _TRIAL = range(1, 1 + len(_REASONS))


@dataclass(slots=True)
class SequenceCounts:
    """Sequences of one model."""

    num_running: int = 0
    num_waiting: dict[WaitReason, int] = field(default_factory=lambda: dict.fromkeys(WaitReason, 0))

    def add(self, other: "SequenceCounts") -> None:
        """Add those of another frontend."""
        self.num_running += other.num_running
        for reason, count in other.num_waiting.items():
            self.num_waiting[reason] += count


@dataclass(slots=True)
class WorkerLoad:
    """Workers of one model.

    Attributes:
        num_by_roles: Workers by what they are used for.
        num_blocks: KV blocks of all of them.
        num_used_blocks: Those that somebody holds; what is only kept for whom may want it is free.
        block_size: Tokens per block.
        steps_by_tokens, num_step_tokens: See ModelTotals.
    """

    num_by_roles: dict[frozenset[Role], int] = field(default_factory=dict)
    num_blocks: int = 0
    num_used_blocks: int = 0
    block_size: int = 0
    steps_by_tokens: tuple[int, ...] = ()
    num_step_tokens: int = 0

    @property
    def num_workers(self) -> int:
        """All of them."""
        return sum(self.num_by_roles.values())

    @property
    def usage(self) -> float:
        """Share of the blocks that is in use."""
        return self.num_used_blocks / self.num_blocks if self.num_blocks else 0.0


@dataclass(frozen=True, slots=True)
class CellLoad:
    """How busy a cell is.

    Attributes:
        sequences: Of each frontend, by model; of one that is away for a moment, too.
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
    """Count every sequence and worker."""
    workers = list(workers)
    on_trial = {worker for worker in workers if worker.trials}
    sequences = {one.frontend_id: _sequences(one, on_trial) for one in frontends}
    return CellLoad(sequences, _workers(workers))


def _sequences(
    frontend: FrontendState, on_trial: AbstractSet[WorkerState]
) -> dict[str, SequenceCounts]:
    # Thousands may wait while steps do, so plain numbers: looking an enum up calls its hash.
    tallies: dict[str, list[int]] = {}
    for request in frontend.requests.values():
        tally = tallies.get(request.submission.model)
        if tally is None:
            tally = tallies[request.submission.model] = [0] * (1 + len(_REASONS))
        for sequence in request.sequences:
            if sequence.is_live:
                # Who waits for another's prompt fares as that one does.
                tally[_place(sequence.leader or sequence, on_trial)] += 1
    return {
        model: SequenceCounts(running, dict(zip(_REASONS, waiting, strict=True)))
        for model, (running, *waiting) in tallies.items()
    }


def _place(sequence: Sequence, on_trial: AbstractSet[WorkerState]) -> int:
    """Return 0 for one that runs, else the number of its reason, from 1."""
    state = sequence.state
    if state is State.RUNNING:
        return 0
    if state is State.WAITING_FOR_GRAMMAR:
        return _GRAMMAR
    if state is State.WAITING_FOR_REMOTE_KV:
        return _KV
    return _TRIAL if on_trial and sequence.worker in on_trial else _CAPACITY


def _workers(workers: Iterable[WorkerState]) -> dict[str, WorkerLoad]:
    by_model: dict[str, WorkerLoad] = {}
    for worker in workers:
        counts = by_model.get(worker.info.model.name)
        if counts is None:
            counts = by_model[worker.info.model.name] = WorkerLoad()
            counts.steps_by_tokens = tuple(worker.totals.steps_by_tokens)
            counts.num_step_tokens = worker.totals.num_step_tokens
        counts.num_by_roles[worker.roles] = counts.num_by_roles.get(worker.roles, 0) + 1
        counts.num_blocks += worker.pool.num_blocks
        counts.num_used_blocks += worker.pool.num_blocks - worker.pool.num_free
        counts.block_size = worker.info.model.block_size
    return by_model
