"""Blocks that were forged in memory, on disk and in Redis, with right checksums, by something that
has not the key of the cell: none is served."""

import asyncio
import collections
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from pagewire_kvstore.blocks.types import BlockRecord
from pagewire_kvstore.tiers.record_codec import decode_record, encode_record
from pagewire_shared.kv.checksum import crc32c
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.sealed_connector import NUM_SEAL_BYTES, SealedConnector
from support.cells.kv_cells import PATIENCE_SECONDS
from support.processes.damaged_wire import AT_A_TIME, LAYOUT, NUM_BYTES, make_blocks
from support.processes.forged_blocks import FORGERS, KEY
from support.processes.kv_stores import KvStore, RedisServer, tier_stats
from support.processes.store_records import Files, Values, by_name
from support.products import WHOLE

SEALED_BYTES = NUM_BYTES + NUM_SEAL_BYTES
NUM_IN_MEMORY = 32
NUM_BELOW = 40
COUNTS = [
    40,
    pytest.param(3400, marks=[*WHOLE, pytest.mark.timeout(300)]),
]


class Cell:
    """A worker with the key, and something that may write to its store without it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.worker = SealedConnector(KvStoreConnector(), [KEY])
        self.intruder = KvStoreConnector()
        self.dice = random.Random(address)

    async def begin(self) -> None:
        await self.worker.register(LAYOUT, [self.address])
        await self.intruder.register(
            LAYOUT.__class__(
                LAYOUT.model_fingerprint,
                LAYOUT.numerics_fingerprint,
                LAYOUT.groups,
                NUM_SEAL_BYTES,
            ),
            [self.address],
        )

    async def get(self, name: bytes) -> bytes | None:
        async with aclosing(self.worker.get(self.address, [name], PATIENCE_SECONDS)) as loaded:
            async for block in loaded:
                return bytes(block.payload)
        return None

    async def forged(self, kind: str, block: OutgoingBlock) -> bytes:
        forge = FORGERS[kind]
        return await asyncio.to_thread(forge, block.name, bytes(block.payload), self.dice)

    async def end(self) -> None:
        await self.worker.close()
        await self.intruder.close()


async def put_all(connector, blocks: list[OutgoingBlock]) -> None:
    """Put blocks until the store has all of them: it leaves out what it has no room for yet."""
    left = list(blocks)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while left:
            held = await connector.put(left[:AT_A_TIME])
            left = [block for block in left if block.name not in held]


async def forge_in_memory(store: KvStore, count: int) -> None:
    cell, done = Cell(store.address), collections.Counter[str]()
    await cell.begin()
    good = make_blocks(4, cell.dice)
    await put_all(cell.worker, good)
    while done.total() < count:
        kinds, blocks = list(FORGERS), make_blocks(len(FORGERS), cell.dice)
        forged = [
            OutgoingBlock(block.name, None, memoryview(await cell.forged(kind, block)))
            for kind, block in zip(kinds, blocks, strict=True)
        ]
        await put_all(cell.intruder, forged)
        for kind, block in zip(kinds, blocks, strict=True):
            assert await cell.get(block.name) is None, kind
            done[kind] += 1
    await put_all(cell.worker, good)
    for block in good:
        assert await cell.get(block.name) == bytes(block.payload)
    await cell.end()


async def forge_records(store: KvStore, records: Files | Values, count: int) -> None:
    """Replace records below the memory by forged ones that a store takes for whole."""
    cell, done = Cell(store.address), collections.Counter[str]()
    await cell.begin()
    # More than fit into the memory, so that each has left it when its turn comes again.
    blocks = make_blocks(NUM_BELOW, cell.dice)
    async with asyncio.timeout(PATIENCE_SECONDS):
        # What was not written before it left the memory is put again.
        while left := [one for one in blocks if one.name not in by_name(records.read())]:
            await cell.worker.put(left[:AT_A_TIME])
    found = by_name(records.read())
    kept = {name: decode_record(data) for name, (_, data) in found.items()}
    while done.total() < count:
        block = blocks[done.total() % len(blocks)]
        kind = list(FORGERS)[(done.total() + done.total() // len(blocks)) % len(FORGERS)]
        payload = await cell.forged(kind, block)
        record = kept[block.name]
        forged = BlockRecord(record.key, record.tenant, payload, crc32c(payload))
        records.write(found[block.name][0], encode_record(forged) + payload)
        assert await cell.get(block.name) is None, kind
        done[kind] += 1
    good = make_blocks(1, cell.dice)
    await put_all(cell.worker, good)
    assert await cell.get(good[0].name) == bytes(good[0].payload)
    # The store has not noticed: the checksums are right.
    assert all(one.num_corrupt == 0 for one in (await tier_stats(store.address)).values())
    await cell.end()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("tier", ["memory", "disk", "redis"])
def test_no_forged_block_is_served(tmp_path: Path, tier: str, count: int) -> None:
    flags = ["--memory-size", str(NUM_IN_MEMORY * SEALED_BYTES), "--log-level", "error"]
    before = metrics.DAMAGED_BLOCKS.labels("seal")._value.get()
    with RedisServer(tmp_path) as server:
        records = Values(server) if tier == "redis" else Files(tmp_path / "disk")
        with KvStore(tmp_path, *(() if tier == "memory" else records.flags), *flags) as store:
            if tier == "memory":
                asyncio.run(forge_in_memory(store, count))
            else:
                asyncio.run(forge_records(store, records, count))
    assert metrics.DAMAGED_BLOCKS.labels("seal")._value.get() - before >= count
