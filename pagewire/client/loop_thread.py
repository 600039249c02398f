"""An event loop in its own thread, for blocking calls beside any loop of the user.

A process has one such loop: gRPC's asyncio support has one poller per process, and several loops
that read it wake each other in vain.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from pagewire_shared.errors import InternalError, PagewireError

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
        """Run `work` on the loop and return its result; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except InternalError:
            raise
        except (PagewireError, KeyboardInterrupt) as error:
            # The message says it all: the frames of the loop would hide the user's own line.
            raise error.with_traceback(None) from error.__cause__
        finally:
            future.cancel()  # has no effect on a future that is done

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run `work` on the loop and return at once; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def iterate(self, make: Callable[[], AsyncIterator[Item]]) -> Iterator[Item]:
        """Yield the items of `make()`, which runs on the loop; closing this iterator closes it."""

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
    """Return the process's loop thread, started on first use and again after a fork."""
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = (os.getpid(), LoopThread())
        return _shared[1]
