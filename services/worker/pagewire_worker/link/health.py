"""What a worker answers to health checks: attached, and getting on."""

import asyncio
import time

from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.server import RpcServer
from pagewire_worker.runner.model_thread import ModelThread

_LOOK_SECONDS = 0.1


class StuckWatch:
    """Whether a job of the model's thread gets on. Owns no clock: `now` is in seconds of one.

    Args:
        stuck_seconds: How long it may show no progress.
        now: The time of the start.
    """

    def __init__(self, stuck_seconds: float, now: float) -> None:
        self._stuck_seconds = stuck_seconds
        self._progress = 0
        self._since = now

    def is_stuck(self, now: float, progress: int, *, is_busy: bool) -> bool:
        """Return whether it is given up; a thread without a job is not stuck."""
        if not is_busy or progress != self._progress:
            self._progress = progress
            self._since = now
        return now - self._since > self._stuck_seconds


async def answer_liveness(
    server: RpcServer | None, context: ProcessContext, thread: ModelThread, stuck_seconds: float
) -> None:
    """Keep the answers about liveness true, to the parent's probes and of `server`. Runs until
    cancelled."""
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
    """Be ready while the scheduler has the worker and it has not been told to end. Runs until
    cancelled."""
    is_serving = False
    while True:
        wanted = attached.is_set() and not context.stop.is_set()
        if wanted is not is_serving:
            is_serving = wanted
            await server.set_serving(is_serving)
        await asyncio.sleep(_LOOK_SECONDS)
