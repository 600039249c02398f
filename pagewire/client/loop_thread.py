"""An event loop on a thread of its own, for blocking calls beside whatever loop the user runs.

One per process: gRPC's asyncio support keeps one poller per process, and several loops that read it
wake each other in vain.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")

_END = object()


class LoopThread:
    """A running event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pagewire-loop", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on the loop and return its result; an interrupt here cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # nothing happens when it is done

    def iterate(self, make: Callable[[], AsyncIterator[Item]]) -> Iterator[Item]:
        """Yield what `make()` yields on the loop; closing this iterator closes that one."""

        async def begin() -> AsyncIterator[Item]:
            return make()

        items = self.run(begin())
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            self.run(_close(items))


async def _next(items: AsyncIterator[Item]) -> Any:
    return await anext(items, _END)


async def _close(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform != "win32" and sys.implementation.name == "cpython":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


_lock = threading.Lock()
_shared: tuple[int, LoopThread] | None = None


def shared_loop_thread() -> LoopThread:
    """Return the process's loop thread, started on first use, anew after a fork."""
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = (os.getpid(), LoopThread())
        return _shared[1]
