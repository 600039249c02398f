"""A scheduler in the test's own process, on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker

from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.service import create_loop, start, watch_stores
from pagewire_shared.errors import UnavailableError


async def eventually(is_so: Callable[[], bool]) -> None:
    """Poll what nobody announces, for 10 s at most."""
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


@dataclass
class RunningScheduler:
    address: str
    loop: StepLoop


@asynccontextmanager
async def running_scheduler(folder: Path, **changes: object) -> AsyncIterator[RunningScheduler]:
    config = SchedulerConfig(listen=f"unix:{folder}/scheduler.sock", **changes)  # type: ignore[arg-type]
    loop = create_loop(config)
    server = await start(config, loop)
    tasks = [asyncio.create_task(loop.run_clock()), *watch_stores(config, loop)]
    try:
        yield RunningScheduler(str(server.address), loop)
        if loop.driven.failure.done():
            loop.driven.failure.result()
    finally:
        for task in tasks:
            task.cancel()
        await server.stop(0)


@asynccontextmanager
async def attached(
    worker: ScriptedWorker, *, is_open: bool = True
) -> AsyncIterator[ScriptedWorker]:
    if is_open:
        worker.gate.set()
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, UnavailableError):
            await task


@asynccontextmanager
async def frontend_of(scheduler: RunningScheduler) -> AsyncIterator[ScriptedFrontend]:
    frontend = ScriptedFrontend(scheduler.address)
    await frontend.attach()
    try:
        yield frontend
    finally:
        await frontend.detach()


async def quiet(scheduler: RunningScheduler) -> None:
    """Wait until no step is under way."""
    await eventually(
        lambda: not (any(worker.outstanding for worker in scheduler.loop.core.workers.values()))
    )
