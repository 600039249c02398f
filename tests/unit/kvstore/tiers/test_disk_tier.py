"""The disk tier over real files: what it keeps, evicts, refuses, and finds again."""

import random
import sys
import threading
from dataclasses import replace

import pytest

from pagewire_kvstore.blocks.types import BlockRecord
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.disk.files import DiskFiles, file_name, key_of
from pagewire_kvstore.tiers.disk.index import TOUCH_SECONDS
from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierPinnedError
from pagewire_shared.errors import InvalidRequestError, StartupError
from support.processes.disk_blocks import (
    FILE_BYTES,
    SIZE,
    Clock,
    block_key,
    block_record,
    check_agrees,
    files_below,
    holds,
    path_of,
)

ROOMY = 1 << 30


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tier"


def test_a_record_that_was_put_can_be_read(folder):
    tier = DiskBlocks(folder, ROOMY)
    for number in range(5):
        assert tier.put(block_record(number)) == []
    assert all(holds(tier, number) for number in range(5))
    assert tier.get(block_key(9)) is None
    assert tier.contains(block_key(4))
    assert not tier.contains(block_key(9))
    assert (tier.num_hits, tier.num_misses, tier.num_corrupt) == (5, 1, 0)
    assert tier.used_bytes == 5 * FILE_BYTES
    check_agrees(tier, folder)


@pytest.mark.parametrize("wrap", [bytes, memoryview, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("is_synced", [False, True])
def test_payloads_of_every_kind(folder, wrap, is_synced):
    record = block_record(1)
    tier = DiskBlocks(folder, ROOMY, is_synced=is_synced)
    tier.put(BlockRecord(record.key, record.tenant, wrap(record.payload), record.checksum))
    assert holds(tier, 1)


def test_file_names_round_trip(folder):
    key = block_key(7)
    assert key_of(file_name(key)) == key
    DiskBlocks(folder, ROOMY).put(block_record(7))
    assert files_below(folder) == [path_of(folder, 7)]


def test_a_put_again_replaces(folder):
    tier = DiskBlocks(folder, 3 * FILE_BYTES)
    for number in (0, 1, 2):
        tier.put(block_record(number))
    path_of(folder, 0).write_bytes(b"damaged")
    assert tier.put(block_record(0)) == []
    assert holds(tier, 0)
    assert tier.used_bytes == 3 * FILE_BYTES
    assert tier.keys()[-1] == block_key(0)
    check_agrees(tier, folder)


def test_a_removed_block_is_gone(folder):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(1))
    assert tier.remove(block_key(1))
    assert not tier.remove(block_key(1))
    assert not holds(tier, 1)
    check_agrees(tier, folder)


def test_the_least_recently_used_is_evicted(folder):
    tier = DiskBlocks(folder, 3 * FILE_BYTES)
    for number in (0, 1, 2):
        assert tier.put(block_record(number)) == []
    assert holds(tier, 0)
    assert tier.put(block_record(3)) == [block_key(1)]
    assert tier.put(block_record(4, 2 * SIZE)) == [block_key(2), block_key(0)]
    assert tier.keys() == [block_key(3), block_key(4)]
    check_agrees(tier, folder)


def test_pinned_blocks_stay(folder):
    pinned = {block_key(0), block_key(2)}
    tier = DiskBlocks(folder, 3 * FILE_BYTES, is_pinned=pinned.__contains__)
    for number in (0, 1, 2):
        tier.put(block_record(number))
    assert tier.put(block_record(3)) == [block_key(1)]
    pinned.add(block_key(3))
    for _ in range(2):
        with pytest.raises(TierPinnedError):
            tier.put(block_record(4))
    assert all(holds(tier, number) for number in (0, 2, 3))
    assert tier.put(block_record(2)) == []
    pinned.clear()
    assert len(tier.put(block_record(4))) == 1
    check_agrees(tier, folder)


def test_a_record_larger_than_the_tier_is_refused(folder):
    tier = DiskBlocks(folder, FILE_BYTES)
    tier.put(block_record(0))
    with pytest.raises(RecordTooLargeError):
        tier.put(block_record(1, SIZE + 1))
    assert holds(tier, 0)
    check_agrees(tier, folder)
    with pytest.raises(InvalidRequestError):
        DiskBlocks(folder, 0)


def test_everything_is_found_after_a_restart_in_order_of_use(folder):
    clock = Clock()
    tier = DiskBlocks(folder, ROOMY, clock=clock)
    for number in range(6):
        tier.put(block_record(number))
    assert holds(tier, 4)
    clock.now += TOUCH_SECONDS
    assert holds(tier, 1)
    tier.close()
    again = DiskBlocks(folder, ROOMY, clock=clock)
    # The hit on 4 came within a minute of its put, so it was not written down.
    assert again.keys() == [block_key(number) for number in (0, 2, 3, 4, 5, 1)]
    assert again.used_bytes == tier.used_bytes
    assert all(holds(again, number) for number in range(6))
    check_agrees(again, folder)


def test_a_smaller_tier_keeps_the_most_recent(folder):
    tier = DiskBlocks(folder, ROOMY, clock=Clock())
    for number in range(6):
        tier.put(block_record(number))
    tier.close()
    again = DiskBlocks(folder, 2 * FILE_BYTES)
    assert again.keys() == [block_key(4), block_key(5)]
    check_agrees(again, folder)


def test_a_start_reads_headers_only(folder):
    tier = DiskBlocks(folder, ROOMY)
    for number in range(4):
        tier.put(block_record(number))
    tier.close()
    # A payload, a header, a length, and the block of another name.
    data = bytearray(path_of(folder, 0).read_bytes())
    path_of(folder, 0).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    path_of(folder, 1).write_bytes(b"x" * FILE_BYTES)
    path_of(folder, 2).write_bytes(path_of(folder, 2).read_bytes()[:-1])
    path_of(folder, 3).write_bytes(data)
    again = DiskBlocks(folder, ROOMY)
    assert again.keys() == [block_key(0)]
    assert again.num_corrupt == 3
    assert not holds(again, 0)
    assert again.num_corrupt == 4
    assert len(files_below(folder, "quarantine")) == 4


def test_a_folder_has_one_tier_at_a_time(folder):
    tier = DiskBlocks(folder, ROOMY)
    with pytest.raises(StartupError, match=f"{folder}: another process"):
        DiskBlocks(folder, ROOMY)
    tier.close()
    DiskBlocks(folder, ROOMY).close()


def test_a_tenant_at_its_quota_evicts_only_its_own_blocks(folder):
    tier = DiskBlocks(folder, 8 * FILE_BYTES, quota=lambda _: 4 * FILE_BYTES)
    for number in range(3):
        tier.put(replace(block_record(number), tenant="b"))
    for number in range(10, 30):
        tier.put(block_record(number))
        assert tier.used_bytes <= 7 * FILE_BYTES
    assert [tier.contains(block_key(number)) for number in (0, 1, 2, 25, 26)] == [1, 1, 1, 0, 1]
    tier.close()
    # Whose they are is known after a restart, and a smaller quota holds at once.
    again = DiskBlocks(folder, 8 * FILE_BYTES, quota=lambda _: 2 * FILE_BYTES)
    kept = [block_key(number) for number in (1, 2, 28, 29)]
    assert again.keys() == kept
    assert again.delete_tenant("b") == kept[:2]
    assert again.delete_tenant("b") == []
    assert again.keys() == kept[2:]
    check_agrees(again, folder)


def test_wrong_names_are_ignored_and_partial_files_dropped(folder):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(0))
    tier.close()
    real = path_of(folder, 0)
    (folder / "blocks" / "README").write_text("not a folder")
    (real.parent / "notes.txt").write_text("no block")
    (real.parent / (real.name + ".bak")).write_text("no block")
    (real.parent / real.name.upper()).write_text("no block")
    elsewhere = folder / "blocks" / f"{(block_key(1).name[0] + 1) % 256:02x}"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / file_name(block_key(1))).write_text("in the wrong subfolder")
    linked = path_of(folder, 2)
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(real)
    (folder / "temp" / "1-1").write_bytes(b"half")
    tier = DiskBlocks(folder, ROOMY)
    assert tier.keys() == [block_key(0)]
    assert (tier.num_ignored, tier.num_partial) == (6, 1)
    assert files_below(folder, "temp") == []


