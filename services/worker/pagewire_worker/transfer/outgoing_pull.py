"""State of one pull in the model thread: layers copied so far, and a queue for the event loop.

BlockSharer makes the copies.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pagewire_shared.kv.layers_convert import LayerRange
from pagewire_worker.transfer.staging import Staging


@dataclass(frozen=True, slots=True)
class StagedLayers:
    """Some layers of some blocks in the staging memory."""

    range: LayerRange
    offset: int
    num_bytes: int


def follows(first: StagedLayers, second: StagedLayers) -> bool:
    """Whether `second` holds the next layers of the same blocks as `first`."""
    one, other = first.range, second.range
    return (
        one.first_block == other.first_block
        and one.num_blocks == other.num_blocks
        and one.first_layer + one.num_layers == other.first_layer
    )


@dataclass(slots=True)
class Run:
    """Adjacent blocks whose layers are copied equally far.

    Attributes:
        first: Index of the first block among the names.
        next_layer: The layers before it are copied.
        index: The blocks in the pool while a step computes them, [n] int64; else None.
    """

    first: int
    num_blocks: int
    next_layer: int = 0
    index: Tensor | None = None


class OutgoingPull:
    """The blocks that one receiver wants.

    Args:
        names: Theirs, in order of position.
        staging: Where copies lie until they are sent.
        max_staged_bytes: Most that lies there for this pull, but one piece may always.
        notify: Called from the model thread when there is news for the event loop.

    Attributes:
        num_done: Leading blocks of which all layers are copied, or are being copied.
        num_wanted: Leading blocks that can be sent; fewer than all names after a void step.
        runs: Runs under way after `num_done`, in order and without gaps.
    """

    def __init__(
        self,
        names: Sequence[bytes],
        staging: Staging,
        max_staged_bytes: int,
        notify: Callable[[], None],
        *,
        num_layers: int,
    ) -> None:
        self.names = names
        self.num_layers = num_layers
        self.num_done = 0
        self.num_wanted = len(names)
        self.runs: deque[Run] = deque()
        self._staging = staging
        self._max_staged_bytes = max_staged_bytes
        self._notify = notify
        self._guard = threading.Lock()
        self._outbox: deque[StagedLayers] = deque()
        self._num_staged_bytes = 0
        self._expected: set[int] = set()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the receiver has gone."""
        return self._is_closed

    @property
    def is_staged(self) -> bool:
        """Whether all pieces that can be sent have been put in the outbox."""
        return self.num_done == self.num_wanted and not self._expected

    @property
    def end(self) -> int:
        """Index of the first block that is not under way."""
        return self.runs[-1].first + self.runs[-1].num_blocks if self.runs else self.num_done

    def take_room(self, num_bytes: int) -> int | None:
        """Return the offset of a region of the staging memory; None if there is no room."""
        with self._guard:
            if self._is_closed:
                return None
            is_over = self._num_staged_bytes + num_bytes > self._max_staged_bytes
            if is_over and self._num_staged_bytes:
                return None
            offset = self._staging.take(num_bytes)
            if offset is not None:
                self._num_staged_bytes += num_bytes
            return offset

    def region(self, piece: StagedLayers) -> Tensor:
        """Return the memory of a piece, uint8 [bytes]."""
        return self._staging.region(piece.offset, piece.num_bytes)

    def expect(self, piece: StagedLayers) -> None:
        """Note that a piece is being copied; `put` follows when the copy is done."""
        with self._guard:
            self._expected.add(piece.offset)

    def put(self, piece: StagedLayers) -> None:
        """Hand a piece to the event loop; from any thread."""
        with self._guard:
            if not self._is_closed:
                # Put first: a reader that sees nothing expected must find the piece.
                self._outbox.append(piece)
            self._expected.discard(piece.offset)
            if not self._is_closed:
                self._notify()
                return
        self.give_back(piece)

    def take(self) -> StagedLayers | None:
        """Return the oldest piece; the caller gives it back later."""
        with self._guard:
            return self._outbox.popleft() if self._outbox else None

    def give_back(self, piece: StagedLayers) -> None:
        """Free the region of a piece."""
        with self._guard:
            self._num_staged_bytes -= piece.num_bytes
        self._staging.give_back(piece.offset)

    def close(self) -> None:
        """Close the pull, and free pieces that were not taken."""
        with self._guard:
            self._is_closed = True
            left = list(self._outbox)
            self._outbox.clear()
        for piece in left:
            self.give_back(piece)

    def finish_head(self) -> None:
        """Note that the first run is copied."""
        self.num_done += self.runs.popleft().num_blocks
        if self.is_staged:
            self._notify()

    def split_head(self, num_blocks: int) -> Run:
        """Cut the first run after `num_blocks` blocks and return it."""
        head = self.runs[0]
        if num_blocks < head.num_blocks:
            rest = Run(head.first + num_blocks, head.num_blocks - num_blocks, head.next_layer)
            self.runs[0] = Run(head.first, num_blocks, head.next_layer)
            self.runs.insert(1, rest)
        return self.runs[0]

    def drop_runs(self, number: int) -> bool:
        """Forget the runs from `number` on, whose blocks will not have the expected content.

        Blocks of which no layer was sent are waited for again. The pull ends at the first other
        block, since a layer is sent only once.

        Returns:
            Whether the pull ends there.
        """
        dropped = [self.runs.pop() for _ in range(len(self.runs) - number)]
        begun = [run.first for run in dropped if run.next_layer > 0]
        if not begun:
            return False
        self.num_wanted = min(begun)
        if self.is_staged:
            self._notify()
        return True
