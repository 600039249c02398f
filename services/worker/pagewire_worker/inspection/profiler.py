"""Profiles the next steps of a worker, in all its ranks, and keeps the trace until it is read."""

import asyncio
import base64
import contextlib
import itertools
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import (
    InvalidRequestError,
    OverloadedError,
    PagewireError,
    UnavailableError,
)
from pagewire_worker.inspection.rank_calls import RankCalls
from pagewire_worker.inspection.rank_profile import RankProfile
from pagewire_worker.inspection.trace import join_fragments

PART_BYTES: Final = 256 * 1024
"""Of a trace in one answer, which waits with tokens in the queue to the scheduler."""
POLL_SECONDS: Final = 5.0
"""Longest time until a reader hears that a trace is not there yet."""
BEGIN_SECONDS: Final = 2.0
"""Time for the ranks to begin or to end, beyond that of a step under way; torch is slow the first
time."""
MAKING_SECONDS: Final = 300.0
"""Time for the ranks to encode what they have."""
HELD_SECONDS: Final = 600.0
"""How long a trace is kept that no one reads."""


@dataclass(frozen=True, slots=True)
class TracePart:
    """A piece of a trace of `num_bytes` bytes; None in `data` says that it is not made yet."""

    profile_id: int
    num_bytes: int = 0
    data: bytes | None = None


class Profiler:
    """Makes one profile at a time. Its methods run on the event loop.

    Args:
        own: The profile of rank 0.
    """

    def __init__(self, calls: RankCalls, own: RankProfile) -> None:
        self._calls = calls
        self._own = own
        self._ids = itertools.count(1)
        self._profile_id = 0
        self._ends = asyncio.Event()
        self._task: asyncio.Task[bytes] | None = None
        self._late: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def start(self, num_steps: int, seconds: float) -> int:
        """Profile the next steps, for `seconds` at most; return the id of the profile.

        Raises:
            OverloadedError: Another profile is under way.
            UnavailableError: The model thread does not get to it.
        """
        if self._task is not None and not self._task.done():
            raise OverloadedError("it is being profiled; there is one profile at a time")
        self._forget()
        self._profile_id = next(self._ids)
        ends = self._ends = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._own.on_full = lambda: _set_soon(loop, ends)
        begun: asyncio.Future[None] = loop.create_future()
        task = self._task = asyncio.create_task(self._run(num_steps, seconds, begun))
        task.add_done_callback(lambda done: self._keep_for_a_while(done, begun))
        try:
            await begun
        except Exception:
            self._forget()
            raise
        return self._profile_id

    async def read(self, profile_id: int, offset: int, *, ends_profile: bool) -> TracePart:
        """Return the next piece of a trace. With the last piece the trace is forgotten.

        Args:
            profile_id: Of an earlier piece; 0 for the newest profile.
            offset: Bytes that were read already.
            ends_profile: End a profile that runs.

        Raises:
            InvalidRequestError: There is no profile.
            UnavailableError: It was ended, or there is another one by now.
            InternalError: The trace could not be made.
        """
        task = self._task
        if task is None:
            raise InvalidRequestError("there is no profile: none was started, or it was read")
        if profile_id not in (0, self._profile_id):
            raise UnavailableError("the profile was forgotten for a newer one")
        part = TracePart(self._profile_id)
        if ends_profile:
            self._ends.set()
        await asyncio.wait({task}, timeout=POLL_SECONDS)
        if not task.done():
            return part
        if task.cancelled():
            raise UnavailableError("the profile was ended and forgotten")
        try:
            trace = task.result()
        except Exception:
            self._forget()
            raise
        data = trace[offset : offset + PART_BYTES]
        if offset + len(data) >= len(trace):
            self._forget()
        return TracePart(part.profile_id, len(trace), data)

    async def drop(self, profile_id: int) -> None:
        """End and forget a profile, the newest one for 0; there may be none."""
        if self._task is not None and profile_id in (0, self._profile_id):
            self._forget()
            await self._drop_all()

    async def let_go(self) -> None:
        """End a profile that runs, and have all ranks forget what they have."""
        if self._task is not None:
            self.close()
            await self._drop_all()

    def close(self) -> None:
        """Stop waiting for anything."""
        self._forget()
        if self._late is not None:
            self._late.cancel()

    async def _run(self, num_steps: int, seconds: float, begun: "asyncio.Future[None]") -> bytes:
        await self._calls.call(
            "start_profile", seconds=BEGIN_SECONDS, kwargs={"most_steps": num_steps}
        )
        if not begun.done():
            begun.set_result(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ends.wait(), seconds)
        try:
            await self._calls.call("stop_profile", seconds=BEGIN_SECONDS)
        except UnavailableError:
            # It hangs in a step; so far there is what rank 0 has, and that step is unfinished.
            self._late = asyncio.create_task(self._drop_all())
            so_far = await asyncio.to_thread(self._own.so_far)
            return await asyncio.to_thread(join_fragments, [so_far])
        async with asyncio.timeout(MAKING_SECONDS):
            fragments = await self._fragments()
        await self._calls.call("drop_profile")
        return await asyncio.to_thread(join_fragments, fragments)

    async def _fragments(self) -> list[bytes]:
        """Return what the ranks have, once all have made it."""
        while None in (sizes := await self._calls.call("profile_size")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return [await self._fragment(rank, size) for rank, size in enumerate(sizes)]

    async def _fragment(self, rank: int, num_bytes: int) -> bytes:
        if rank == 0:
            return self._own.fragment
        data = bytearray()
        while len(data) < num_bytes:
            (piece,) = await self._calls.call(
                "read_profile", kwargs={"offset": len(data)}, unique_reply_rank=rank
            )
            data += base64.b64decode(piece)
        return bytes(data)

    async def _drop_all(self) -> None:
        # A worker that ends, or hangs for good, forgets by itself.
        with contextlib.suppress(PagewireError):
            await self._calls.call("drop_profile", seconds=MAKING_SECONDS)

    def _keep_for_a_while(self, task: "asyncio.Task[bytes]", begun: "asyncio.Future[None]") -> None:
        """Note that a profile is over."""
        error = None if task.cancelled() else task.exception()
        if not begun.done():
            begun.set_exception(error or UnavailableError("the profile was ended"))
        if self._task is task:
            self._expiry = task.get_loop().call_later(HELD_SECONDS, self._forget)

    def _forget(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of a loop from another thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
