"""One hand-off: blocks computed on one worker for a sequence that waits on another, with the table
of legal phase moves."""

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pagewire_scheduler.core.blocks.block_table import BlockTable
    from pagewire_scheduler.core.state.loads import KvLoad
    from pagewire_scheduler.core.state.request import Sequence
    from pagewire_scheduler.core.state.worker import WorkerState


class Phase(enum.Enum):
    """How far it is."""

    QUEUED = "queued"  # the prefill waits for its turn on the source
    COMPUTING = "computing"  # it has begun: blocks may be pulled as they are computed
    HELD = "held"  # all is computed, and kept until the receiver has it
    ENDED = "ended"  # the source keeps nothing for it


_MOVES: Final = {
    Phase.QUEUED: {Phase.COMPUTING, Phase.HELD, Phase.ENDED},
    Phase.COMPUTING: {Phase.HELD, Phase.ENDED},
    Phase.HELD: {Phase.ENDED},
    Phase.ENDED: set[Phase](),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Handoff:
    """Blocks on their way from `source` to `receiver`.

    Attributes:
        sequence: The sequence that waits for them on the receiver.
        num_blocks: How many of its first blocks are wanted.
        deadline: Instant at which the sequence stops waiting.
        prefill: What computes them on the source; None when they are there.
        num_cached: How many of the first the source had already.
        lease: Holds the source's blocks until the receiver has them; None before.
        load: The receiver's order to pull; None before.
        begun_at, computed_at: When it was decided, and when all was computed.
    """

    source: "WorkerState"
    receiver: "WorkerState"
    sequence: "Sequence"
    num_blocks: int
    deadline: float
    begun_at: float
    num_cached: int = 0
    prefill: "Sequence | None" = None
    lease: "BlockTable | None" = None
    load: "KvLoad | None" = None
    computed_at: float | None = None
    phase: Phase = field(default=Phase.QUEUED)

    def advance(self, target: Phase) -> None:
        """Move to `target`; asserts that the table has the move."""
        assert target in _MOVES[self.phase], f"no move from {self.phase} to {target}"
        self.phase = target

    @property
    def is_pullable(self) -> bool:
        """Whether the source has blocks, or is about to."""
        return self.phase in (Phase.COMPUTING, Phase.HELD)
