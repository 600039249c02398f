"""The disk tier when things go wrong: damaged files, a failing disk, processes killed in a put."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from pagewire_kvstore.tiers.disk import files as disk_files
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.disk.files import file_name
from pagewire_kvstore.tiers.errors import TierUnavailableError
from support.processes import disk_blocks
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
from support.processes.full_disk import run_with_mounts

ROOMY = 1 << 30
NOBODY = 65534


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tier"


def damage_flip(path, other):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def damage_cut(path, other):
    os.truncate(path, path.stat().st_size // 2)


def damage_empty(path, other):
    os.truncate(path, 0)


def damage_grow(path, other):
    # Sparse: reading all of it would need more memory than there is.
    os.truncate(path, 1 << 42)


def damage_swap(path, other):
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    "damage", [damage_flip, damage_cut, damage_empty, damage_grow, damage_swap]
)
def test_a_damaged_file_is_a_miss_and_goes_to_quarantine(folder, damage, caplog):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(0))
    tier.put(block_record(1))
    damage(path_of(folder, 0), path_of(folder, 1))
    for _ in range(2):
        assert not holds(tier, 0)
    assert len(caplog.records) == 1
    assert (tier.num_hits, tier.num_misses, tier.num_corrupt) == (0, 2, 1)
    assert holds(tier, 1)
    check_agrees(tier, folder)
    quarantined = files_below(folder, "quarantine")
    assert len(quarantined) == (0 if damage is damage_grow else 1)
    tier.put(block_record(0))
    assert holds(tier, 0)


def test_quarantine_is_bounded_by_count_and_bytes(folder, monkeypatch, caplog):
    monkeypatch.setattr(disk_files, "MAX_QUARANTINED_FILES", 3)
    tier = DiskBlocks(folder, ROOMY, clock=Clock())

    def spoil(number, size):
        tier.put(block_record(number, size))
        damage_flip(path_of(folder, number), None)
        assert not holds(tier, number, size)

    for number in range(5):
        spoil(number, SIZE)
    names = [path.name.split("-", 1)[1] for path in files_below(folder, "quarantine")]
    assert names == [file_name(block_key(number)) for number in (2, 3, 4)]
    monkeypatch.setattr(disk_files, "MAX_QUARANTINED_BYTES", 2 * FILE_BYTES)
    spoil(5, SIZE)
    assert len(files_below(folder, "quarantine")) == 2
    spoil(6, 3 * SIZE)
    assert files_below(folder, "quarantine") == []
    assert tier.num_corrupt == 7
    assert len(caplog.records) == 1


def test_a_file_that_vanished_is_a_miss(folder):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(0))
    path_of(folder, 0).unlink()
    assert not holds(tier, 0)
    assert not tier.contains(block_key(0))
    assert (tier.num_misses, tier.num_corrupt, tier.used_bytes) == (1, 0, 0)


def unavailable(act, *args):
    """The reason with which a call ends."""
    with pytest.raises(TierUnavailableError) as caught:
        act(*args)
    assert caught.value.tier == "disk"
    assert "disk tier" in str(caught.value)
    return caught.value.reason


def check_put_fails(tier, folder, number, reason, size=SIZE):
    """A put is refused and nothing has changed."""
    before = (tier.keys(), tier.used_bytes, files_below(folder))
    assert unavailable(tier.put, block_record(number, size)) == reason
    assert (tier.keys(), tier.used_bytes, files_below(folder)) == before
    assert files_below(folder, "temp") == []


def test_a_file_where_a_subfolder_should_be(folder):
    tier = DiskBlocks(folder, 2 * FILE_BYTES)
    tier.put(block_record(0))
    tier.put(block_record(1))
    path_of(folder, 2).parent.write_text("in the way")
    check_put_fails(tier, folder, 2, "ENOTDIR")
    check_put_fails(tier, folder, 2, "ENOTDIR")
    assert tier.num_faults == 2
    shutil.rmtree(path_of(folder, 0).parent)
    path_of(folder, 0).parent.write_text("in the way")
    assert unavailable(tier.get, block_key(0)) == "ENOTDIR"
    assert unavailable(tier.remove, block_key(0)) == "ENOTDIR"
    assert tier.contains(block_key(0))
    assert holds(tier, 1)


def test_a_folder_where_a_file_should_be(folder):
    tier = DiskBlocks(folder, 2 * FILE_BYTES)
    tier.put(block_record(0))
    tier.put(block_record(1))
    path_of(folder, 2).mkdir(parents=True)
    check_put_fails(tier, folder, 2, "EISDIR")


@pytest.mark.parametrize("part", ["", "blocks", "temp"])
def test_a_folder_that_went_away_is_not_made_again(folder, part):
    tier = DiskBlocks(folder, ROOMY)
    shutil.rmtree(folder / part)
    assert unavailable(tier.put, block_record(0)) == "ENOENT"
    assert not (folder / part).exists()
    assert not tier.contains(block_key(0))


def test_a_start_without_a_usable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert unavailable(DiskBlocks, tmp_path / "file", ROOMY) == "EEXIST"
    assert unavailable(DiskBlocks, tmp_path / "file" / "tier", ROOMY) == "ENOTDIR"


@contextlib.contextmanager
def largest_file(num_bytes):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_write_leaves_no_file(folder):
    size = 3 << 20
    tier = DiskBlocks(folder, 2 * size)
    for number in (0, 1):
        tier.put(block_record(number))
    with largest_file(2 << 20):
        check_put_fails(tier, folder, 2, "EFBIG", size)
    assert tier.put(block_record(2, size)) == []
    assert holds(tier, 2, size)


@contextlib.contextmanager
def without_permission(folder):
    """Nobody may read or write the folder; root, who always may, is nobody meanwhile."""
    mode = folder.stat().st_mode
    folder.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(mode)


def test_missing_permissions_are_faults_of_the_tier(folder):
    tier = DiskBlocks(folder, ROOMY)
    tier.put(block_record(0))
    with without_permission(folder):
        assert unavailable(tier.put, block_record(1)) == "EACCES"
        assert unavailable(tier.get, block_key(0)) == "EACCES"
        assert unavailable(tier.remove, block_key(0)) == "EACCES"
        assert unavailable(DiskBlocks, folder, ROOMY) == "EACCES"
    assert holds(tier, 0)
    check_agrees(tier, folder)


def test_an_unremovable_victim_reduces_the_capacity(folder, caplog):
    tier = DiskBlocks(folder, 3 * FILE_BYTES)
    for number in range(3):
        tier.put(block_record(number))
    for number in (0, 1):
        path_of(folder, number).unlink()
        path_of(folder, number).mkdir()
    assert tier.put(block_record(3)) == [block_key(0)]
    assert (tier.num_faults, tier.used_bytes) == (1, 3 * FILE_BYTES)
    # Two have to go now: room of one file is lost.
    assert tier.put(block_record(4)) == [block_key(1), block_key(2)]
    assert tier.put(block_record(5)) == [block_key(3), block_key(4)]
    assert (tier.num_faults, tier.keys()) == (2, [block_key(5)])
    assert len(caplog.records) == 1


FULL_DISK = """
import pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
from support.processes.disk_blocks import block_record, check_agrees, holds
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.errors import TierUnavailableError
tier = DiskBlocks(folder, 1 << 30)
size = 100_000
num_put = 0
try:
    for number in range(20):
        tier.put(block_record(number, size))
        num_put += 1
