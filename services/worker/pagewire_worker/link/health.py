"""Answers health checks of a worker: whether it is attached, and whether it makes progress."""

import asyncio
import time

from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.server import RpcServer
from pagewire_worker.runner.model_thread import ModelThread

_LOOK_SECONDS = 0.1


class StuckWatch:
    """Finds out whether a job of the model thread makes progress.

    Args:
        stuck_seconds: Longest time without progress.
        now: Time of the start, in seconds of the clock that `is_stuck` gets.
    """

    def __init__(self, stuck_seconds: float, now: float) -> None:
        self._stuck_seconds = stuck_seconds
        self._progress = 0
        self._since = now

    def is_stuck(self, now: float, progress: int, *, is_busy: bool) -> bool:
        """Return whether the job is stuck; a thread without a job is not stuck."""
        if not is_busy or progress != self._progress:
            self._progress = progress
            self._since = now
        return now - self._since > self._stuck_seconds


async def answer_liveness(
    server: RpcServer | None, context: ProcessContext, thread: ModelThread, stuck_seconds: float
) -> None:
    """Keep the answers about liveness up to date, for the parent's probes and `server`.

    Runs until cancelled.
    """
    watch = StuckWatch(stuck_seconds, time.monotonic())
    while True:
        now = time.monotonic()
        if watch.is_stuck(now, thread.progress, is_busy=thread.is_busy) is context.is_alive:
            context.is_alive = not context.is_alive
            if server is not None:
                await server.set_alive(context.is_alive)
        await asyncio.sleep(_LOOK_SECONDS)


async def answer_readiness(
    server: RpcServer, attached: asyncio.Event, context: ProcessContext
) -> None:
    """Be ready while the worker is attached and no stop was requested. Runs until cancelled."""
    is_serving = False
    while True:
        wanted = attached.is_set() and not context.stop.is_set()
        if wanted is not is_serving:
            is_serving = wanted
            await server.set_serving(is_serving)
        await asyncio.sleep(_LOOK_SECONDS)
