"""Makes of a right entry of a store one that must not be served, in sixteen ways."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from pagewire_worker.connectors.envelope import HEADER_BYTES, layout_digest, pack
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout

LAYOUT = BlockLayout(b"m" * 32, b"n" * 32, (CacheGroup(2, 16, 4096, "float32"),))
OTHER_MODEL = replace(LAYOUT, model_fingerprint=b"M" * 32)
OTHER_KERNELS = replace(LAYOUT, numerics_fingerprint=b"N" * 32)
OTHER_TYPE = replace(LAYOUT, groups=(CacheGroup(2, 16, 4096, "bfloat16"),))


@dataclass(frozen=True)
class Block:
    """A block, and its entry in a store."""

    name: bytes
    payload: bytes

    def entry(self, layout: BlockLayout = LAYOUT, name: bytes | None = None) -> bytearray:
        """Return what the connector puts for it, or what it would in another layout."""
        target = bytearray(HEADER_BYTES + len(self.payload))
        pack(layout_digest(layout), name or self.name, memoryview(self.payload), memoryview(target))
        return target


def random_block(chance: random.Random) -> Block:
    return Block(chance.randbytes(16), chance.randbytes(LAYOUT.bytes_per_block))


def _flip(block: Block, other: Block, chance: random.Random, num_bits: int) -> bytearray:
    entry = block.entry()
    for bit in chance.sample(range(8 * len(entry)), num_bits):
        entry[bit // 8] ^= 1 << bit % 8
    return entry


def _header_bit(block: Block, other: Block, chance: random.Random) -> bytearray:
    entry = block.entry()
    # The last bytes of the header are zeros and checked, too.
    entry[chance.randrange(HEADER_BYTES)] ^= 1 << chance.randrange(8)
    return entry


def _zero_run(block: Block, other: Block, chance: random.Random) -> bytearray:
    entry = block.entry()
    start = chance.randrange(len(entry) - 64)
    entry[start : start + 64] = bytes(64)
    return entry


def _swapped_halves(block: Block, other: Block, chance: random.Random) -> bytearray:
    entry = block.entry()
    body = entry[HEADER_BYTES:]
    middle = len(body) // 2
    return entry[:HEADER_BYTES] + body[middle:] + body[:middle]


Corruption = Callable[[Block, Block, random.Random], bytearray]

CORRUPTIONS: dict[str, Corruption] = {
    "one bit": lambda block, other, chance: _flip(block, other, chance, 1),
    "some bits": lambda block, other, chance: _flip(block, other, chance, chance.randrange(2, 9)),
    "header bit": _header_bit,
    "another block": lambda block, other, chance: other.entry(),
    "another payload": lambda block, other, chance: (
        block.entry()[:HEADER_BYTES] + other.entry()[HEADER_BYTES:]
    ),
    "another header": lambda block, other, chance: (
        other.entry()[:HEADER_BYTES] + block.entry()[HEADER_BYTES:]
    ),
    "another model": lambda block, other, chance: block.entry(OTHER_MODEL),
    "other kernels": lambda block, other, chance: block.entry(OTHER_KERNELS),
    "another type": lambda block, other, chance: block.entry(OTHER_TYPE),
    "truncated": lambda block, other, chance: block.entry()[
        : chance.randrange(1, len(block.entry()))
    ],
    "too long": lambda block, other, chance: block.entry() + chance.randbytes(64),
    "swapped halves": _swapped_halves,
    "zeros": lambda block, other, chance: bytearray(len(block.entry())),
    "a run of zeros": _zero_run,
    "no header": lambda block, other, chance: bytearray(block.payload),
    "random": lambda block, other, chance: bytearray(chance.randbytes(len(block.entry()))),
}
