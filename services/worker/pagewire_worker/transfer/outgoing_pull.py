"""One pull as the model thread sees it: which layers of which blocks were copied out, and an outbox
that the event loop empties. Copies nothing itself."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pagewire_shared.kv.layers_convert import LayerRange
from pagewire_worker.transfer.staging import Staging


@dataclass(frozen=True, slots=True)
class StagedLayers:
    """Some layers of some blocks in the staging memory.

    Attributes:
        range: Which.
        offset: Of the region.
        num_bytes: Of the payload.
    """

    range: LayerRange
    offset: int
    num_bytes: int


def follows(first: StagedLayers, second: StagedLayers) -> bool:
    """Whether `second` holds the next layers of the very blocks of `first`."""
    one, other = first.range, second.range
    return (
        one.first_block == other.first_block
        and one.num_blocks == other.num_blocks
        and one.first_layer + one.num_layers == other.first_layer
    )


@dataclass(slots=True)
class Run:
    """Blocks one after the other that are equally far.

    Attributes:
        first: Index of the first one among the names.
        num_blocks: How many.
        next_layer: The layers before it are copied.
        index: The blocks of the pool while a step computes them, [n] int64; else None.
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
        num_layers: Layers of a block.

    Attributes:
        num_done: The first blocks, of which all layers are copied, or are being copied.
        num_wanted: The first blocks that can be sent; fewer than all names once a step was void.
        runs: Those after `num_done` that are under way, in order and without gaps.
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
        """Whether nobody wants anything any more."""
        return self._is_closed

    @property
    def is_staged(self) -> bool:
        """Whether all that can be sent is in the outbox, or was."""
        return self.num_done == self.num_wanted and not self._expected

    @property
    def end(self) -> int:
        """Index of the first block that is not under way."""
        return self.runs[-1].first + self.runs[-1].num_blocks if self.runs else self.num_done

    def take_room(self, num_bytes: int) -> int | None:
        """Return the offset of a region of the staging memory; None while there is no room."""
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
        """Note that a piece is being copied, and `put` once it is there."""
        with self._guard:
            self._expected.add(piece.offset)

    def put(self, piece: StagedLayers) -> None:
        """Hand a piece to the event loop; from any thread."""
        with self._guard:
            if not self._is_closed:
                # Before it is not expected any more: whoever sees that finds it.
                self._outbox.append(piece)
            self._expected.discard(piece.offset)
            if not self._is_closed:
                self._notify()
                return
        self.give_back(piece)

    def take(self) -> StagedLayers | None:
        """Return the oldest piece; whoever takes it gives it back."""
        with self._guard:
            return self._outbox.popleft() if self._outbox else None

    def give_back(self, piece: StagedLayers) -> None:
        """Free the region of a piece."""
        with self._guard:
            self._num_staged_bytes -= piece.num_bytes
        self._staging.give_back(piece.offset)

    def close(self) -> None:
        """Want nothing any more, and free what nobody has taken."""
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
        """Forget the runs from `number` on, whose blocks are not what they were to be.

        Blocks of which no layer was sent are waited for again. With the first of the others the
        pull is over: a layer is sent once.

        Returns:
            Whether the pull is over there.
        """
        dropped = [self.runs.pop() for _ in range(len(self.runs) - number)]
        begun = [run.first for run in dropped if run.next_layer > 0]
        if not begun:
            return False
        self.num_wanted = min(begun)
        if self.is_staged:
            self._notify()
        return True
