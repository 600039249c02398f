"""The connector to a Mooncake Store: the worker is one of its clients, and lends memory to it.

Blocks of one layout and name have one key, so all cells of one model share them. The library
blocks: its calls run in threads, with deadlines.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_worker.connectors.damage import DamageLog
from pagewire_worker.connectors.envelope import HEADER_BYTES, layout_digest, pack, unpack
from pagewire_worker.connectors.mooncake_client import (
    LibraryClient,
    MooncakeClient,
    import_library,
)
from pagewire_worker.connectors.mooncake_settings import MooncakeSettings
from pagewire_worker.connectors.presence import PresenceCache
from pagewire_worker.connectors.reconnection import Reconnection
from pagewire_worker.offload.blocking_calls import BlockingCalls
from pagewire_worker.offload.connector import BlockLayout, LoadedBlock, OutgoingBlock

TIER: Final = "mooncake"
BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Blocks of one call, but for a block that is larger."""

ASK_SECONDS: Final = 0.25
"""How long the master may take to say which blocks are there: a request waits for it."""

ASK_NAMES: Final = 256
PUT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
_SLOT_ALIGNMENT: Final = 64

# Of the library, see its error codes.
_NOT_FOUND: Final = -704
_TOO_LONG: Final = -600  # for the memory that it is to be copied to
_NO_ROOM: Final = (-200, -201)

Item = TypeVar("Item")
Result = TypeVar("Result")

MakeClient = Callable[[MooncakeSettings, int], MooncakeClient]
_Piece = list[tuple[bytes, bytes | None]]
"""Names with their payloads, None for what is missing."""