@pytest.mark.parametrize("act", ["put", "remove", "get"])
def test_file_names_change_one_at_a_time_and_lookups_do_not_wait(folder, monkeypatch, act):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(0))
    path_of(folder, 0).write_bytes(b"damaged")
    is_published, may_go_on = threading.Event(), threading.Event()
    publish = DiskFiles.publish

    def publish_slowly(files, temp, key):
        publish(files, temp, key)
        is_published.set()
        assert may_go_on.wait(60)

    monkeypatch.setattr(DiskFiles, "publish", publish_slowly)
    first = threading.Thread(target=tier.put, args=(block_record(1),))
    argument = block_record(0) if act == "put" else block_key(0)
    second = threading.Thread(target=getattr(tier, act), args=(argument,))
    first.start()
    assert is_published.wait(60)
    is_published.clear()
    second.start()
    try:
        second.join(0.1)
        assert second.is_alive()
        assert not is_published.is_set()
        assert tier.keys() == [block_key(0)]
        assert not tier.contains(block_key(1))
    finally:
        may_go_on.set()
        first.join()
        second.join()
    assert holds(tier, 1)
    check_agrees(tier, folder)


@pytest.fixture
def eager_switches():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_switches")
def test_many_threads_at_a_time(folder):
    tier = DiskBlocks(folder, 4 * FILE_BYTES)
    failures = []

    def work(seed):
        dice = random.Random(seed)
        try:
            for _ in range(150):
                number = dice.randrange(8)
                act = dice.choice(("put", "put", "get", "get", "remove"))
                if act == "put":
                    tier.put(block_record(number))
                    assert tier.used_bytes <= (4 + len(threads)) * FILE_BYTES
                elif act == "get":
                    holds(tier, number)
                else:
                    tier.remove(block_key(number))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (tier.num_corrupt, tier.num_faults) == (0, 0)
    assert tier.num_hits > 0
    assert tier.used_bytes <= 4 * FILE_BYTES
    check_agrees(tier, folder)
