"""Copies blocks that other workers pull out of the pool, layer by layer during a step.

Runs in the model thread, does no I/O and never waits, but for ranks, whose blocks are copied
between steps. Layers without room are copied later; a copied layer is sent once its copy is done.
The last layer of a block is copied only after its step has succeeded, so no worker gets whole
blocks of a failed step.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from torch import Tensor

from pagewire_shared.kv.layers_convert import MAX_DATA_BYTES, LayerRange
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.kv.block_memory import BlockMemory
from pagewire_worker.kv.block_names import BlockNames
from pagewire_worker.kv.block_observer import BlockObserver
from pagewire_worker.kv.device_copies import DeviceCopies, ImmediateCopies
from pagewire_worker.kv.layer_copy import block_index
from pagewire_worker.transfer import metrics
from pagewire_worker.transfer.outgoing_pull import OutgoingPull, Run, StagedLayers

_logger = logging.getLogger(__name__)

TURN_BYTES: Final = 4 * 1024 * 1024
"""Bytes copied between two jobs, in about a millisecond."""


class BlockSharer(BlockObserver):
    """Follows the blocks of one pool for open pulls.

    Args:
        names: Names of its VALID blocks.
        copies: How blocks are copied; at once by default.
    """

    def __init__(
        self, memory: BlockMemory, names: BlockNames, copies: DeviceCopies | None = None
    ) -> None:
        self._memory = memory
        self._copies = ImmediateCopies() if copies is None else copies
        self._names = names
        self._num_layers = memory.num_layers
        self._bytes_per_layer = memory.bytes_per_block // memory.num_layers
        self._nudge: Callable[[], None] = lambda: None
        self._is_nudged = False
        self._inbox: deque[OutgoingPull] = deque()
        self._pulls: list[OutgoingPull] = []
        self._computing: list[tuple[OutgoingPull, Run]] = []
        self._num_computed = 0
        self._has_failed = False

    def connect(self, nudge: Callable[[], None]) -> None:
        """Call `nudge` when there is work; it leads to a `turn`."""
        self._nudge = nudge

    def add(self, pull: OutgoingPull) -> None:
        """Serve a pull until it is closed or completely copied; from any thread."""
        self._inbox.append(pull)
        self.wake()

    def wake(self) -> None:
        """Look for work again, because there is room or a pull is closed; from any thread.

        At most one nudge is under way.
        """
        if not self._is_nudged:
            self._is_nudged = True
            self._nudge()

    def begin(self, plan: StepPlan) -> None:
        self._take_in()
        if not self._pulls or len(plan.named_blocks) == 0:
            return
        planned = dict(zip(plan.names, map(int, plan.named_blocks), strict=True))
        self._num_computed = 0
        for pull in self._pulls:
            self._add_valid(pull, len(pull.names))
            if self._memory.is_read_in_steps:
                self._add_planned(pull, planned)

    @property
    def is_following(self) -> bool:
        """Whether layers are copied while the step computes them."""
        return bool(self._computing)

    def on_layer(self) -> None:
        """Copy the layers of blocks that are whole with the layer that a step has just computed."""
        if not self._computing:
            return
        first = self._memory.num_whole(self._num_computed)
        self._num_computed += 1
        # The last one not before the step has succeeded.
        end = min(self._memory.num_whole(self._num_computed), self._num_layers - 1)
        for layer in range(first, end):
            self._copy_layer(layer)

    def _copy_layer(self, layer: int) -> None:
        for pull, run in self._computing:
            if run.next_layer == layer and run.index is not None:
                covered = LayerRange(run.first, run.num_blocks, layer, 1)
                if self._stage(pull, covered, run.index):
                    run.next_layer += 1

    def launched(self, plan: StepPlan) -> None:
        """See BlockObserver: the rest of its blocks is copied once they are VALID."""
        for _, run in self._computing:
            run.index = None
        self._computing.clear()

    def named(self, plan: StepPlan) -> None:
        if self._pulls:
            self.wake()

    def failed(self) -> None:
        self._computing.clear()
        for pull in self._pulls:
            runs = [number for number, run in enumerate(pull.runs) if run.index is not None]
            if runs:
                self._drop_runs(pull, runs[0])

    def turn(self, is_idle: bool) -> bool:
        """Copy some of the wanted VALID blocks; return whether work is left."""
        self._is_nudged = False
        self._take_in()
        left, is_moving = TURN_BYTES, True
        while self._pulls and is_moving and left > 0:
            copied = [self._copy_some(pull) for pull in self._pulls]
            is_moving = any(copied)
            left -= sum(copied)
            self._pulls = [pull for pull in self._pulls if not _is_over(pull)]
        return bool(self._pulls) and is_moving

    def _take_in(self) -> None:
        while self._inbox:
            self._pulls.append(self._inbox.popleft())
        if self._pulls:
            self._pulls = [pull for pull in self._pulls if not _is_over(pull)]

    def _add_valid(self, pull: OutgoingPull, most: int) -> None:
        """Begin a run of the next VALID blocks, at most `most`."""
        blocks = self._valid(pull.names[pull.end : min(pull.end + most, pull.num_wanted)])
        if blocks:
            pull.runs.append(Run(pull.end, len(blocks)))

    def _add_planned(self, pull: OutgoingPull, planned: dict[bytes, int]) -> None:
        """Begin runs of the next blocks that the step will compute."""
        blocks = []
        for name in pull.names[pull.end : pull.num_wanted]:
            if name not in planned:
                break
            blocks.append(planned[name])
        most = max(1, MAX_DATA_BYTES // self._bytes_per_layer)
        for begin in range(0, len(blocks), most):
            some = blocks[begin : begin + most]
            run = Run(pull.end, len(some), index=block_index(self._memory, some))
            pull.runs.append(run)
            self._computing.append((pull, run))

    def _valid(self, names: Sequence[bytes]) -> list[int]:
        """Return the blocks of the leading names that are VALID."""
        blocks: list[int] = []
        for name in names:
            block = self._names.find(name)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _copy_some(self, pull: OutgoingPull) -> int:
        """Copy one piece of the first VALID blocks; return its bytes, 0 for none."""
        if not pull.runs:
            self._add_valid(pull, max(1, MAX_DATA_BYTES // self._memory.bytes_per_block))
        if not pull.runs or pull.is_closed:
            return 0
        head = pull.runs[0]
        num_left = self._num_layers - head.next_layer
        most = max(1, MAX_DATA_BYTES // (num_left * self._bytes_per_layer))
        num_blocks = min(head.num_blocks, most)
        blocks = self._valid(pull.names[head.first : head.first + num_blocks])
        if not blocks:
            if not self._names.is_promised(pull.names[head.first]):
                self._drop_runs(pull, 0)
            return 0
        head = pull.split_head(len(blocks))
        most = max(1, MAX_DATA_BYTES // (len(blocks) * self._bytes_per_layer))
        covered = LayerRange(head.first, len(blocks), head.next_layer, min(num_left, most))
        if not self._stage(pull, covered, block_index(self._memory, blocks)):
            return 0
        head.next_layer += covered.num_layers
        if head.next_layer == self._num_layers:
            pull.finish_head()
        return covered.num_blocks * covered.num_layers * self._bytes_per_layer

    def _stage(self, pull: OutgoingPull, covered: LayerRange, index: Tensor) -> bool:
        """Copy layers of the blocks `index` [n] out; return False if there is no room."""
        num_bytes = covered.num_blocks * covered.num_layers * self._bytes_per_layer
        offset = pull.take_room(num_bytes)
        if offset is None:
            return False
        piece = StagedLayers(covered, offset, num_bytes)
        try:
            region = pull.region(piece)
            copied = self._copies.copy_out(
                index.tolist(),
                lambda: self._memory.read_layers(
                    index, covered.first_layer, covered.num_layers, region
                ),
            )
        except (RuntimeError, RankLostError) as error:
            # An error of torch, such as no memory for a temporary: only this pull suffers.
            pull.give_back(piece)
            if not self._has_failed and not isinstance(error, RankLostError):
                self._has_failed = True
                _logger.exception("cannot copy blocks out of the cache")
            return False
        pull.expect(piece)
        self._copies.call_after(copied, partial(pull.put, piece))
        return True

    def _drop_runs(self, pull: OutgoingPull, number: int) -> None:
        if pull.drop_runs(number):
            metrics.VOID_PULLS.inc()


def _is_over(pull: OutgoingPull) -> bool:
    return pull.is_closed or pull.is_staged
