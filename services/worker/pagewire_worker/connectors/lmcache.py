"""The connector to a server of LMCache: one entry per block, under a key of its layout and name."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from pagewire_shared.errors import DeadlineError, PagewireError, WireError
from pagewire_worker.connectors.damage import DamageLog
from pagewire_worker.connectors.envelope import HEADER_BYTES, layout_digest, pack, unpack
from pagewire_worker.connectors.lmcache_link import LmcacheLink
from pagewire_worker.connectors.lmcache_settings import LmcacheSettings
from pagewire_worker.connectors.lmcache_wire import key_of
from pagewire_worker.connectors.presence import PresenceCache
from pagewire_worker.offload.connector import BlockLayout, LoadedBlock, OutgoingBlock

TIER: Final = "lmcache"
ASK_SECONDS: Final = 0.25
"""How long the server may take to say which blocks it has: a request waits for it."""

ASK_NAMES: Final = 64
PUT_SECONDS: Final = 10.0
MAX_LOADS: Final = 4
MAX_PUTS: Final = 3
"""At once, each with a connection; further ones wait."""

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Asked for at once, but for a block that is larger."""

INLINE_BYTES: Final = 256 * 1024
"""Copied and verified in less time than another thread takes to start."""


class LmcacheConnector:
    """See KvConnector.

    Attributes:
        outside_store: Name of the store for the scheduler.
    """

    def __init__(self, settings: LmcacheSettings) -> None:
        self.outside_store = settings.store_name
        self._settings = settings
        self._presence = PresenceCache()
        self._damage = DamageLog(settings.store_name)
        self._layout = b""
        self._num_bytes = 0
        self._idle: list[LmcacheLink] = []
        self._put_turns = asyncio.Semaphore(MAX_PUTS)
        self._load_turns = asyncio.Semaphore(MAX_LOADS)
        self._num_losses = 0

    @property
    def store_id(self) -> bytes:
        """Another one after every failure: the server may have been started anew."""
        return self._num_losses.to_bytes(16, "little")

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        """Take the layout; connections are made when they are needed."""
        self._layout = layout_digest(layout)
        self._num_bytes = HEADER_BYTES + layout.bytes_per_block

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Store blocks, and return the names of those that the server has."""
        stored = {block.name for block in blocks if self._presence.find(block.name)}
        wanted = [block for block in blocks if block.name not in stored]
        for start in range(0, len(wanted), ASK_NAMES):
            some = wanted[start : start + ASK_NAMES]
            async with self._link(self._put_turns, PUT_SECONDS) as link:
                for block in some:
                    await link.put(key_of(self._layout, block.name), await self._packed(block))
                stored |= await self._ask(link, [block.name for block in some])
        return frozenset(stored)

    async def _packed(self, block: OutgoingBlock) -> memoryview:
        data = memoryview(bytearray(self._num_bytes))
        copy = partial(pack, self._layout, block.name, block.payload, data)
        if len(data) <= INLINE_BYTES:
            copy()
        else:
            await asyncio.to_thread(copy)  # if that is cancelled, `data` is not sent
        return data

    async def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks up to the first that is missing, damaged or another one."""
        end = time.monotonic() + timeout_seconds
        num_there = await self._num_there(names, min(timeout_seconds, ASK_SECONDS))
        step = max(1, WINDOW_BYTES // self._num_bytes)
        for start in range(0, num_there, step):
            wanted = names[start : min(start + step, num_there)]
            blocks = await self._get_some(wanted, end - time.monotonic())
            for block in blocks:
                yield block
            if len(blocks) < len(wanted):
                return

    async def _get_some(self, names: Sequence[bytes], seconds: float) -> list[LoadedBlock]:
        """Return blocks up to the first that is missing, damaged or another one."""
        blocks: list[LoadedBlock] = []
        async with self._link(self._load_turns, seconds) as link:
            link.begin_get([key_of(self._layout, name) for name in names])
            for name in names:
                try:
                    data = await link.get(self._num_bytes)
                except WireError:
                    self._refuse(name)
                    link.close()
                    break
                payload = await self._opened(name, data)
                if payload is None:
                    link.close()  # with the answers that are still to come
                    break
                blocks.append(LoadedBlock(name, payload, TIER))
        return blocks

    async def _opened(self, name: bytes, data: bytes | None) -> memoryview | None:
        if data is None:
            self._presence.note([name], is_there=False)
            return None
        view = memoryview(data)
        if len(data) <= INLINE_BYTES:
            payload = unpack(self._layout, name, view)
        else:
            payload = await asyncio.to_thread(unpack, self._layout, name, view)
        if payload is None:
            self._refuse(name)
        return payload

    def _refuse(self, name: bytes) -> None:
        """Note a damaged block: the next put of it replaces it."""
        self._presence.note([name], is_there=False)
        self._damage.note([name])

    async def _num_there(self, names: Sequence[bytes], seconds: float) -> int:
        """Return the number of leading names that the server has."""
        end = time.monotonic() + seconds
        num_there, is_missing = self._presence.num_there(names)
        while num_there < len(names) and not is_missing:
            async with self._link(self._load_turns, end - time.monotonic()) as link:
                await self._ask(link, names[num_there : num_there + ASK_NAMES])
            num_there, is_missing = self._presence.num_there(names)
        return num_there

    async def _ask(self, link: LmcacheLink, names: Sequence[bytes]) -> set[bytes]:
        answers = await link.exist([key_of(self._layout, name) for name in names])
        there = {name for name, is_there in zip(names, answers, strict=True) if is_there}
        self._presence.note(there, is_there=True)
        self._presence.note((name for name in names if name not in there), is_there=False)
        return there

    @asynccontextmanager
    async def _link(self, turns: asyncio.Semaphore, seconds: float) -> AsyncIterator[LmcacheLink]:
        """Yield a connection for at most `seconds`; it is kept only if all went well."""
        try:
            async with asyncio.timeout(max(0.0, seconds)), turns:
                link = self._idle_link() or await self._connect()
                try:
                    yield link
                except BaseException:
                    link.close()
                    raise
                if link.is_open:
                    self._idle.append(link)
        except TimeoutError as error:
            self._lost()
            raise DeadlineError(f"the LMCache server took longer than {seconds:.3g} s") from error
        except PagewireError:
            self._lost()
            raise

    def _idle_link(self) -> LmcacheLink | None:
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
        return None

    async def _connect(self) -> LmcacheLink:
        return await LmcacheLink.connect(self._settings.host, self._settings.port)

    def _lost(self) -> None:
        """Forget what was known; idle connections lead to a server that may have ended."""
        self._num_losses += 1
        self._presence.forget()
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    async def close(self) -> None:
        """Close the connections."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()