except TierUnavailableError as error:
    assert (error.tier, error.reason) == ("disk", "ENOSPC"), error
assert 5 < num_put < 11, num_put
check_agrees(tier, folder)
assert tier.num_blocks == num_put
assert all(holds(tier, number, size) for number in range(num_put))
assert tier.remove(tier.keys()[0])
assert tier.put(block_record(30, size)) == []
tier.close()
check_agrees(DiskBlocks(folder, 1 << 30), folder)
"""


def test_a_full_disk(tmp_path):
    run_with_mounts(FULL_DISK, tmp_path)


def test_killed_at_random_moments_it_serves_only_whole_records(folder):
    size, capacity = 256 << 10, 2 << 20
    dice = random.Random(7)
    num_served = 0
    command = [sys.executable, disk_blocks.__file__, str(folder), str(capacity), str(size)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as parent:
        for turn in range(20):
            # Half of the blocks of a turn are new: puts add, replace and evict.
            parent.stdin.write(f"{6 * turn}\n")
            child = int(parent.stdout.readline())
            time.sleep(dice.uniform(0.0, 0.06))
            os.kill(child, signal.SIGKILL)
            assert int(parent.stdout.readline()) == -signal.SIGKILL
            tier = DiskBlocks(folder, capacity)
            check_agrees(tier, folder)
            assert tier.used_bytes <= capacity
            numbers = [key.group for key in tier.keys()]  # noqa: SIM118
            assert all(holds(tier, number, size) for number in numbers)
            assert (tier.num_corrupt, tier.num_ignored, tier.num_faults) == (0, 0, 0)
            tier.close()
            num_served += len(numbers)
        parent.stdin.close()
    assert num_served >= 20
