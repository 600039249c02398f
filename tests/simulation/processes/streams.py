"""One attach stream as two queues in memory: ordered, but cut at any message, late, and each end
learns of the cut in its own time. Knows no message."""

from collections import deque
from typing import Any


class Stream:
    """A stream that a worker or frontend (`dialer`) opened to a cell.

    Attributes:
        up: Messages to the scheduler, oldest first.
        down: Messages to the dialer.
        is_cut: No message enters any more; what is queued may still arrive.
        is_up_over, is_down_over: The scheduler, the dialer, has noticed.
        is_odd: It carried messages that the dialer did not mean.
        unwritten_until: Neither end writes before; what it has to say waits with it.
        peer: What the scheduler made of the hello.
    """

    __slots__ = (
        "cell",
        "dialer",
        "down",
        "frozen_until",
        "is_cut",
        "is_down_over",
        "is_odd",
        "is_up_over",
        "kind",
        "peer",
        "unwritten_until",
        "up",
    )

    def __init__(self, kind: str, dialer: Any, cell: Any) -> None:
        self.kind = kind
        self.dialer = dialer
        self.cell = cell
        self.up: deque[Any] = deque()
        self.down: deque[Any] = deque()
        self.is_cut = False
        self.is_up_over = False
        self.is_down_over = False
        self.is_odd = False
        self.frozen_until = 0.0
        self.unwritten_until = 0.0
        self.peer: Any = None

    def send_up(self, message: Any) -> None:
        if not self.is_cut:
            self.up.append(message)

    def send_down(self, message: Any) -> None:
        if not self.is_cut:
            self.down.append(message)

    def cut(self, num_up: int = 0, num_down: int = 0) -> None:
        """Break it: only the first `num_up` and `num_down` messages on the way still arrive."""
        if self.is_cut:
            return
        self.is_cut = True
        while len(self.up) > num_up:
            self.up.pop()
        while len(self.down) > num_down:
            self.down.pop()

    def leave_down(self) -> None:
        """The dialer has ended it, or is gone: it hears nothing more."""
        self.cut(len(self.up), 0)
        self.down.clear()
        self.is_down_over = True

    def leave_up(self) -> None:
        """The scheduler has ended it, or is gone."""
        self.cut(0, len(self.down))
        self.up.clear()
        self.is_up_over = True

    def is_written(self, now: float) -> bool:
        """Whether the ends write to it."""
        return now >= self.unwritten_until

    def has_up(self, now: float) -> bool:
        """Whether the scheduler's side has something to notice."""
        is_ready = bool(self.up) or (self.is_cut and not self.is_up_over)
        return is_ready and now >= self.frozen_until

    def has_down(self, now: float) -> bool:
        is_ready = bool(self.down) or (self.is_cut and not self.is_down_over)
        return is_ready and now >= self.frozen_until
