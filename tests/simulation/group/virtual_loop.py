"""Runs coroutines in virtual time: an event loop whose clock moves when nothing else is to do, so
that the same seed gives the same history. Has no sockets, threads or child processes."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now += max(timeout, 0.0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, in seconds since its start."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, and cancel what it leaves behind."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(work)
