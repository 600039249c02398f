"""A client of the group: asks, is disconnected, and reads on at whichever frontend is there, until
it has the whole stream."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from simulation.group.answers import ModelSource
from simulation.group.members import GroupProcess
from simulation.group.world import GroupWorld

from pagewire_frontend.access.api_keys import current_tenant, digest_of, set_caller
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.ids import StreamLostError, StreamNotFoundError
from pagewire_frontend.http.kept_streams.keyed_streams import RequestKey
from pagewire_shared.errors import UnavailableError

KEYS = ("sk-first-0000000", "sk-second-000000")
RETRY_SECONDS = (0.01, 0.5)
LONG_PAUSE = 4.0


class GroupReader:
    """One client.

    Attributes:
        is_over: Whether it has all, or was told for a good reason that there is no more.
        kind: How it ended.
    """

    def __init__(self, world: GroupWorld, asked: Mapping[str, Any]) -> None:
        self._world = world
        self._key: str | None = asked["key"]
        self._api_key = digest_of(KEYS[asked["tenant"]])
        self._other = digest_of(KEYS[1 - asked["tenant"]])
        self._asked = {name: asked[name] for name in ("seed", "num_tokens", "num_choices")}
        self._body = json.dumps({**self._asked, "prompt": asked["prompt"]}).encode()
        self._stream_id: str | None = None
        self._next = 0
        self.is_over = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        await self._read_all()
        if self._stream_id is not None and self.is_over:
            if self._world.configuration.is_exact and self._asked["seed"] is not None:
                self._world.check_tokens(self._stream_id, **self._asked)
            await asyncio.sleep(self._world.draw.uniform(0.0, LONG_PAUSE))
            # Once more, from the beginning.
            self._next, self.is_over, self._key = 0, False, None
            await self._read_all()
        self.is_over = True

    async def _read_all(self) -> None:
        world = self._world
        while not self.is_over:
            process = world.draw.choice(list(world.alive.values()))
            task = process.spawn(self._handle(process))
            await asyncio.wait({task, process.death}, return_when=asyncio.FIRST_COMPLETED)
            if process.is_dead or not task.done():
                task.cancel()
            elif task.exception() is not None:
                self._check_error(task.exception())
            if not self.is_over:
                await asyncio.sleep(world.draw.uniform(*RETRY_SECONDS))

    def _check_error(self, error: BaseException | None) -> None:
        world, stream_id = self._world, self._stream_id
        match error:
            case UnavailableError():
                return
            case StreamNotFoundError() if stream_id is not None:
                may_be_gone = not world.is_left(stream_id) and not world.is_gentle
                world.require("streams_survive", may_be_gone, f"{stream_id} is not found")
            case StreamLostError() if stream_id is not None:
                may_be_lost = not world.configuration.is_exact and not world.is_held(stream_id)
                world.require("streams_survive", may_be_lost, f"{stream_id} is given up")
            case _:
                world.require("each_event_once", False, f"an answer fails with {error!r}")
        world.counts["streams lost"] += 1
        self._stream_id, self.is_over = None, True

    async def _handle(self, process: GroupProcess) -> None:
        """Serve one connection of the client, in a frontend."""
        world = self._world
        set_caller(world.keys.caller_of(self._api_key))
        if self._key is not None or self._stream_id is None:
            reading = await self._posted(process)
        else:
            reading = await process.streams.read(self._stream_id, current_tenant(), self._next)
        most = world.draw.choice([1, 3, 8, 10**6])
        try:
            async for ready in reading.frames:
                for frame in ready:
                    await asyncio.sleep(world.draw.choice([0.0, 0.0, 0.01, 0.5]))
                    if process.is_dead or not self._takes(frame):
                        return
                    most -= 1
                    if self.is_over or not most:
                        return
        finally:
            reading.close()

    async def _posted(self, process: GroupProcess) -> StreamReading:
        source, tenant = ModelSource(process, self._body), current_tenant()
        if self._key is None:
            found = await process.keyed.make(source, tenant)
        else:
            found = await process.keyed.read(RequestKey(self._key, tenant, b"d" * 32), source)
        if process.is_dead:
            raise UnavailableError("the connection is gone")
        world = self._world
        if self._key is not None:
            known = world.key_streams.setdefault(self._key, found.stream_id)
            is_same = known == found.stream_id
            # One without a reader for long is gone, and one that is not exact may be given up.
            is_exact = world.configuration.is_exact
            may_differ = not (is_exact and world.is_gentle and world.is_left(known))
            world.require("keys_once", is_same or may_differ, f"{self._key} has two streams")
            world.key_streams[self._key] = found.stream_id
        self._stream_id, self._next = found.stream_id, 0
        return found.reading

    def _takes(self, frame: bytes) -> bool:
        """Take an event; False for one that says to ask again."""
        head, _, data = frame.partition(b"\n")
        if not head.startswith(b"id: "):
            return False
        world, stream_id = self._world, self._stream_id
        assert stream_id is not None
        wanted = f"id: {stream_id}:{self._next}".encode()
        world.require("each_event_once", head == wanted, f"{head!r} instead of {wanted!r}")
        is_fine = b'"error"' not in data
        world.require("each_event_once", is_fine, f"a stream ends with {data!r}")
        world.saw(stream_id, self._next, frame)
        self._next += 1
        self.is_over = data.strip() == b"data: done"
        return True

    async def probe(self) -> None:
        """Ask for the stream as another tenant."""
        stream_id, world = self._stream_id, self._world
        if stream_id is None:
            return
        process = world.draw.choice(list(world.alive.values()))

        async def ask() -> None:
            set_caller(world.keys.caller_of(self._other))
            reading = await process.streams.read(stream_id, current_tenant(), 0)
            reading.close()

        task = process.spawn(ask())
        await asyncio.wait({task, process.death}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            error = task.exception()
            is_apart = isinstance(error, StreamNotFoundError | UnavailableError)
            world.require("tenants_apart", is_apart, f"another tenant reads {stream_id}")
