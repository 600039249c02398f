"""Runs many calls of the offline API with bounded concurrency, and retries when a frontend dies."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pagewire.client.client import AsyncClient
from pagewire_shared.errors import UnavailableError

MAX_ATTEMPTS = 3
"""Most attempts for a prompt whose frontend dies, because the journal dies with it."""

CONNECT_SECONDS = 10.0

Result = TypeVar("Result")


async def with_attempts(client: AsyncClient, ask: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `ask`; call it again when the server went away meanwhile.

    Raises:
        UnavailableError: The server was away MAX_ATTEMPTS times, or did not come back.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return await ask()
        except UnavailableError:
            if attempt == MAX_ATTEMPTS:
                raise
            await client.wait_connected(CONNECT_SECONDS)
    raise AssertionError("unreachable")


async def run_bounded(
    works: Sequence[Coroutine[Any, Any, Result]],
    concurrency: int,
    advance: Callable[[], object],
) -> list[Result]:
    """Run `works`, at most `concurrency` at once; the first error cancels all others.

    Results are in the order of the works; `advance` is called after each.
    """
    bound = asyncio.Semaphore(concurrency)

    async def run(work: Coroutine[Any, Any, Result]) -> Result:
        async with bound:
            result = await work
        advance()
        return result

    tasks = [asyncio.ensure_future(run(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for work in works:
            work.close()  # for works that never began