class MooncakeConnector:
    """See KvConnector.

    Args:
        make_client: Makes a client with buffers of so many bytes, in a thread.

    Attributes:
        outside_store: Name of the store for the scheduler.
    """

    def __init__(self, settings: MooncakeSettings, make_client: MakeClient | None = None) -> None:
        if make_client is None:
            import_library()
        self.outside_store = settings.store_name
        self._settings = settings
        self._make_client = make_client or _with_library
        self._calls = BlockingCalls("the Mooncake store")
        self._link = Reconnection(self._calls, self._open)
        self._presence = PresenceCache()
        self._damage = DamageLog(settings.store_name)
        self._layout = b""
        self._slot = 0
        self._loop: asyncio.AbstractEventLoop
        self._free: asyncio.Queue[int] = asyncio.Queue()

    @property
    def store_id(self) -> bytes:
        """Another one after every failure: the store may have been started anew."""
        return self._link.num_losses.to_bytes(16, "little")

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        """Connect in the background; `addresses` has the outside store alone."""
        self._layout = layout_digest(layout)
        size = HEADER_BYTES + layout.bytes_per_block
        self._slot = -(-size // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT
        self._loop = asyncio.get_running_loop()
        self._link.begin()

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Store blocks, and return the names of those that the store has."""
        stored = {block.name for block in blocks if self._presence.find(block.name)}
        client = await self._link.client(PUT_SECONDS)
        wanted = [block for block in blocks if block.name not in stored]
        errors: set[int] = set()
        for piece in self._pieces(wanted):
            try:
                statuses = await self._put_piece(client, piece)
            except PagewireError:
                self._lost()
                raise
            names = [
                block.name for block, status in zip(piece, statuses, strict=True) if not status
            ]
            self._presence.note(names, is_there=True)
            stored.update(names)
            errors.update(status for status in statuses if status)
        if errors and not stored and not errors <= set(_NO_ROOM):
            self._lost()
            raise UnavailableError(f"the Mooncake store takes no block: error {min(errors)}")
        return frozenset(stored)

    async def _put_piece(
        self, client: MooncakeClient, piece: Sequence[OutgoingBlock]
    ) -> Sequence[int]:
        buffer = await self._take_buffer(PUT_SECONDS)
        # Payloads may change once `put` has ended, so nothing is sent of a copy that was cut off.
        copied = self._calls.begin(partial(self._copy, client, buffer, piece))
        try:
            sizes = await asyncio.shield(copied)
        except BaseException:
            copied.add_done_callback(lambda _: self._free.put_nowait(buffer))
            raise
        keys = [self._key(block.name) for block in piece]
        call = partial(client.put, buffer, keys, self._slot, sizes)
        return await self._calls.run(self._giving_back(buffer, call), PUT_SECONDS)

    def _copy(
        self, client: MooncakeClient, buffer: int, piece: Sequence[OutgoingBlock]
    ) -> list[int]:
        target = client.buffers[buffer]
        return [
            pack(self._layout, block.name, block.payload, target[index * self._slot :])
            for index, block in enumerate(piece)
        ]

    async def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks up to the first that is missing, damaged or another one."""
        end = time.monotonic() + timeout_seconds
        try:
            client = await self._link.client(min(timeout_seconds, ASK_SECONDS))
            num_there = await self._num_there(client, names, min(timeout_seconds, ASK_SECONDS))
        except PagewireError:
            self._lost()
            raise
        pieces = list(self._pieces(names[:num_there]))
        ahead = [asyncio.ensure_future(self._get_piece(client, one, end)) for one in pieces[:1]]
        try:
            for at in range(len(pieces)):
                piece = await ahead.pop()
                if at + 1 < len(pieces):
                    following = self._get_piece(client, pieces[at + 1], end)
                    ahead.append(asyncio.ensure_future(following))
                for name, payload in piece:
                    if payload is None:
                        return
                    yield LoadedBlock(name, payload, TIER)
        except PagewireError:
            self._lost()
            raise
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def _get_piece(
        self, client: MooncakeClient, names: Sequence[bytes], end: float
    ) -> _Piece:
        buffer = await self._take_buffer(end - time.monotonic())
        call = self._giving_back(buffer, partial(self._read, client, buffer, names))
        piece, damaged = await self._calls.run(call, end - time.monotonic())
        if damaged:
            self._presence.note(damaged, is_there=False)
            self._damage.note(damaged)
            keys = [self._key(name) for name in damaged]
            # A key keeps its first value: without this no good block would take its place.
            with suppress(UnavailableError):
                self._calls.begin(partial(client.remove, keys))
        self._presence.note([n for n, payload in piece if payload is None], is_there=False)
        return piece

    def _read(
        self, client: MooncakeClient, buffer: int, names: Sequence[bytes]
    ) -> tuple[_Piece, list[bytes]]:
        """Return blocks, and the names of those that are not what they should be."""
        sizes = client.get(buffer, [self._key(name) for name in names], self._slot)
        view, piece, damaged = client.buffers[buffer], [], []
        for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
            if size < 0 and size not in (_NOT_FOUND, _TOO_LONG) and max(sizes) < 0:
                raise UnavailableError(f"the Mooncake store gives no block: error {size}")
            data = view[index * self._slot : index * self._slot + max(0, size)]
            payload = unpack(self._layout, name, data)
            if payload is None and (size >= 0 or size == _TOO_LONG):
                damaged.append(name)
            piece.append((name, None if payload is None else bytes(payload)))
        return piece, damaged

    async def _num_there(
        self, client: MooncakeClient, names: Sequence[bytes], seconds: float
    ) -> int:
        """Return the number of leading names that the store has."""
        end = time.monotonic() + seconds
        num_there, is_missing = self._presence.num_there(names)
        while num_there < len(names) and not is_missing:
            asked = names[num_there : num_there + ASK_NAMES]
            keys = [self._key(name) for name in asked]
            answers = await self._calls.run(partial(client.exist, keys), end - time.monotonic())
            if min(answers) < 0:
                raise UnavailableError(f"the Mooncake master answers with error {min(answers)}")
            for is_there in (True, False):
                known = [name for name, one in zip(asked, answers, strict=True) if one == is_there]
                self._presence.note(known, is_there=is_there)
            num_there, is_missing = self._presence.num_there(names)
        return num_there

    async def close(self) -> None:
        """Take back the memory that was lent to the store."""
        await self._link.close(CLOSE_SECONDS)

    def _open(self) -> MooncakeClient:
        client = self._make_client(self._settings, max(BUFFER_BYTES, self._slot))
        for buffer in range(len(client.buffers)):
            self._loop.call_soon_threadsafe(self._free.put_nowait, buffer)
        return client

    def _lost(self) -> None:
        self._link.num_losses += 1
        self._presence.forget()

    def _key(self, name: bytes) -> str:
        return f"pagewire/{self._layout.hex()}/{name.hex()}"

    def _pieces(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        step = max(1, BUFFER_BYTES // self._slot)
        for start in range(0, len(items), step):
            yield items[start : start + step]

    async def _take_buffer(self, seconds: float) -> int:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._free.get()
        except TimeoutError as error:
            raise DeadlineError("the Mooncake store is slow: all buffers are in use") from error

    def _giving_back(self, buffer: int, call: Callable[[], Result]) -> Callable[[], Result]:
        """Return `call` so that the buffer is free when it has ended, however late."""
        loop = asyncio.get_running_loop()

        def wrapped() -> Result:
            try:
                return call()
            finally:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._free.put_nowait, buffer)

        return wrapped


def _with_library(settings: MooncakeSettings, buffer_bytes: int) -> MooncakeClient:
    return LibraryClient(settings, buffer_bytes)
