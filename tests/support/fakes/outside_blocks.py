"""Puts blocks through a connector to a store of another project, and gets them back."""

from collections.abc import Sequence
from contextlib import aclosing

from pagewire_worker.connectors.lmcache import LmcacheConnector
from pagewire_worker.connectors.mooncake import MooncakeConnector
from pagewire_worker.offload.connector import OutgoingBlock
from support.fakes.damaged_entries import Block

Connector = LmcacheConnector | MooncakeConnector


async def put(connector: Connector, blocks: Sequence[Block]) -> frozenset[bytes]:
    """Return the names that the store has now."""
    outgoing = [OutgoingBlock(one.name, None, memoryview(one.payload)) for one in blocks]
    return await connector.put(outgoing)


async def found(
    connector: Connector, blocks: Sequence[Block], seconds: float = 5.0
) -> list[tuple[bytes, bytes, str]]:
    """Return name, payload and tier of what comes back."""
    names = [one.name for one in blocks]
    async with aclosing(connector.get(connector.outside_store, names, seconds)) as loaded:
        return [(one.name, bytes(one.payload), one.tier) async for one in loaded]
