"""Blocks whose bytes follow from their number, and a process that puts them on disk to be killed.

What a block must hold is known without its checksums: a test that asked only those would believe
what it tests.
"""

import hashlib
import os
import sys
from pathlib import Path

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.disk.files import file_name
from pagewire_kvstore.tiers.record_codec import encode_record
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c

SIZE = 1000
TENANT = "t"


def block_key(number):
    digest = hashlib.sha256(b"%d" % number).digest()
    return BlockKey(b"layout".ljust(16), number, BlockName(digest[:16]))


def block_payload(number, size=SIZE):
    digest = hashlib.sha256(b"payload %d" % number).digest()
    return (digest * (size // 32 + 1))[:size]


def block_record(number, size=SIZE):
    payload = block_payload(number, size)
    return BlockRecord(block_key(number), TENANT, payload, crc32c(payload))


FILE_BYTES = len(encode_record(block_record(0))) + SIZE


class Clock:
    """Every time it is asked, a second later."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        self.now += 1.0
        return self.now


def files_below(folder, part="blocks"):
    return sorted(path for path in (folder / part).rglob("*") if path.is_file())


def path_of(folder, number):
    key = block_key(number)
    return folder / "blocks" / key.name[:1].hex() / file_name(key)


def holds(tier, number, size=SIZE):
    """Whether the block is served; if it is, whole and right."""
    record = tier.get(block_key(number))
    if record is None:
        return False
    assert bytes(record.payload) == block_payload(number, size)
    assert record == block_record(number, size)
    return True


def check_agrees(tier, folder):
    """The index says what is in the folder, and nothing half-written is."""
    files = files_below(folder)
    assert sorted(map(file_name, tier.keys())) == sorted(path.name for path in files)
    assert tier.used_bytes == sum(path.stat().st_size for path in files)
    assert tier.num_blocks == len(files)
    assert files_below(folder, "temp") == []


def put_until_killed(folder, capacity_bytes, records):
    tier = DiskBlocks(Path(folder), capacity_bytes)
    # An end, for when nobody is left to kill it.
    for turn in range(100_000):
        tier.put(records[turn % len(records)])


def main(folder, capacity_bytes, size):
    """For each line with a first number: fork a process that puts, say its id, say how it ended.

    A fork starts at once; a new interpreter would take most of the test's time.
    """
    for line in sys.stdin:
        records = [block_record(int(line) + number, size) for number in range(12)]
        child = os.fork()
        if child == 0:
            put_until_killed(folder, capacity_bytes, records)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
