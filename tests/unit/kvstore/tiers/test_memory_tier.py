"""The memory tier with real memory: blocks come back byte for byte, or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_kvstore.blocks.types import BlockRecord
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_shared.errors import InvalidRequestError, OverloadedError, StartupError
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.memory_blocks import NUM_GRANULES, QUOTAS, block, key_of, make

READER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
offset, num_bytes = int(sys.argv[2]), int(sys.argv[3])
sys.stdout.buffer.write(mapped[offset : offset + num_bytes])
"""


def test_the_least_recently_used_go_first() -> None:
    tier = make(3)
    for number in range(3):
        assert tier.put(block(number)) == []
    assert tier.get(key_of(0)) == block(0)
    assert tier.put(block(1)) == []
    assert tier.put(block(3)) == [key_of(2)]
    assert tier.put(block(4, 2 * GRANULE_BYTES)) == [key_of(0), key_of(1)]
    assert tier.keys() == [key_of(3), key_of(4)]
    assert tier.get(key_of(1)) is None
    stats = tier.stats()
    assert (stats.num_blocks, stats.num_hits, stats.num_misses) == (2, 1, 1)


def test_a_block_that_is_there_is_not_written_again() -> None:
    tier = make()
    tier.put(block(1))
    other = BlockRecord(key_of(1), "", bytes(GRANULE_BYTES), 99)
    assert tier.put(other) == []
    assert tier.get(key_of(1)) == block(1)


def test_fragments_make_room_for_one_extent_and_spare_the_rest() -> None:
    tier = make(6)
    for number in range(6):
        tier.put(block(number))
    for number in (0, 3):
        tier.remove(key_of(number))
    # Free: granules 0 and 3. Block 1 is used least recently and lies between free ones.
    assert tier.put(block(10, 2 * GRANULE_BYTES)) == [key_of(1)]
    assert tier.keys() == [key_of(number) for number in (2, 4, 5, 10)]
    for number in (2, 4, 5, 10):
        found = tier.get(key_of(number))
        assert found == block(number, GRANULE_BYTES * (2 if number == 10 else 1))


def test_fragments_around_pinned_blocks_are_refused_and_nothing_is_lost() -> None:
    pinned = {key_of(1), key_of(4)}
    tier = make(6, pinned)
    for number in range(6):
        tier.put(block(number))
    for number in (0, 3):
        tier.remove(key_of(number))
    with pytest.raises(OverloadedError, match="pinned blocks and readers"):
        tier.put(block(10, 3 * GRANULE_BYTES))
    assert tier.keys() == [key_of(number) for number in (1, 2, 4, 5)]
    assert tier.put(block(10, 2 * GRANULE_BYTES)) == [key_of(2)]


def test_pinned_blocks_stay_under_a_flood() -> None:
    pinned = {key_of(1), key_of(2)}
    tier = make(4, pinned)
    for number in range(100):
        tier.put(block(number))
    assert tier.keys() == [key_of(number) for number in (1, 2, 98, 99)]
    assert tier.get(key_of(1)) == block(1)
    pinned.update(tier.keys())
    with pytest.raises(OverloadedError) as caught:
        tier.put(block(100))
    assert caught.value.retry_after_ms
    pinned.clear()
    assert tier.put(block(100)) == [key_of(2)]


def test_a_flood_of_a_tenant_with_a_quota_spares_the_others() -> None:
    tier = make()
    for number in range(8):
        tier.put(block(number))
    for number in range(100, 300):
        tier.put(block(number, num_bytes=1 + number, tenant="small"))
    assert tier.tenant_keys("") == [key_of(number) for number in range(8)]
    assert tier.tenant_keys("small") == [key_of(number) for number in range(296, 300)]
    assert tier.get(key_of(299)) == block(299, num_bytes=300, tenant="small")


def test_a_pinned_block_keeps_its_bytes_when_it_is_removed() -> None:
    tier = make(2)
    tier.put(block(1))
    outer, inner = tier.pin(key_of(1)), tier.pin(key_of(1))
    assert outer is not None
    assert inner is not None
    assert tier.remove(key_of(1))
    for number in range(2, 9):
        tier.put(block(number))
    assert inner.record == block(1)
    tier.unpin(inner)
    tier.put(block(9))
    assert outer.record == block(1)
    assert tier.get(key_of(1)) is None
    assert tier.stats().used_bytes == 2 * GRANULE_BYTES
    tier.unpin(outer)
    assert tier.stats().used_bytes == GRANULE_BYTES
    assert tier.put(block(1)) == []


def test_a_pinned_block_is_not_evicted() -> None:
    tier = make(2)
    tier.put(block(1))
    tier.put(block(2))
    hold = tier.pin(key_of(1))
    assert hold is not None
    assert tier.put(block(3)) == [key_of(2)]
    newer = tier.pin(key_of(3))
    assert newer is not None
    with pytest.raises(OverloadedError):
        tier.put(block(4))
    tier.unpin(newer)
    tier.unpin(hold)
    assert tier.put(block(4)) == [key_of(1)]
    with pytest.raises(AssertionError, match="nobody reads"):
        tier.unpin(hold)


def test_pinning_an_absent_block_is_a_miss() -> None:
    tier = make()
    assert tier.pin(key_of(1)) is None
    assert tier.stats().num_misses == 1


@pytest.mark.parametrize(
    ("num_bytes", "tenant"),
    [(0, ""), (NUM_GRANULES * GRANULE_BYTES + 1, ""), (4 * GRANULE_BYTES + 1, "small")],
)
def test_blocks_that_can_never_fit_are_refused(num_bytes: int, tenant: str) -> None:
    tier = make()
    tier.put(block(1))
    with pytest.raises(InvalidRequestError):
        tier.put(block(2, num_bytes, tenant))
    assert tier.keys() == [key_of(1)]


def test_a_tier_smaller_than_a_granule_is_an_error_at_start() -> None:
    with pytest.raises(StartupError, match=f"at least {GRANULE_BYTES} bytes"):
        MemoryTier(GRANULE_BYTES - 1, QUOTAS.get, set().__contains__)


def test_another_process_reads_a_block_at_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "kv.arena"
    tier = make(path=path)
    for number in range(5):
        tier.put(block(number))
    hold = tier.pin(key_of(4))
    assert hold is not None
    command = [sys.executable, "-c", READER, str(path), str(hold.offset), str(GRANULE_BYTES)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == block(4).payload
    tier.unpin(hold)
    tier.close()
    assert not path.exists()
