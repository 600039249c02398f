"""The load of one model: the sequences of this frontend, and the workers of its cells."""

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoad:
    """Sequences of this frontend, one per choice of a request; workers and blocks of all cells that
    it is attached to.

    Attributes:
        num_waiting_for_capacity: Sequences that wait for slots or blocks.
        num_waiting_for_worker: Sequences that wait here until a worker of their model, or the
            scheduler that had them, is there.
        num_waiting_for_adapter: Sequences that wait for their adapter to be in a slot.
        num_waiting_for_grammar: Sequences that wait for their grammar to be compiled.
        num_waiting_for_kv: Sequences that wait for KV blocks of a store or another worker.
        num_waiting_for_trial: Sequences that wait while the request that fails a step is isolated.
        block_size: Tokens per block; 0 while there is no worker.
        steps_by_tokens: Steps of all workers by their size, as of CellMetrics; empty if not known.
        num_step_tokens: Tokens of all of them.
    """

    num_running: int = 0
    num_waiting_for_capacity: int = 0
    num_waiting_for_worker: int = 0
    num_waiting_for_adapter: int = 0
    num_waiting_for_grammar: int = 0
    num_waiting_for_kv: int = 0
    num_waiting_for_trial: int = 0
    num_workers: int = 0
    num_blocks: int = 0
    num_used_blocks: int = 0
    block_size: int = 0
    steps_by_tokens: tuple[int, ...] = ()
    num_step_tokens: int = 0

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that is in use, 0 to 1."""
        return self.num_used_blocks / self.num_blocks if self.num_blocks else 0.0


_NOT_SUMMED = ("block_size", "steps_by_tokens")
_SUMMED = [field.name for field in fields(ModelLoad) if field.name not in _NOT_SUMMED]


def total(loads: Iterable[ModelLoad]) -> ModelLoad:
    """Return the loads of several cells as one; of block sizes the first that is known."""
    parts = list(loads)
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    sizes = (part.block_size for part in parts if part.block_size)
    known = [part.steps_by_tokens for part in parts if part.steps_by_tokens]
    steps = tuple(map(sum, zip(*known, strict=False)))
    return ModelLoad(**sums, block_size=next(sizes, 0), steps_by_tokens=steps)
