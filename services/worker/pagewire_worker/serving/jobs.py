"""Runs endless jobs until one fails, or something else ends them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def first_failure(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run endless jobs; the first exception of one ends all."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job)


async def until_stopped(
    job: Coroutine[Any, Any, Any],
    stop: asyncio.Event,
    farewell: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Any:
    """Return the result of `job`, or None if `stop` is set first; `farewell` runs before that."""
    task = asyncio.ensure_future(job)
    waiter = asyncio.ensure_future(stop.wait())
    await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not task.done() and farewell is not None:
        leaving = asyncio.ensure_future(farewell())
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        return None
    return _result(task)


async def run_beside(jobs: list[Coroutine[Any, Any, None]], main: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of `main`, and end the endless `jobs` then. Raises the first failure."""
    beside = asyncio.ensure_future(first_failure(*jobs))
    task = asyncio.ensure_future(main)
    try:
        await asyncio.wait((task, beside), return_when=asyncio.FIRST_COMPLETED)
        return _result(task if task.done() else beside)
    finally:
        for one in (task, beside):
            one.cancel()
        await asyncio.wait((task, beside))


def _result(task: "asyncio.Future[Any]") -> Any:
    try:
        return task.result()
    except BaseExceptionGroup as group:
        # A task group wraps the errors of its jobs; the process needs the first one itself.
        raise group.exceptions[0] from group
