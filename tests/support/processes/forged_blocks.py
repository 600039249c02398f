"""Blocks as something makes them that may write to a store and has not the cell's key."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.sealed_connector import NUM_SEAL_BYTES, SealedConnector
from support.processes.damaged_wire import LAYOUT, NUM_BYTES

KEY, OLD_KEY, OTHER_KEY = (bytes([number]) * 32 for number in (1, 2, 3))


class Recorder:
    """A connector that keeps what is put."""

    store_id = b"a recorder"

    def __init__(self) -> None:
        self.blocks: dict[bytes, bytes] = {}

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        assert layout.num_seal_bytes == NUM_SEAL_BYTES

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        self.blocks |= {block.name: bytes(block.payload) for block in blocks}
        return frozenset(self.blocks)

    async def get(self, address: str, names: Sequence[bytes], timeout_seconds: float):
        raise NotImplementedError
        yield

    async def close(self) -> None:
        pass


def sealed(name: bytes, data: bytes, key: bytes, layout: BlockLayout = LAYOUT) -> bytes:
    """Return a block with its seal by a key."""

    async def main() -> bytes:
        recorder = Recorder()
        connector = SealedConnector(recorder, [key])
        await connector.register(layout, [])
        await connector.put([OutgoingBlock(name, None, memoryview(data))])
        return recorder.blocks[name]

    return asyncio.run(main())


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


Forger = Callable[[bytes, bytes, random.Random], bytes]
"""From name and bytes of a block to what is stored in its place, as long as a sealed block."""

FORGERS: dict[str, Forger] = {
    "payload": lambda name, data, dice: _flipped(
        sealed(name, data, KEY), dice.randrange(NUM_BYTES)
    ),
    "seal": lambda name, data, dice: _flipped(
        sealed(name, data, KEY), NUM_BYTES + dice.randrange(NUM_SEAL_BYTES)
    ),
    "no seal": lambda name, data, dice: data + bytes(NUM_SEAL_BYTES),
    "made-up seal": lambda name, data, dice: data + dice.randbytes(NUM_SEAL_BYTES),
    "other cell": lambda name, data, dice: sealed(name, data, OTHER_KEY),
    "old key": lambda name, data, dice: sealed(name, data, OLD_KEY),
    "other name": lambda name, data, dice: sealed(dice.randbytes(16), data, KEY),
    "other layout": lambda name, data, dice: sealed(
        name, data, KEY, replace(LAYOUT, model_fingerprint=b"o" * 32)
    ),
    "other block": lambda name, data, dice: sealed(
        dice.randbytes(16), dice.randbytes(NUM_BYTES), KEY
    ),
    "truncated": lambda name, data, dice: (
        sealed(name, data, KEY)[NUM_SEAL_BYTES:] + bytes(NUM_SEAL_BYTES)
    ),
}
"""By kind. A name holds tenant and adapter, so blocks of others are those of another name."""
