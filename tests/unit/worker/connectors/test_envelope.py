"""An entry is opened only as the block that was put, whole and in its layout."""

import random
from dataclasses import replace

import pytest

from pagewire_worker.connectors.envelope import layout_digest, unpack
from pagewire_worker.kv.kv_cache import CacheGroup
from support.fakes.damaged_entries import CORRUPTIONS, LAYOUT, random_block

DIGEST = layout_digest(LAYOUT)


def test_what_was_packed_is_opened() -> None:
    block = random_block(random.Random(1))
    assert unpack(DIGEST, block.name, memoryview(block.entry())) == block.payload


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_no_corruption_is_opened(kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(20):
        block, other = random_block(chance), random_block(chance)
        entry = CORRUPTIONS[kind](block, other, chance)
        assert entry != block.entry()
        assert unpack(DIGEST, block.name, memoryview(entry)) is None


def test_a_payload_that_changes_while_it_is_copied_is_not_opened() -> None:
    block = random_block(random.Random(2))
    entry = block.entry()
    entry[-1] ^= 1
    assert unpack(DIGEST, block.name, memoryview(entry)) is None


def test_layouts_have_digests_of_their_own() -> None:
    others = [
        replace(LAYOUT, model_fingerprint=b"M" * 32),
        replace(LAYOUT, numerics_fingerprint=b"N" * 32),
        replace(LAYOUT, groups=(CacheGroup(2, 16, 4096, "bfloat16"),)),
        replace(LAYOUT, num_seal_bytes=16),
    ]
    assert len({DIGEST, *map(layout_digest, others)}) == 5
    # A store keeps a name once, whatever other groups there are.
    two = replace(LAYOUT, groups=(*LAYOUT.groups, CacheGroup(2, 16, 4096, "float32", window=32)))
    assert layout_digest(two) == DIGEST
