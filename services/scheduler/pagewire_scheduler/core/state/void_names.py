"""Names of blocks that a worker may still hold, and that a plan overwrites there.

A void step can succeed on the worker although it read what a failed step should have written. Its
names would be believed at the next attach. The same holds for names that were forgotten here.
"""

import hashlib
import struct

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_shared.identity.ids import BlockName

# Apart from the ids of steps: the parts of a void name differ whenever contents do.
_RESET = 1 << 63


class VoidNames:
    """The blocks of one worker whose names are to be overwritten there.

    Attributes:
        steps: The void step that named each block, or a number beyond all steps.
    """

    __slots__ = ("_info", "_pool", "steps")

    def __init__(self, info: WorkerInfo, pool: BlockPool) -> None:
        self._info, self._pool = info, pool
        self.steps: dict[int, int] = {}

    def forget(self, block: int, next_step_id: int) -> None:
        """Overwrite the name of `block`, which no void step has given."""
        self.steps[block] = _RESET + next_step_id

    def are_due(self) -> bool:
        """Return whether the next plan can overwrite a name."""
        ref_counts, names = self._pool.ref_counts, self._pool.names
        return any(not ref_counts[block] and names[block] is None for block in self.steps)

    def take(self, num_most: int) -> list[tuple[int, BlockName]]:
        """Return at most `num_most` (block, name) for the plan being sent."""
        taken: list[tuple[int, BlockName]] = []
        # Blocks in use lose the name when they are written, but may be freed before that.
        for block in [block for block in self.steps if not self._pool.ref_counts[block]]:
            if len(taken) == num_most:
                break  # the next plan sends the others
            step_id = self.steps.pop(block)
            if self._pool.names[block] is None:
                taken.append((block, _void_name(self._info, step_id, block)))
        return taken


def _void_name(info: WorkerInfo, step_id: int, block: int) -> BlockName:
    """Return a name that no content has."""
    parts = (b"void", info.worker_id, struct.pack("<QQI", info.incarnation, step_id, block))
    return BlockName(hashlib.sha256(b"".join(parts)).digest()[:16])
