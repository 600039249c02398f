"""Finds kept streams over the whole group, and has those of lost frontends made again."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from pagewire_frontend.group.asking import first_answer, path_before, path_of
from pagewire_frontend.group.holders import maker_of
from pagewire_frontend.group.membership import Membership
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.ids import (
    StreamElsewhereError,
    StreamNotFoundError,
    stream_elsewhere,
    stream_not_found,
    tag_of_stream,
)
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import TAKEOVERS, Recipe, RecipeStore
from pagewire_shared.errors import PagewireError, UnavailableError

NOT_FOUND: Final = StreamNotFoundError.status_name

SPARE_HOLDERS: Final = 2
"""Members that are asked beyond those that keep recipes: some may have been away when the stream
began."""

MAX_LOSSES: Final = 3
"""Frontends that a reading loses in a row, after which it ends."""

TakeOver = Callable[[Recipe], KeptStream]
"""Begins a stream again, under its id."""


class HeldStreams:
    """The streams of one process, and those that it makes again from recipes."""

    def __init__(self, local: LocalStreams, recipes: RecipeStore) -> None:
        self.local = local
        self._recipes = recipes
        self.take_over: TakeOver | None = None
        """Set once requests can be served."""

    def has(self, stream_id: str) -> bool:
        """Whether a stream is here, or can only be here."""
        return self.local.is_own(stream_id) or self.local.find(stream_id) is not None

    def can_make(self, stream_id: str, tenant: str | None) -> bool:
        """Whether the stream could be made again here."""
        return self.take_over is not None and self._recipes.find(stream_id, tenant) is not None

    def maker_name(self, stream_id: str) -> str:
        """Return who made a stream again, as far as its recipe here says so; else empty."""
        return self._recipes.maker_name(stream_id)

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream, which is made again if it is not here.

        Raises:
            StreamElsewhereError: There is no recipe of it.
            StreamNotFoundError: See StreamDirectory.
            UnavailableError: Its recipe is on the way to the frontend that comes first.
        """
        stream = self.local.find(stream_id)
        if stream is None and not self.local.is_own(stream_id):
            # From here to the new stream nothing waits: one process makes it once.
            recipe = self._recipes.find(stream_id, tenant)
            if recipe is None or self.take_over is None:
                raise stream_elsewhere(stream_id)
            if self._recipes.is_moving(stream_id):
                raise UnavailableError("the stream moves to another frontend", retry_after_ms=0)
            self.take_over(recipe)
        reading = await self.local.read(stream_id, tenant, first)
        made = self.local.find(stream_id)
        if made is None or self.local.is_own(stream_id):
            return reading
        return StreamReading(self._made(made, reading), reading.close)

    async def make(self, stream_id: str, tenant: str | None) -> None:
        """Return once a stream has an event that is made again here. Raises as `read`."""
        reading = await self.read(stream_id, tenant, 0)
        try:
            await anext(reading.frames, None)
        finally:
            reading.close()

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a stream that is here, and forget it and its recipe. Raises as `read`."""
        had_recipe = self._recipes.remove(stream_id, tenant)
        try:
            await self.local.forget(stream_id, tenant)
        except StreamElsewhereError:
            if not had_recipe:
                raise

    async def _made(self, stream: KeptStream, reading: StreamReading) -> AsyncIterator[list[bytes]]:
        async for ready in reading.frames:
            yield ready
        if not len(stream.log):
            # What failed before its first event may be tried again.
            self.local.drop(stream)
            TAKEOVERS.labels("failed").inc()
            raise stream.error or UnavailableError("the server stops")


class PeerStreams:
    """The StreamDirectory of questions that peers ask: of what is here, or is to be made again here
    because those that come first do not have it."""

    def __init__(self, name: str, held: HeldStreams, peers: Mapping[str, StreamDirectory]) -> None:
        self._name = name
        self._held = held
        self._peers = peers

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream; see HeldStreams.read."""
        if not self._held.has(stream_id) and self._held.can_make(stream_id, tenant):
            # The one that asks may not reach them while they are there.
            with suppress(StreamElsewhereError, UnavailableError):
                return await first_answer(
                    stream_id,
                    path_before(
                        stream_id, self._name, self._peers, self._held.maker_name(stream_id)
                    ),
                    lambda name: self._peers[name].read(stream_id, tenant, first),
                )
        return await self._held.read(stream_id, tenant, first)

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a stream that is here; see HeldStreams.forget."""
        await self._held.forget(stream_id, tenant)


class StreamFinder:
    """A StreamDirectory over the whole group: asks the process that made a stream, and where it is
    gone those that keep its recipe."""

    def __init__(
        self,
        membership: Membership,
        held: HeldStreams,
        peers: Mapping[str, StreamDirectory],
        *,
        num_replicas: int,
    ) -> None:
        """Create the directory of one process.

        Args:
            peers: Directories by name.
            num_replicas: How many members keep the recipe of a stream.
        """
        self._members: dict[str, StreamDirectory] = {membership.name: held, **peers}
        self._held = held
        self._most = num_replicas + SPARE_HOLDERS if num_replicas else 0

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream from event number `first` on.

        Raises:
            StreamNotFoundError: No process keeps it.
            StreamLostError: Its process is gone, and its tokens may differ when made again.
            UnavailableError: A peer that may keep it does not answer.
        """
        if self._held.has(stream_id):
            return await self._held.read(stream_id, tenant, first)
        if tag_of_stream(stream_id) is None:
            raise stream_not_found(stream_id)
        return await FollowedReading(partial(self._open, stream_id, tenant), first).begun()

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a stream wherever it is, and forget its recipes. Raises as `read`."""
        if tag_of_stream(stream_id) is None:
            raise stream_not_found(stream_id)
        away: UnavailableError | None = None
        is_found = False
        for name in self.path(stream_id):
            try:
                await self._members[name].forget(stream_id, tenant)
                is_found = True
            except (StreamElsewhereError, StreamNotFoundError):
                continue
            except UnavailableError as error:
                away = error
        if not is_found:
            raise away or stream_not_found(stream_id)

    def path(self, stream_id: str) -> list[str]:
        """Return the names of the members that are asked for a stream, in their order."""
        path = path_of(stream_id, self._members, self._held.maker_name(stream_id))
        return path[: 1 + self._most]

    async def _open(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        maker = maker_of(stream_id, self._members)

        async def ask(name: str) -> StreamReading:
            reading = await self._members[name].read(stream_id, tenant, first)
            # Making it may fail: the reader is to get that as its status.
            return reading if name == maker else await _begun(reading)

        try:
            return await first_answer(stream_id, self.path(stream_id), ask)
        except StreamElsewhereError:
            raise stream_not_found(stream_id) from None


async def _begun(reading: StreamReading) -> StreamReading:
    """Return a reading with its first events, if it has any."""
    try:
        first = await anext(reading.frames, None)
    except BaseException:
        reading.close()
        raise
    return StreamReading(_joined(first, reading.frames), reading.close)


async def _joined(
    first: list[bytes] | None, rest: AsyncIterator[list[bytes]]
) -> AsyncIterator[list[bytes]]:
    if first is not None:
        yield first
        async for ready in rest:
            yield ready


class FollowedReading:
    """A reading that goes on elsewhere when its frontend is lost meanwhile."""

    def __init__(self, open_at: Callable[[int], Awaitable[StreamReading]], first: int) -> None:
        """Create it.

        Args:
            open_at: Begins to read from a number on.
        """
        self._open_at = open_at
        self._first = first
        self._current: StreamReading | None = None
        self._is_closed = False
        self._num_losses = 0
        """Losses in a row, without an event between them."""

    async def begun(self) -> StreamReading:
        """Return it, once the stream is found."""
        self._current = await self._open_at(self._first)
        return StreamReading(self._frames(self._current), self._close)

    async def _frames(self, current: StreamReading) -> AsyncIterator[list[bytes]]:
        while True:
            try:
                async for ready in current.frames:
                    self._first += len(ready)
                    self._num_losses = 0
                    yield ready
                return
            except UnavailableError as lost:
                current = await self._go_on(current, lost)

    async def _go_on(self, current: StreamReading, lost: UnavailableError) -> StreamReading:
        current.close()
        self._num_losses += 1
        if self._num_losses > MAX_LOSSES:
            raise lost
        try:
            found = await self._open_at(self._first)
        except PagewireError as error:
            if error.status_name != NOT_FOUND:
                raise
            # The frontend is lost with its stream, which the reader knows to have been there.
            raise lost from None
        if self._is_closed:
            found.close()
            raise lost
        self._current = found
        return found

    def _close(self) -> None:
        self._is_closed = True
        if self._current is not None:
            self._current.close()
