"""A memory tier for tests, and blocks whose bytes follow from their number."""

import random
from pathlib import Path

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.extents import GRANULE_BYTES

NUM_GRANULES = 12
QUOTAS = {"small": 4 * GRANULE_BYTES}


def key_of(number: int) -> BlockKey:
    return BlockKey(bytes(16), 0, BlockName(number.to_bytes(16, "little")))


def block(number: int, num_bytes: int = GRANULE_BYTES, tenant: str = "") -> BlockRecord:
    payload = random.Random(number).randbytes(num_bytes)
    return BlockRecord(key_of(number), tenant, payload, checksum=number)


def make(
    num_granules: int = NUM_GRANULES, pinned: set[BlockKey] | None = None, path: Path | None = None
) -> MemoryTier:
    is_pinned = set[BlockKey]().__contains__ if pinned is None else pinned.__contains__
    return MemoryTier(num_granules * GRANULE_BYTES, QUOTAS.get, is_pinned, path)
