"""The connector to Pagewire's own KV stores, over gRPC.

It runs in the event loop of the worker: grpc.aio serves one loop per process well. A piece of 1 MiB
is about 0.1 ms of work here; whole payloads are checked in threads.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from pagewire_shared.errors import WireError
from pagewire_worker.offload.connector import (
    BlockLayout,
    BlockPlacement,
    LoadedBlock,
    OutgoingBlock,
)
from pagewire_worker.offload.kv_store_link import KvStoreLink
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.offload.placed_puts import PlacedPuts

STALL_SECONDS = 5.0
COPY_STALL_SECONDS = 2.0
"""Where there are several stores: what one does not take soon goes to another one."""


class KvStoreConnector:
    """See KvConnector.

    Args:
        stall_seconds: Longest time that a store may take to answer a put.
    """

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        self._stall_seconds = stall_seconds
        self._addresses: tuple[str, ...] = ()
        # Separate links, so that outgoing blocks do not delay incoming ones.
        self._put_links: dict[str, KvStoreLink] = {}
        self._get_links: dict[str, KvStoreLink] = {}
        self._placed = PlacedPuts({})

    @property
    def store_id(self) -> bytes:
        if len(self._addresses) > 1:
            return self._placed.store_id
        link = self._put_links.get(self._addresses[0]) if self._addresses else None
        return b"" if link is None else link.store_id

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        if self._addresses == tuple(addresses):
            return
        await self.close()
        self._addresses = tuple(addresses)
        message = layout_to_message(layout.of_one_group)
        stall_seconds = self._stall_seconds
        if len(self._addresses) > 1:
            stall_seconds = min(stall_seconds, COPY_STALL_SECONDS)
        for links in (self._put_links, self._get_links):
            for address in self._addresses:
                links[address] = KvStoreLink(address, message, stall_seconds)
                links[address].prepare()
        self._placed = PlacedPuts(self._put_links)

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        placed = [block for block in blocks if block.placement is not None]
        names: frozenset[bytes] = frozenset()
        if placed:
            names = await self._placed.put(placed)
        if len(placed) < len(blocks):
            others = [block for block in blocks if block.placement is None]
            names |= await self._link(self._put_links, self._addresses[0]).put(others)
        return names

    async def missing(self, blocks: Sequence[tuple[bytes, BlockPlacement]]) -> frozenset[bytes]:
        """See CopyingConnector."""
        return await self._placed.missing(blocks)

    async def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        link = self._link(self._get_links, address)
        async with aclosing(link.get(names, timeout_seconds)) as blocks:
            async for block in blocks:
                yield block

    async def close(self) -> None:
        links = [*self._put_links.values(), *self._get_links.values()]
        self._put_links, self._get_links, self._addresses = {}, {}, ()
        for link in links:
            await link.close()

    def _link(self, links: dict[str, KvStoreLink], address: str) -> KvStoreLink:
        if address not in links:
            raise WireError(f"kvstore_address: {address!r} was not in the welcome")
        return links[address]
